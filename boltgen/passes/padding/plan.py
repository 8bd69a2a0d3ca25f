"""Decide which tensors of a model get more channels, so that kernels read whole vectors.

IR-neutral; a pure function of a graph and of times. A kernel reads 16 bytes at once if the channels
of A and of D are multiples of 8, or of 16 of integers. Weights are padded with zeros when the model
is built, which costs nothing at run time. A tensor between anchors is then written with the padded
channels by the kernel before, and read so by the kernels after. An A that no kernel of ours writes
is padded by a layout transform in the call. The fastest choice wins, which may be the model's
channels. Source: Xing et al., Bolt, MLSys 2022, section 3.2.3, which pads every A by a pass of its
own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from boltgen.graph.graph import CONSTANT, Graph
from boltgen.ir.dtypes import DType
from boltgen.passes.padding.tensors import (
    PaddedTensor,
    extents,
    padded_tensors,
    stored,
    tied,
    up,
)
from boltgen.passes.regions.boundary import is_made_of_inputs
from boltgen.passes.regions.products import Product, find_products
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.problem import has_groups
from boltgen.problems.workload import Workload

# An image's three channels: half a vector is enough, where a vector is all channels of a pixel.
_HALF_VECTOR = 4

# Stands for the time where there is no kernel: more than any, and yet it can be taken away again.
_NO_KERNEL_US = 1e9
# Less than this is rounding.
_LEAST_GAIN_US = 1e-6

# The `tensors` that are written padded, by the index of the result.
_Written = frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """One product that could be padded, with the channels that its A and its D really have.

    `moves` tells whether A is padded in the call, `bytes` what the padding costs at run time.
    `call_us` is the time of its call, `otherwise_us` that with the model's channels, or padded
    where it has these; `origin` says where both are from.
    """

    product: Product
    channels: int
    filters: int
    moves: bool
    bytes: int
    call_us: float
    otherwise_us: float
    origin: str

    @property
    def is_padded(self) -> bool:
        """Whether any tensor has more channels than the model says."""
        return (self.channels, self.filters) != extents(self.product.anchor.problem)

    def describe(self, graph: Graph) -> str:
        """For people."""
        channels, filters = extents(self.product.anchor.problem)
        name = graph[self.product.anchor.index].op.removeprefix("nn.")
        times = f"{_shown(self.call_us)} against {_shown(self.otherwise_us)}"
        if not self.is_padded:
            return (
                f"{name}: reads {channels} channels and writes {filters}, as the model says; "
                f"{times} padded, {self.origin}"
            )
        said = []
        if self.channels != channels:
            how = "moved in the call" if self.moves else "written so by the kernel before"
            said.append(f"reads {channels} channels as {self.channels}, {how}")
        if self.filters != filters:
            said.append(f"writes {filters} channels as {self.filters}")
        said.append(f"{self.bytes} bytes more")
        return f"{name}: {'; '.join(said)}; {times} unpadded, {self.origin}"


def _shown(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us < _NO_KERNEL_US else "no kernel"


def plan_padding(
    graph: Graph, costs: GraphCosts, accumulate: DType = DType.F32
) -> tuple[Padding, ...]:
    """Return the anchors of a graph that could be padded, in its order, summed in `accumulate`."""
    found = find_products(graph, accumulate)
    products = [product for product in found if _has_constant_weight(graph, product)]
    tensors = padded_tensors(graph, products)
    plan: list[Padding] = []
    for group in _groups(products, tensors):
        plan += _Group(graph, group, tensors, costs).plan()
    return tuple(sorted(plan, key=lambda padding: padding.product.anchor.index))


def _has_constant_weight(graph: Graph, product: Product) -> bool:
    """Return whether all but A is constant."""
    problem = product.anchor.problem
    if has_groups(problem):  # A and D would have to be padded together
        return False
    if problem.batch > 1 or packed_weights(problem) is not None or product.anchor.ends is not None:
        return False
    weight = graph[product.anchor.b]
    if weight.op == "permute_dims" and weight.args:
        weight = graph[weight.args[0]]
    return weight.op == CONSTANT and product.anchor.a != product.anchor.b


def _groups(
    products: Sequence[Product], tensors: Mapping[int, PaddedTensor]
) -> list[list[Product]]:
    """Group anchors whose times depend on the same decisions."""
    touched = [
        {index for index, tensor in tensors.items() if product.anchor.a in tensor.views}
        | tied(product, tensors)  # a residual is written as the result is
        for product in products
    ]
    joined = _merged(touched)
    groups = [
        [p for p, indices in zip(products, touched, strict=True) if indices & whole]
        for whole in joined
    ]
    return groups + [[p] for p, indices in zip(products, touched, strict=True) if not indices]


def _merged(sets: Iterable[set[int] | frozenset[int]]) -> list[frozenset[int]]:
    """Merge overlapping sets; empty ones are left out."""
    merged: list[frozenset[int]] = []
    for each in sets:
        if not each:
            continue
        overlapping = [known for known in merged if known & each]
        merged = [known for known in merged if not known & each]
        merged.append(frozenset(each).union(*overlapping))
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A product's call: its time, the channels of A and D, and whether it moves A for them."""

    time_us: float
    channels: int
    filters: int
    moves: bool


