"""The elementwise graph: a kernel's operators on each element before or after its product.

    node    ::= Accumulator(second) | Load(kind, dtype, parts) | Scalar(value)
              | Unary(op, x, params) | Binary(op, lhs, rhs) | Cast(x, dtype) | Softmax(x)
    store   ::= Store(x, kind, dtype, reduction, columns)
    graph   ::= node+ store*               operands are indices of earlier nodes

It is in SSA form. Node 0 is the accumulator of an epilogue, or the element of an operand in a
prologue. A pair of products has a second accumulator. Without stores the last node is the output,
in the problem's type. Arithmetic is in FP32 unless a Cast says otherwise.

The sums of products of integers are whole. Sums and differences of whole values are whole, and a
Cast to FP32 ends them, which rounds once. Nothing else reads a whole value. In such a graph each
operation rounds to FP32 on its own, and a division is exact to the last bit: the oracle repeats it.

Softmax is the one function of a whole row. It ends a prologue: the product's rows are not in one
place before an epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise_nodes import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    Load,
    LoadKind,
    Node,
    Reduction,
    Scalar,
    Softmax,
    Store,
    Unary,
    operands,
    whole_nodes,
    whole_rejection,
)

__all__ = (
    "MAX_LOADS",
    "MAX_OPERANDS",
    "SOFTMAX",
    "Accumulator",
    "Binary",
    "BinaryOp",
    "Cast",
    "ElementwiseGraph",
    "Load",
    "LoadKind",
    "Node",
    "Reduction",
    "Scalar",
    "Softmax",
    "Store",
    "Unary",
    "local_softmax",
    "operands",
)

# Two full tensors and four row vectors keep the widest vectorised epilogue below the 255 registers
# that a thread may have. Rows of slices and of positions change from row to row, and take as many
# registers as tensors. Two columns are the moments of rows.
MAX_LOADS = dict.fromkeys(LoadKind, 2) | {LoadKind.ROW: 4}

MAX_OPERANDS = 7  # addresses besides D's that a launch passes: BOLTGEN_MAX_OPERANDS in abi.h

_LONGEST_TERM = 100  # the longest term of `ElementwiseGraph.describe`: about a line of text


@dataclass(frozen=True, slots=True)
class ElementwiseGraph:
    """An elementwise graph; `ElementwiseGraph()` stores the accumulator as it is.

    `stores` is empty where the last node is the one result; see `results`.

    Raises:
        InvalidProblemError: node 0 is not the accumulator, or another one is, or there are two
            second ones, an operand is not an earlier node, a constant is missing or NaN, an
            operation mixes whole values and others, or has no whole result, a cast is to a whole
            type, a softmax
            is not the last node, or has a window without being causal, a store has no such node, or
            reduces a full tensor, or does not reduce to a row or column, or has columns that are no
            column's, a load has parts without being a column of FP32, or hides without being a row,
            or there are more loads of a kind than `MAX_LOADS` allows, or of all kinds than
            `MAX_OPERANDS`, or kernels do not convert the type of a load, a cast or a store, or a
            load or a cast is of floats of 8 bits, or a store besides D is.
    """

    # Keys and records of graphs without stores are older than stores.
    key_name: ClassVar[str] = "Epilogue"

    nodes: tuple[Node, ...] = (Accumulator(),)
    stores: tuple[Store, ...] = field(default=(), metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        if self.stores == (Store(len(self.nodes) - 1),):
            object.__setattr__(self, "stores", ())
        if not self.nodes or self.nodes[0] not in (Accumulator(), Accumulator(whole=True)):
            raise InvalidProblemError("Epilogue: node 0 must be the accumulator")
        if sum(isinstance(node, Accumulator) and node.second for node in self.nodes) > 1:
            raise InvalidProblemError("Epilogue: two second accumulators; a pair has one")
        for index, node in enumerate(self.nodes):
            self._check(index, node)
            _ = node.dtype.conversions if isinstance(node, Load | Cast) else None
            if isinstance(node, Load | Cast) and node.dtype.is_narrow:
                raise InvalidProblemError(
                    f"Epilogue: node {index} is of {node.dtype.value}; epilogues read wider types"
                )
        whole = whole_nodes(self.nodes)
        for index, node in enumerate(self.nodes):
            if (reason := whole_rejection(node, whole)) is not None:
                raise InvalidProblemError(f"Epilogue: node {index} {reason}")
        kinds = [load.kind for load in self.loads]
        for kind in kinds:
            if (count := kinds.count(kind)) > (most := MAX_LOADS[kind]):
                raise InvalidProblemError(
                    f"Epilogue: {count} loads of kind '{kind.value}'; at most {most} are supported"
                )
        if (count := len(kinds)) > MAX_OPERANDS:
            raise InvalidProblemError(
                f"Epilogue: {count} loads; a launch passes {MAX_OPERANDS} addresses besides D's"
            )
        for index, store in enumerate(self.stores):
            self._check_store(index, store)

    def _check_store(self, index: int, store: Store) -> None:
        if not 0 <= store.x < len(self.nodes):
            raise InvalidProblemError(
                f"Epilogue: store {index} is of node {store.x}; there are {len(self.nodes)}"
            )
        _ = store.dtype and store.dtype.conversions
        if store.dtype is not None and store.dtype.is_narrow:
            raise InvalidProblemError(
                f"Epilogue: store {index} is of {store.dtype.value}; D alone has floats of 8 bits"
            )
        if store.kind.is_of_slices:
            raise InvalidProblemError(
                f"Epilogue: store {index} is a {store.kind.value}, which is only loaded"
            )
        is_whole = store.kind is LoadKind.TENSOR
        if is_whole != (store.reduction is None):
            how = store.reduction.value if store.reduction else "no reduction"
            raise InvalidProblemError(
                f"Epilogue: store {index} of kind '{store.kind.value}' has {how}; rows and columns "
                "are reductions, full tensors are not"
            )
        if store.columns < 0 or (store.columns and store.kind is not LoadKind.COLUMN):
            raise InvalidProblemError(
                f"Epilogue: store {index} of kind '{store.kind.value}' reduces {store.columns} "
                "columns at a time; only a column does"
            )

    def is_whole(self, index: int) -> bool:
        """Whether a node is an integer of 32 bits."""
        return whole_nodes(self.nodes)[index]

    @property
    def is_of_integers(self) -> bool:
        """Whether it begins with a sum of products of integers."""
        return self.nodes[0] == Accumulator(whole=True)

    def _check_load(self, index: int, load: Load) -> None:
        has_parts = (load.kind, load.dtype) == (LoadKind.COLUMN, DType.F32) and load.parts > 0
        if load.parts != 1 and not has_parts:
            raise InvalidProblemError(
                f"Epilogue: node {index} is a {load.kind.value} of {load.dtype.value} in "
                f"{load.parts} parts; a column of float32 has parts, one at least"
            )
        if load.hides and load.kind is not LoadKind.ROW:
            raise InvalidProblemError(
                f"Epilogue: node {index} is a {load.kind.value} that hides columns; a row does"
            )

    def _check(self, index: int, node: Node) -> None:
        if index and isinstance(node, Accumulator) and not node.second:
            raise InvalidProblemError(f"Epilogue: node {index} is the accumulator, as node 0 is")
        if any(not 0 <= x < index for x in operands(node)):
            raise InvalidProblemError(f"Epilogue: node {index} reads {operands(node)}, not earlier")
        if isinstance(node, Load):
            self._check_load(index, node)
        if isinstance(node, Softmax) and index + 1 < len(self.nodes):
            raise InvalidProblemError(f"Epilogue: node {index} is a softmax; nothing may follow it")
        if isinstance(node, Softmax) and (node.window < 0 or (node.window and not node.causal)):
            raise InvalidProblemError(
                f"Epilogue: node {index} is a softmax of a window of {node.window} columns; one "
                "ends with a causal row"
            )
        if isinstance(node, Unary):
            names = node.op.parameters
            if len(node.params) != len(names):
                raise InvalidProblemError(
                    f"Epilogue: {node.op.value} takes constants {names}, got {node.params}"
                )
        values = node.params if isinstance(node, Unary) else ()
        values = (node.value,) if isinstance(node, Scalar) else values
        if any(math.isnan(value) for value in values):
            raise InvalidProblemError(f"Epilogue: node {index} has the constant NaN")

    def __hash__(self) -> int:
        # Graphs are keys of caches that are asked a hundred thousand times: not every node counts.
        return hash((len(self.nodes), self.nodes[-1]))

    @property
    def loads(self) -> tuple[Load, ...]:
        """The operands, in the order in which a kernel takes them."""
        return tuple([node for node in self.nodes if isinstance(node, Load)])

    @property
    def results(self) -> tuple[Store, ...]:
        """The results: the last node where the graph names no stores."""
        return self.stores or (Store(len(self.nodes) - 1),)

    @property
    def result(self) -> int:
        """The node that is the one result, a full tensor in the problem's output type.

        Raises:
            InvalidProblemError: the graph stores something else.
        """
        if self.stores:
            raise InvalidProblemError(
                f"Epilogue: stores other than its last node as one full tensor: {self.describe()}"
            )
        return len(self.nodes) - 1

    @property
    def typed_results(self) -> tuple[Store, ...]:
        """The results: first D, a full tensor in the problem's output type, then results in
        types that they name.

        Raises:
            InvalidProblemError: the graph stores something else.
        """
        first, *further = self.results
        if first.dtype or first.reduction or not all(store.dtype for store in further):
            raise InvalidProblemError(
                "Epilogue: results other than a full tensor in the problem's output type, and "
                f"further ones each in a type of its own: {self.describe()}"
            )
        return self.results

    @property
    def further(self) -> tuple[tuple[Store, DType], ...]:
        """The results besides D, with their types.

        Raises:
            InvalidProblemError: see `typed_results`.
        """
        return tuple((store, store.dtype) for store in self.typed_results[1:] if store.dtype)

    @property
    def reductions(self) -> tuple[Store, ...]:
        """The stores of one value for each row or column, or for some columns of each row."""
        return tuple(store for store in self.stores if store.reduction)

    @property
    def added_up(self) -> tuple[Store, ...]:
        """The reductions to which several threadblocks add, in memory that is cleared before."""
        return tuple(store for store in self.reductions if not store.columns)

    @property
    def has_parts(self) -> bool:
        """Whether an operand, or a result, is a column in parts."""
        stored = any(store.columns for store in self.stores)
        return stored or any(load.parts > 1 for load in self.loads)

    def up_to(self, x: int) -> ElementwiseGraph:
        """The graph whose one result is node `x`; it has the loads before that one."""
        return ElementwiseGraph(self.nodes[: x + 1])

    @property
    def formula(self) -> str:
        """The results as formulas, for people: `D = relu(acc)` where there is one."""
        return self.describe() if self.stores else f"D = {self.describe()}"

    @property
    def is_identity(self) -> bool:
        """Whether the accumulator is stored as it is, and nothing else."""
        return len(self.nodes) == 1 and not self.stores

    @property
    def is_paired(self) -> bool:
        """Whether it combines the values of two products."""
        return any(isinstance(node, Accumulator) and node.second for node in self.nodes)

    @property
    def has_softmax(self) -> bool:
        """Whether it ends with a function of whole rows."""
        return isinstance(self.nodes[-1], Softmax)

    @property
    def is_causal(self) -> bool:
        """Whether it ends with a softmax of rows up to the diagonal."""
        last = self.nodes[-1]
        return isinstance(last, Softmax) and last.causal

    @property
    def window(self) -> int:
        """The columns that a row of its causal softmax has at most; 0 where there is no limit."""
        last = self.nodes[-1]
        return last.window if isinstance(last, Softmax) else 0

    def describe(self) -> str:
        """One line for people: `relu(add(acc, row0))`.

        A term that would be longer than a line is given a name: `v9 = add(...); relu(v9)`. So
        the text is linear in the nodes, however often one is read. Stores are named by what they
        span: `tensor: relu(acc); column float32: sum(relu(acc))`.
        """
        names: list[str] = []
        named: list[str] = []
        seen = dict.fromkeys(LoadKind, 0)
        for index, node in enumerate(self.nodes):
            match node:
                case Accumulator(second=second):
                    names.append("acc2" if second else "acc")
                case Load(kind=kind, parts=parts, hides=hides):
                    of = f" of {parts} parts" if parts > 1 else ""
                    of = " that hides keys" if hides else of
                    names.append(f"{kind.value}{seen[kind]}{of}")
                    seen[kind] += 1
                case Scalar(value=value):
                    names.append(f"{value:g}")
                case Unary(op=op, x=x, params=params):
                    constants = "".join(f", {p:g}" for p in params)
                    names.append(f"{op.value}({names[x]}{constants})")
                case Binary(op=bop, lhs=lhs, rhs=rhs):
                    names.append(f"{bop.value}({names[lhs]}, {names[rhs]})")
                case Cast(x=x, dtype=dtype):
                    names.append(f"{dtype.value}({names[x]})")
                case Softmax(x=x, causal=causal, window=window):
                    of = f"causal softmax of {window}" if window else "causal softmax"
                    names.append(f"{of if causal else 'softmax'}({names[x]})")
                case _:
                    assert_never(node)
            is_last = index + 1 == len(self.nodes) and not self.stores
            if len(names[index]) > _LONGEST_TERM and not is_last:
                named.append(f"v{index} = {names[index]}")
                names[index] = f"v{index}"
        stored = [_describe_store(store, names[store.x]) for store in self.stores]
        return "; ".join([*named, *(stored or names[-1:])])


def _describe_store(store: Store, x: str) -> str:
    dtype = f" {store.dtype.value}" if store.dtype else ""
    value = f"{store.reduction.value}({x})" if store.reduction else x
    if store.columns:
        value = f"{value} of {store.columns} columns each"
    return f"{store.kind.value}{dtype}: {value}"


# The softmax of whole rows.
SOFTMAX = ElementwiseGraph((Accumulator(), Softmax(0)))


def local_softmax(window: int) -> ElementwiseGraph:
    """Return the softmax of so many columns up to the diagonal; of all of them if it is 0."""
    return ElementwiseGraph((Accumulator(), Softmax(0, causal=True, window=window)))
