"""The nodes of elementwise graphs, and what follows from them alone; see `ir.elementwise`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from boltgen.ir.dtypes import DType
from boltgen.ir.functions import UnaryOp


class LoadKind(Enum):
    """The span of an operand, or of a result, in the (M, N) output."""

    TENSOR = "tensor"  # (M, N): a residual
    ROW = "row"  # (N,): a bias or a per-channel scale
    SLICE_ROW = (
        "slice_row"  # (slices, N): one for the rows of each image or sequence, `problems.slices`
    )
    POSITION_ROW = "position_row"  # (rows of a slice, N): one for each position, in all slices
    COLUMN = "column"  # (M,)

    @property
    def is_of_slices(self) -> bool:
        """Whether what a row of D reads depends on which rows are a slice."""
        return self in {LoadKind.SLICE_ROW, LoadKind.POSITION_ROW}


class Reduction(Enum):
    """The reduction of a row or a column by a store; it adds in FP32, in any order."""

    SUM = "sum"
    SUM_OF_SQUARES = "sum_of_squares"
    MAXIMUM = "maximum"


class BinaryOp(Enum):
    """Elementwise functions of two values."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The product's value; in a pair of products, `second` selects the other one's.

    It is `whole` if the product is of integers: a sum of 32 bits.
    """

    second: bool = field(default=False, metadata={"absent_at_default": True})
    whole: bool = field(default=False, metadata={"absent_at_default": True})


@dataclass(frozen=True, slots=True)
class Load:
    """An operand in global memory; operands are passed in the order of their Load nodes.

    A COLUMN of several `parts` is (M, parts), FP32, and stands for their sum, added in any order.
    If a ROW `hides`, a softmax of the result may leave columns out: see `ir.key_masks`.
    """

    kind: LoadKind
    dtype: DType = DType.F16
    parts: int = field(default=1, metadata={"absent_at_default": True})
    hides: bool = field(default=False, metadata={"absent_at_default": True})

    @property
    def parts_shape(self) -> tuple[int, ...]:
        """The dimension of several parts, behind the rows; empty for one part."""
        return (self.parts,) if self.parts > 1 else ()

    @property
    def parts_ld(self) -> int:
        """The `ld` of a row or column in a launch: the distance of rows in parts, or 0."""
        return self.parts if self.parts > 1 else 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant known when the kernel is generated."""

    value: float


@dataclass(frozen=True, slots=True)
class Unary:
    """`op(x)`, with the constants that `op.parameters` names."""

    op: UnaryOp
    x: int
    params: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """`op(lhs, rhs)`."""

    op: BinaryOp
    lhs: int
    rhs: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Rounding to `dtype` and back: a cast that the model's author wrote; to FP32, of a whole x."""

    x: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Softmax:
    """exp(x - maximum of the row) / the row's sum of these.

    A kernel may round the exponentials, multiply, and divide the product by their sum. If it is
    `causal`, the last row has all N columns, and each of the M rows one less than the next: row i
    ends with column i + N - M, and later columns are 0. With a `window` it begins so many columns
    before it ends, and earlier columns are 0 too.
    """

    x: int
    causal: bool = field(default=False, metadata={"absent_at_default": True})
    window: int = field(default=0, metadata={"absent_at_default": True})


@dataclass(frozen=True, slots=True)
class Store:
    """A result in global memory: node `x`, in the order of the graph's stores.

    TENSOR: every element. ROW: (N,), each the `reduction` of a column of the output; of one image,
    or of one product of a batch, if there are several. COLUMN: (M,), each the `reduction` of a row;
    or (M, N / columns), if only so many `columns` make a number. Without a `dtype` it is in the
    problem's output type. An epilogue's first store is D; a launch passes the addresses of the
    other stores after the loads' addresses.
    """

    x: int
    kind: LoadKind = LoadKind.TENSOR
    dtype: DType | None = None
    reduction: Reduction | None = None
    columns: int = field(default=0, metadata={"absent_at_default": True})


Node: TypeAlias = Accumulator | Load | Scalar | Unary | Binary | Cast | Softmax

# The operations on whole values.
WHOLE_OPS = frozenset({BinaryOp.ADD, BinaryOp.SUBTRACT})


def operands(node: Node) -> tuple[int, ...]:
    """Indices of the nodes that `node` reads."""
    match node:
        case Unary(x=x) | Cast(x=x) | Softmax(x=x):
            return (x,)
        case Binary(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case _:
            return ()


def whole_nodes(nodes: Sequence[Node]) -> list[bool]:
    """Return for each node whether it is an integer of 32 bits: a sum of products, or of such."""
    found: list[bool] = []
    for node in nodes:
        match node:
            case Accumulator(whole=whole):
                found.append(whole)
            case Load(dtype=dtype):
                found.append(dtype is DType.I32)
            case Binary(lhs=lhs):
                found.append(0 <= lhs < len(found) and found[lhs])
            case _:
                found.append(False)
    return found


def whole_rejection(node: Node, whole: Sequence[bool]) -> str | None:
    """Return why a node may not read `whole` values as it does, or None.

    Only sums, differences and casts to FP32 read them.
    """
    read = {whole[x] for x in operands(node)}
    is_sum = isinstance(node, Binary) and node.op in WHOLE_OPS and len(read) == 1
    is_ended = isinstance(node, Cast) and node.dtype is DType.F32
    if True in read and not is_sum and not is_ended:
        return (
            "reads whole values, of which there are only sums and differences; cast them to "
            "float32 before"
        )
    if isinstance(node, Cast) and node.dtype.is_whole:
        return f"is a cast to {node.dtype.value}; round and clip instead"
    return None
