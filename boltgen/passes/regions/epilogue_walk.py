"""Grow an epilogue over the elementwise operators after a matmul or convolution.

IR-neutral. The region is a DAG: the anchor, and elementwise operators each of which reads the
region and otherwise only constants and operands that a kernel can load. It has one result, and
nothing outside it reads its other values; so no operand can depend on the region itself, and fusing
never makes a cycle. The walk takes the largest of all such regions: `grow`.

A value that others read too ends such a region. `extensions` go on past it, where a kernel may
write it besides its result.

One table, `epilogue_rules.RULES`, says which operators there are; no pattern enumerates their
combinations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from boltgen.errors import InvalidProblemError
from boltgen.graph.facts import BYTES, are_static, is_only_read_by
from boltgen.graph.graph import HALF, Expr, Graph
from boltgen.ir.dtypes import CONVERTED, WHOLE, DType
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.passes.attention.mask_operands import BROADCAST, made_of
from boltgen.passes.legalise.norm_of_sums import parts_of
from boltgen.passes.regions.activations import recognise
from boltgen.passes.regions.anchor import Anchor
from boltgen.passes.regions.broadcast_kind import shared_span, slice_span, span
from boltgen.passes.regions.epilogue_rules import (
    DEQUANTIZE,
    ELEMENTWISE,
    RULES,
    VIEW,
    Call,
    NotFusibleError,
    check_integers,
)
from boltgen.passes.regions.sliced_rows import slice_rows
from boltgen.passes.regions.tail import Tail, TailOperand
from boltgen.passes.regions.written_values import is_written_anyway
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.region import Shared

# A tail longer than this is split. No network is known to have one half as long; the bound keeps
# the walk's cost linear in the model.
_MAX_MEMBERS = 64
# Reasons for operators that an epilogue could compute, and does not.
_NOT_IN_EPILOGUES = "no epilogue has this operator"
_ALSO_READ = (
    "its operand is a result of the model, or an operator that no epilogue has reads it too"
)
_MORE_RESULTS = "the kernel would have to write a further result, or load too many tensors"
_READ_TWICE = frozenset({"nn.softmax", "nn.log_softmax"})


@dataclass(slots=True)
class _Emission:
    """An epilogue under construction, and the place of each value of the graph in it.

    Only a kernel of attention `shares` slices of operands between heads, or between sequences; it
    `inlines` what makes operands of smaller ones. `rows` are the nodes of rows. What is `claimed`
    stays out of it.
    """

    graph: Graph
    anchor: Anchor
    shares: bool = False
    inlines: bool = False
    inlined: list[int] = field(default_factory=list)
    builder: ElementwiseBuilder = field(default_factory=ElementwiseBuilder)
    nodes: dict[int, int] = field(default_factory=dict)
    loads: dict[tuple[TailOperand, LoadKind], int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    slice_rows: int = 0
    claimed: Collection[int] = frozenset()

    def __post_init__(self) -> None:
        if self.anchor.problem.acc_dtype.is_whole:
            self.builder = ElementwiseBuilder(whole=True)
        index, node = self.anchor.index, 0
        for op, operand in self.anchor.applied:
            node = self.builder.binary(op, node, self._operand(operand, self.graph[index]))
        self.nodes[index] = node

    def emit(self, index: int) -> None:
        """Append the operator at `index`, at least one of whose operands is in the region."""
        expr = self.graph[index]
        inside = [arg for arg in expr.args if arg in self.nodes]
        self._check_shapes(expr, inside)
        check_integers(expr)
        pairs = zip(expr.args, parts_of(self.graph, expr), strict=True)
        args = tuple(self._operand(arg, expr, parts) for arg, parts in pairs)
        self.nodes[index] = self._applied(expr, args)

    def _applied(self, expr: Expr, args: tuple[int, ...]) -> int:
        """Append an operator on these nodes."""
        scalars = tuple(self.graph[arg].scalar for arg in expr.args)
        return RULES[expr.op](Call(self.builder, expr, args, scalars))

    def reads_tensor(self, index: int) -> bool:
        """Whether the operator at `index` reads a full tensor, or one whose shape is not known."""
        expr, batched = self.graph[index], self.anchor.problem.batch > 1
        pairs = zip(expr.args, parts_of(self.graph, expr), strict=True)
        outside = [self.graph[arg] for arg, parts in pairs if arg not in self.nodes and parts == 1]
        return any(
            not each.is_static
            or span(each.static_shape, expr.static_shape, batched=batched)
            in {(LoadKind.TENSOR, False), (LoadKind.TENSOR, True)}
            for each in outside
        )

    def _check_shapes(self, expr: Expr, inside: Sequence[int]) -> None:
        if expr.op == HALF:
            return
        for arg in inside:
            before = self.graph[arg].static_shape
            if expr.op == VIEW:
                kept = 2 if self.anchor.problem.batch > 1 else 1
                if before[-kept:] != expr.static_shape[-kept:]:
                    raise NotFusibleError("a reshape that splits rows")
            elif before != expr.static_shape:
                raise NotFusibleError("its result is broadcast")

    def _operand(self, arg: int, consumer: Expr, parts: int = 1) -> int:
        if arg in self.nodes:
            return self.nodes[arg]
        operand = self.graph[arg]
        if operand.scalar is not None:
            return self.builder.scalar(operand.scalar)
        if operand.op == DEQUANTIZE and self._dequantised(arg, consumer):
            return self.nodes[arg]
        if operand.dtype not in (*CONVERTED, *WHOLE):
            raise NotFusibleError(f"an operand of dtype {operand.dtype}")
        if self.inlines and parts == 1 and self._inline(arg, consumer):
            return self.nodes[arg]
        shape = operand.static_shape if parts == 1 else (*operand.static_shape[:-1], 1)
        found = self._span(shape, consumer.static_shape)
        if found is None:
            raise NotFusibleError("an operand whose broadcast no kernel loads")
        kind, batched, shared = found
        if kind is LoadKind.SLICE_ROW or (kind is LoadKind.ROW and not self.shares):
            return self._row(arg, kind)
        return self._load(TailOperand(expr=arg, batched=batched, shared=shared), kind, parts)

    def _load(self, operand: TailOperand, kind: LoadKind, parts: int = 1) -> int:
        if (operand, kind) not in self.loads:
            dtype = DType(self.graph[operand.expr].dtype)
            self.loads[operand, kind] = self.builder.load(kind, dtype, parts)
        return self.loads[operand, kind]

    def _row(self, index: int, kind: LoadKind) -> int:
        """One row, or one for each slice, which is read where it lies, and made in the kernel."""
        if index not in self.rows:
            made = slice_rows(self.graph, index)
            source = TailOperand(expr=made.source, batched=False, view=made.view)
            node = self._load(source, kind)
            for member in made.members:
                expr = self.graph[member]
                if expr.op in ELEMENTWISE - {VIEW}:
                    scalars = (self.graph[arg].scalar for arg in expr.args)
                    args = (node if s is None else self.builder.scalar(s) for s in scalars)
                    node = self._applied(expr, tuple(args))
            self.inlined += made.members
            self.rows[index] = node
        return self.rows[index]

    def _dequantised(self, index: int, consumer: Expr) -> bool:
        """Return whether an operand of integers is loaded as such, and made a number here."""
        expr = self.graph[index]
        x = expr.args[0]
        scalars = tuple(self.graph[arg].scalar for arg in expr.args)
        is_known = self.graph[x].is_static and self.graph[x].dtype in BYTES
        if not is_known or None in scalars[1:] or index in self.claimed:
            return False
        args = (self._operand(x, consumer), *(self.builder.scalar(s or 0.0) for s in scalars[1:]))
        self.nodes[index] = self._applied(expr, args)
        self.inlined.append(index)
        return True

    def _inline(self, index: int, consumer: Expr) -> bool:
        """Return whether an operand is computed in the kernel, from the tensors that it loads
        instead.
        """
        made, out = made_of(self.graph, index), consumer.static_shape
        shapes = [self.graph[leaf].static_shape for leaf in made.leaves]
        if not made.members or any(self._span(shape, out) is None for shape in shapes):
            return False
        for member in made.members:
            expr = self.graph[member]
            args = tuple(self._operand(arg, consumer) for arg in expr.args)
            self.nodes[member] = args[0] if expr.op == BROADCAST else self._applied(expr, args)
        self.inlined += made.members
        return True

    def _span(
        self, shape: Sequence[int], out: Sequence[int]
    ) -> tuple[LoadKind, bool, Shared | None] | None:
        batched = self.anchor.problem.batch > 1
        if batched and self.shares:
            return shared_span(shape, out)
        found = span(shape, out, batched=batched)
        if found is None and (kind := self._of_slices(shape, out)) is not None:
            found = kind, False
        return None if found is None else (*found, None)

    def _of_slices(self, shape: Sequence[int], out: Sequence[int]) -> LoadKind | None:
        """Return how an operand spans equal slices of the rows; None if it does not."""
        problem, found = self.anchor.problem, slice_span(shape, out)
        if found is None or problem.batch > 1 or in_groups(problem) is not None:
            return None
        kind, rows = found
        known = self.slice_rows or problem.slice_rows
        if known and known != rows:
            return None
        self.slice_rows = rows
        return kind

    def finish(
        self, output: int, further: Sequence[int] = ()
    ) -> tuple[ElementwiseGraph, tuple[TailOperand, ...]]:
        """Return the simplified epilogue, and its operands in the order of its loads."""
        if further:
            self.builder.store(self.nodes[output])
        for index in further:
            self.builder.store(self.nodes[index], dtype=DType(self.graph[index].dtype))
        # Every load is read by the operator that it was made for, so recognition keeps them all.
        out_dtype, precision = DType(self.graph[output].dtype), self.anchor.problem.in_dtype
        epilogue = recognise(self.builder.build(), out_dtype, precision)
        operands = tuple(operand for operand, _ in self.loads)
        assert len(epilogue.loads) == len(operands)
        return epilogue, operands


def grow(
    graph: Graph, anchor: Anchor, claimed: Collection[int] = frozenset(), *, shares: bool = False
) -> Tail:
    """Return the largest region that starts at `anchor` and has no operator in `claimed`.

    It `shares` operands as only attention can: `shared_span`.
    """
    fusible, refused = _fusible(graph, anchor, claimed, shares=shares)
    stored = {dtype.value for dtype in anchor.problem.storable}
    ends = [each for each in fusible[1:] if graph[each].dtype in stored and _ends_well(graph, each)]
    regions = (
        _close(graph, anchor, fusible, output, claimed, shares=shares)
        for output in (*ends[::-1], anchor.index)
    )
    best = next(region for region in regions if region is not None)
    for index in set(fusible).difference(best.members):
        refused.setdefault(index, _MORE_RESULTS)
    return replace(best, refused=refused) if refused else best


def made_before(graph: Graph, anchor: Anchor, source: int, members: Collection[int]) -> Tail | None:
    """Return the graph of the elementwise `members` that make A from `source`; None if no kernel
    computes it. `anchor` is the product that multiplies A.
    """
    return _tail(graph, replace(anchor, index=source, applied=()), {source, *members}, anchor.a)


def _fusible(
    graph: Graph, anchor: Anchor, claimed: Collection[int], *, shares: bool
) -> tuple[list[int], dict[int, str]]:
    """Return the anchor, and every operator that elementwise operators connect to it, in order."""
    emission = _Emission(graph, anchor, shares, claimed=claimed)
    found, refused = [anchor.index], dict[int, str]()
    pending = set(_readers(graph, anchor.index))
    while pending and len(found) < _MAX_MEMBERS:
        index = min(pending)  # all its operands within the region are smaller, so already there
        pending.remove(index)
        if index in claimed:
            continue
        if graph[index].op not in ELEMENTWISE:
            refused[index] = _NOT_IN_EPILOGUES
            continue
        if not are_static(graph, index, *graph[index].args):
            refused[index] = "its shape, or the shape of an operand, is not known"
            continue
        try:
            emission.emit(index)
        except NotFusibleError as error:
            refused[index] = str(error)
            continue
        found.append(index)
        readers = _readers(graph, index)
        pending.update(readers)
        if not readers:
            for reader in graph.consumers[index]:
                is_known = graph[reader].op in ELEMENTWISE
                refused[reader] = _ALSO_READ if is_known else _NOT_IN_EPILOGUES
    for index in pending:
        refused[index] = f"the epilogue has {_MAX_MEMBERS} operators already"
    return found, refused


def _readers(graph: Graph, index: int) -> tuple[int, ...]:
    """Return the readers of a value if it may be inside a region; else none.

    A value that something else reads too can only be the region's result.
    """
    readers = graph.consumers[index]
    is_inner = index not in graph.escaping and all(graph[r].op in ELEMENTWISE for r in readers)
    return readers if is_inner else ()


def _ends_well(graph: Graph, output: int) -> bool:
    """Return whether a region may end here: on no wider cast, and on no view but one that TVM
    copies.
    """
    expr = graph[output]
    if expr.op == VIEW:
        return output in graph.escaping
    if expr.op != "astype" or expr.dtype != DType.F32.value or output in graph.escaping:
        return True
    # TVM fuses a cast into most of what follows it, but not into these.
    consumers = graph.consumers[output]
    return all(graph[consumer].op in _READ_TWICE for consumer in consumers)


def extensions(
    graph: Graph, anchor: Anchor, tail: Tail, claimed: Collection[int]
) -> Iterator[Tail]:
    """Return regions that go on past the result of `tail`, which others read too; the largest
    first.

    They end in values that are written either way: a product multiplies them, or the model returns
    them. Kernels of TVM's would read the result of `tail` for them, so a region saves a launch and
    that read. An operator that only TVM's own operators read is not worth it: TVM fuses it into its
    readers. Neither is an operator that reads a further full tensor: another product could have
    that tensor in registers.

    The region takes the place of its last operator. All that others read of it they read behind
    that place, so the order of the graph stays one, and there is no cycle.
    """
    going_on = _going_on(graph, anchor, tail, claimed)
    stored = {dtype.value for dtype in anchor.problem.storable}
    ends = [index for index in going_on if is_written_anyway(graph, index)]
    for count in range(len(ends), 0, -1):
        output = ends[count - 1]
        members = _with_sources(graph, ends[:count], {*tail.members, *going_on})
        readers = {index: set(graph.consumers[index]) - members for index in members}
        further = tuple(
            index
            for index in sorted(members - {output})
            if index in graph.escaping or readers[index]
        )
        is_late = all(reader > output for index in further for reader in readers[index])
        is_stored = stored.issuperset(graph[index].dtype for index in (output, *further))
        made = None
        if further and is_late and is_stored:
            made = _tail(graph, anchor, members, output, further, claimed=claimed)
        if made is not None:
            yield made


def _going_on(graph: Graph, anchor: Anchor, tail: Tail, claimed: Collection[int]) -> list[int]:
    """Return the elementwise operators that read `tail` and otherwise rows, columns and numbers."""
    emission = _Emission(graph, anchor, claimed=claimed)
    for member in tail.members[1:]:
        emission.emit(member)
    found: list[int] = []
    pending = set(graph.consumers[tail.output])
    while pending and len(tail.members) + len(found) < _MAX_MEMBERS:
        index = min(pending)
        pending.remove(index)
        if index in claimed or graph[index].op not in ELEMENTWISE - {VIEW}:
            continue
        if not graph[index].is_static or emission.reads_tensor(index):
            continue
        try:
            emission.emit(index)
        except NotFusibleError:
            continue
        found.append(index)
        pending.update(graph.consumers[index])
    return found


def _close(
    graph: Graph,
    anchor: Anchor,
    fusible: Sequence[int],
    output: int,
    claimed: Collection[int],
    *,
    shares: bool,
) -> Tail | None:
    """Return the region with the result `output`; None if a value leaks or loads are too many."""
    members = _with_sources(graph, [output], set(fusible))
    inner = members - {output}
    if anchor.index not in members or not all(is_only_read_by(graph, i, members) for i in inner):
        return None
    return _tail(graph, anchor, members, output, claimed=claimed, shares=shares)


def _with_sources(graph: Graph, ends: Sequence[int], allowed: set[int]) -> set[int]:
    """Return `ends`, and all their sources in `allowed`: an anchor and the operators after it."""
    anchor = min(allowed)
    members = set(ends)
    pending = list(ends)
    while pending:
        index = pending.pop()
        if index == anchor:
            continue  # the anchor's operands are never part of the region
        fresh = allowed.intersection(graph[index].args) - members
        members |= fresh
        pending.extend(fresh)
    return members


def _tail(
    graph: Graph,
    anchor: Anchor,
    members: Collection[int],
    output: int,
    further: tuple[int, ...] = (),
    *,
    claimed: Collection[int] = frozenset(),
    shares: bool = False,
) -> Tail | None:
    """Return the region of `members`, or None if loads are too many."""
    ordered = tuple(sorted(members))
    # Inlined operators may need too many loads; the operand itself is one load.
    for inlines in (True, False) if shares else (False,):
        emission = _Emission(graph, anchor, shares, inlines, claimed=claimed)
        try:
            for member in ordered:
                if member != anchor.index:
                    emission.emit(member)
            epilogue, operands = emission.finish(output, further)
        except (NotFusibleError, InvalidProblemError):
            continue
        return Tail(
            members=ordered,
            output=output,
            epilogue=epilogue,
            operands=operands,
            further=further,
            inlined=tuple(emission.inlined),
            slice_rows=emission.slice_rows,
        )
    return None