class _Group:
    """Anchors that are decided about together, by times that compare."""

    def __init__(
        self,
        graph: Graph,
        products: Sequence[Product],
        tensors: Mapping[int, PaddedTensor],
        costs: GraphCosts,
    ) -> None:
        self._graph = graph
        self._products = products
        self._costs = costs
        self._source = {v: index for index, tensor in tensors.items() for v in tensor.views}
        self._tensors = {
            p.tail.output: tensors[p.tail.output] for p in products if tied(p, tensors)
        }
        # Tensors that are written padded all or none.
        self._classes = _merged(tied(product, tensors) for product in products)
        sizes = [(p, size) for p in products for size in self._sizes(p)]
        workloads = [
            Workload.of(product.problem(graph).resized(*size), product.tail.epilogue)
            for product, size in sizes
        ]
        self._times_us: dict[tuple[int, int, int], float] = {}
        self._origin = ""
        if len(sizes) > len(products):  # there is something to decide
            found = costs.kernels_us(workloads)
            self._origin = found.origin
            keys = ((product.anchor.index, *size) for product, size in sizes)
            times_us = (min(time_us, _NO_KERNEL_US) for time_us in found.times_us)
            self._times_us.update(zip(keys, times_us, strict=True))

    def plan(self) -> list[Padding]:
        """Return the best choice for the anchors that could be padded."""
        if not self._times_us:
            return []
        written = self._best()
        return [self._padding(p, written) for p in self._products if len(self._sizes(p)) > 1]

    def _sizes(self, product: Product) -> list[tuple[int, int]]:
        """Return the channels of A and of D that the anchor could have, the model's first."""
        channels, filters = extents(product.anchor.problem)
        widths = [filters]
        if product.tail.output in self._tensors:
            widths.append(up(filters, stored(self._graph, product)))
        moved, wide = self._moved(product), up(channels, product.anchor.problem.in_dtype)
        if product.anchor.a in self._source and wide not in moved:
            moved.append(wide)
        return list(itertools.product(moved, widths))

    def _moved(self, product: Product) -> list[int]:
        """Return the channels that a layout transform could give A, the model's first."""
        channels = extents(product.anchor.problem)[0]
        wide = up(channels, product.anchor.problem.in_dtype)
        if channels == wide or len(self._graph.consumers[product.anchor.a]) != 1:
            return [channels]
        if channels < _HALF_VECTOR and not product.anchor.problem.is_matrix:
            return [channels, _HALF_VECTOR, wide]
        return [channels, wide]

    def _best(self) -> _Written:
        """Return the tensors to write padded: start from all or none, and change a class while that
        is faster.
        """
        everything = frozenset[int]().union(*self._classes)
        return min(
            (self._descend(start) for start in (everything, frozenset())),
            key=lambda written: (self._total_us(written), -len(written)),
        )

    def _descend(self, written: _Written) -> _Written:
        while True:
            changes = [
                (self._change_us(written, one), index) for index, one in enumerate(self._classes)
            ]
            change_us, index = min(changes, default=(0.0, 0))
            if change_us >= -_LEAST_GAIN_US:
                return written
            written ^= self._classes[index]

    def _change_us(self, written: _Written, one: frozenset[int]) -> float:
        """Return the cost of writing the tensors of a class the other way."""
        touched = [product for product in self._products if self._touched(product) & one]

        def time_us(state: _Written) -> float:
            calls = sum(self._call(product, state).time_us for product in touched)
            return calls + self._views_us(state & one)

        return time_us(written ^ one) - time_us(written)

    def _touched(self, product: Product) -> set[int]:
        """Return the tensors that an anchor's call depends on."""
        return {self._source.get(product.anchor.a, -1), product.tail.output}

    def _total_us(self, written: _Written) -> float:
        """Return the time of all calls, and of the bytes that TVM's operators move more."""
        calls = sum(self._call(product, written).time_us for product in self._products)
        return calls + self._views_us(written)

    def _views_us(self, written: _Written) -> float:
        more = sum(_view_bytes_more(self._graph, self._tensors[index]) for index in written)
        return self._costs.move_us(more, 0)

    def _call(self, product: Product, written: _Written) -> _Call:
        """Return the fastest call, given the tensors that are written padded."""
        channels, filters = extents(product.anchor.problem)
        if product.tail.output in written:
            filters = up(filters, stored(self._graph, product))
        if self._source.get(product.anchor.a) in written:
            wide = up(channels, product.anchor.problem.in_dtype)
            return self._timed(product, (wide, filters))
        calls = [self._timed(product, (channels, filters))]
        for wide in self._moved(product)[1:]:
            calls.append(self._timed(product, (wide, filters), moves=True))
        return min(calls, key=lambda call: (call.time_us, call.channels))

    def _timed(self, product: Product, size: tuple[int, int], *, moves: bool = False) -> _Call:
        """Return a call with so many channels of A and D; its entry transforms A anyway."""
        channels, filters = size
        time_us = self._times_us[product.anchor.index, channels, filters]
        if moves or product.entry is not None:
            moved = _move_bytes(self._graph, product, channels)
            is_pass = product.entry is None and not _is_made_by_tvm(self._graph, product)
            time_us += self._costs.move_us(moved, int(is_pass))
        return _Call(time_us=time_us, channels=channels, filters=filters, moves=moves)

    def _padding(self, product: Product, written: _Written) -> Padding:
        call = self._call(product, written)
        plain = self._timed(product, extents(product.anchor.problem))
        is_padded = (call.channels, call.filters) != (plain.channels, plain.filters)
        otherwise = plain if is_padded else self._padded(product)
        more = _bytes_more(self._graph, product, call)
        if product.tail.output in written:
            more += _view_bytes_more(self._graph, self._tensors[product.tail.output])
        origin = self._origin
        if (product.entry or call.moves or otherwise.moves) and origin != self._costs.move_origin:
            origin = f"kernels {origin}, moves {self._costs.move_origin}"
        return Padding(
            product=product,
            channels=call.channels,
            filters=call.filters,
            moves=call.moves,
            bytes=more,
            call_us=call.time_us,
            otherwise_us=otherwise.time_us,
            origin=origin,
        )

    def _padded(self, product: Product) -> _Call:
        """Return the fastest call with more channels than the model says."""
        plain = extents(product.anchor.problem)
        is_written = product.anchor.a in self._source
        calls = [
            self._timed(product, size, moves=not is_written and size[0] != plain[0])
            for size in self._sizes(product)
            if size != plain
        ]
        return min(calls, key=lambda call: call.time_us)


def _move_bytes(graph: Graph, product: Product, padded: int) -> int:
    """Return the bytes that a layout transform reads from TVM's tensor and writes for a kernel; or
    that TVM's own kernel writes more.
    """
    source, channels = graph[product.input], extents(product.anchor.problem)[0]
    rows = graph[product.anchor.a].elements // channels
    made = product.anchor.problem.in_dtype.size_bytes
    if _is_made_by_tvm(graph, product):
        return rows * (padded - channels) * made
    element = DType(source.dtype).size_bytes
    return source.elements * element + rows * padded * made


def _is_made_by_tvm(graph: Graph, product: Product) -> bool:
    """Return whether TVM's kernel that makes A pads it, too."""
    return product.entry is None and is_made_of_inputs(graph, product.anchor.a)


def _bytes_more(graph: Graph, product: Product, call: _Call) -> int:
    """Return the bytes that the call moves beyond the model's own channels."""
    had, made = extents(product.anchor.problem)
    a_rows = graph[product.anchor.a].elements // had
    d_rows = graph[product.tail.output].elements // made
    a_bytes = product.anchor.problem.in_dtype.size_bytes
    d_bytes = stored(graph, product).size_bytes
    more = a_rows * (call.channels - had) * a_bytes + d_rows * (call.filters - made) * d_bytes
    if not call.moves:
        return more
    if product.entry is not None:  # A is moved anyway
        return more + a_rows * (call.channels - had) * a_bytes
    return more + _move_bytes(graph, product, call.channels)


def _view_bytes_more(graph: Graph, tensor: PaddedTensor) -> int:
    """Return the additional bytes that TVM's operators on a padded tensor read and write."""
    filters = extents(tensor.product.anchor.problem)[1]
    return sum(
        graph[index].elements
        // filters
        * (tensor.channels - filters)
        * DType(graph[index].dtype).size_bytes
        for view in tensor.views[1:]
        for index in (*graph[view].args, view)
    )
