"""Workloads: the computation of one kernel, with all fused operators.

Arrow: like `problem`. A workload has one layer, or several layers back to back: the output of a
layer is the next layer's A, rounded to the type that it multiplies, and stays on chip. Source: Xing
et al., Bolt, MLSys 2022, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Accumulator, ElementwiseGraph, Load, Store, Unary
from boltgen.ir.extent import Dim, Symbol, greatest, typical
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm, is_paired
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.problem import Problem, describe, with_extents
from boltgen.problems.results import store_shape

# BOLTGEN_MAX_LAYERS in templates/include/boltgen/abi.h.
MAX_LAYERS = 8


def _is_within(graph: ElementwiseGraph, index: int, dtype: DType) -> bool:
    """Return whether a node is clipped to the numbers of a type of 8 bits."""
    node = graph.nodes[index]
    least = -dtype.largest if dtype.is_narrow else float(np.iinfo(dtype.numpy).min)
    if not isinstance(node, Unary) or node.op is not UnaryOp.CLIP:
        return graph.is_whole(index)  # which is refused for another reason
    low, high = node.params
    return least <= low <= high <= dtype.largest


# The sums of a product of integers, as they are.
_SUMS = ElementwiseGraph((Accumulator(whole=True),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A problem, the prologue on its A, and the epilogue on its result.

    The epilogue of a product of integers begins with a whole sum.

    Raises:
        InvalidProblemError: the epilogue has a softmax, whose rows lie in several threadblocks; it
            combines two matmuls although the problem is no pair, or the other way round; a graph
            loads rows of slices although the problem has no slices; or whole sums meet a problem
            of floats, floats a problem of integers, or a result is whole and its type is not int32.
    """

    problem: Problem
    epilogue: ElementwiseGraph = field(default_factory=ElementwiseGraph)
    prologue: ElementwiseGraph = field(default_factory=ElementwiseGraph)

    def __post_init__(self) -> None:
        sums = self.problem.acc_dtype
        if sums.is_whole and self.epilogue == ElementwiseGraph():
            object.__setattr__(self, "epilogue", _SUMS)
        self._check_whole()
        if self.epilogue.has_softmax:
            raise InvalidProblemError(
                f"Layer: a softmax is the next layer's prologue, not an epilogue: {self.describe()}"
            )

        if self.prologue.is_paired or self.epilogue.is_paired != is_paired(self.problem):
            raise InvalidProblemError(
                "Layer: an epilogue reads a second accumulator if and only if the problem is a "
                f"pair: {self.describe()}"
            )

        if self.has_slices and not self.problem.slice_rows:
            raise InvalidProblemError(
                f"Layer: it loads rows of slices or positions, but has none: {self.describe()}"
            )

    def _check_whole(self) -> None:
        sums, graph = self.problem.acc_dtype, self.epilogue
        if sums.is_whole != graph.is_of_integers:
            raise InvalidProblemError(
                f"Layer: sums in {sums.value} and an epilogue of others: {self.describe()}"
            )
        for store in graph.results:
            dtype = store.dtype or self.problem.out_dtype
            is_clipped = (dtype.is_whole and dtype is not DType.I32) or dtype.is_narrow
            if is_clipped and not _is_within(graph, store.x, dtype):
                raise InvalidProblemError(
                    f"Layer: a result in {dtype.value} that is not clipped to its numbers: "
                    f"{self.describe()}"
                )
            if graph.is_whole(store.x) != (dtype is DType.I32):
                raise InvalidProblemError(
                    f"Layer: a result in {dtype.value}; whole sums are stored as int32, and "
                    f"nothing else is: {self.describe()}"
                )

    @property
    def has_slices(self) -> bool:
        """Whether it loads a row per slice of D's rows, or per position in a slice."""
        return any(load.kind.is_of_slices for load in self.loads)

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads of prologue and epilogue, in the order of the kernel's arguments."""
        return (*self.prologue.loads, *self.epilogue.loads)

    @property
    def columns_of_loads(self) -> tuple[int, ...]:
        """The columns of the matrix that each load spans: A's in a matmul's prologue, else D's."""
        columns = self.problem.matrix[1]
        before = self.problem.a_shape[-1] if self.problem.has_b else columns
        return (before,) * len(self.prologue.loads) + (columns,) * len(self.epilogue.loads)

    @property
    def further(self) -> tuple[tuple[Store, DType], ...]:
        """The results besides D with their types, in the order of the kernel's arguments.

        Raises:
            InvalidProblemError: the epilogue's first result is not a full tensor.
        """
        before = () if self.problem.has_b else self.prologue.further
        return (*self.epilogue.further, *before)

    def describe(self) -> str:
        """Describe the layer in one line."""
        before = f"{self.prologue.describe()} -> " if not self.prologue.is_identity else ""
        return f"{before}{describe(self.problem)} -> {self.epilogue.describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of one kernel; several layers run back to back.

    A workload becomes canonical when it is made. A pointwise convolution becomes a matmul. A batch
    that shares every B becomes one matmul with more rows, unless an epilogue sums the rows of each
    image or of each matmul of the batch. A problem has slices only if something is loaded for each.
    From the second layer on, problems are matmuls of the rows of the layer before, as they are
    stored, or in FP32 if a prologue reads them.

    Raises:
        InvalidProblemError: the layers do not fit together, or their number is not 1 to
            `MAX_LAYERS`; the message names the layer and the numbers.
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise InvalidProblemError(
                f"Workload: {len(self.layers)} layers; it has 1 to {MAX_LAYERS}"
            )
        object.__setattr__(self, "layers", _canonical(self.layers))
        for index in range(1, len(self.layers)):
            _check_joint(self.layers[index - 1].problem, self.layers[index], index)

    @classmethod
    def of(cls, problem: Problem, epilogue: ElementwiseGraph | None = None) -> Workload:
        """Return a workload of one layer."""
        return cls(layers=(Layer(problem=problem, epilogue=epilogue or ElementwiseGraph()),))

    @property
    def first(self) -> Layer:
        """The layer that reads A."""
        return self.layers[0]

    @property
    def last(self) -> Layer:
        """The layer that writes D."""
        return self.layers[-1]

    @property
    def is_fused(self) -> bool:
        """Whether it has several layers."""
        return len(self.layers) > 1

    @property
    def single(self) -> Layer:
        """The only layer of an unfused workload.

        Raises:
            InvalidProblemError: there are several.
        """
        if self.is_fused:
            raise InvalidProblemError(f"{len(self.layers)} layers where one is wanted")
        return self.layers[0]

    @property
    def batch(self) -> int:
        """The number of matmuls of each layer."""
        return self.first.problem.batch

    @property
    def flops(self) -> int:
        """Floating-point operations of all layers; a fused multiply-add counts as two."""
        return sum(layer.problem.flops for layer in self.layers)

    @property
    def intermediate_bytes(self) -> int:
        """The bytes between layers, which unfused kernels would write and read again."""
        if not self.is_fused:
            return 0
        gemms = (layer.problem.gemm for layer in self.layers[:-1])
        return self.batch * sum(gemm.m * gemm.n * gemm.out_dtype.size_bytes for gemm in gemms)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of its extents, in order; empty if all sizes are known."""
        found: set[Symbol] = set()

        def look(extent: Dim) -> int:
            found.update(extent.symbols)
            return extent

        self.resized(look)
        return tuple(sorted(found))

    def resized(self, change: Callable[[Dim], int]) -> Workload:
        """Return the workload with each symbolic extent replaced by `change(extent)`."""
        layers = tuple(_of(each, with_extents(each.problem, change)) for each in self.layers)
        return self if layers == self.layers else Workload(layers=layers)

    def at(self, values: Mapping[Symbol, int]) -> Workload:
        """Return the workload with these values, or extents of other symbols, for its symbols."""
        return self.resized(lambda extent: extent.of(values)) if values else self

    def sliced(self, rows: int) -> Workload:
        """Return the workload with slices of `rows` rows if it has slices; images stay slices."""
        layers = (_in_slices(each, each.problem, rows) for each in self.layers)
        return Workload(layers=tuple(layers))

    @property
    def greatest(self) -> Workload:
        """The workload with the greatest value of each symbol."""
        return self.resized(greatest)

    @property
    def corners(self) -> tuple[Workload, ...]:
        """The workloads with each symbol's least or greatest value, in all combinations."""
        symbols = self.symbols
        ends = (sorted({symbol.low, symbol.high}) for symbol in symbols)
        return tuple(self.at(dict(zip(symbols, each, strict=True))) for each in product(*ends))

    @property
    def typical(self) -> Workload:
        """The workload in the middle of its symbols' ranges."""
        return self.resized(typical)

    @property
    def plain(self) -> Workload:
        """The anchors alone, without prologues and epilogues; a pair becomes one matmul."""
        problems = (_unpaired(layer.problem) for layer in self.layers)
        return Workload(layers=tuple(Layer(problem=each) for each in problems))

    @property
    def short(self) -> str:
        """A short name for people: "gemm 64x10x128"."""
        problems = "; ".join(layer.problem.short for layer in self.layers)
        return f"one kernel: {problems}" if self.is_fused else problems

    @property
    def epilogues(self) -> str:
        """The epilogues of all layers, for people."""
        return "; ".join(layer.epilogue.describe() for layer in self.layers)

    def describe(self) -> str:
        """Describe the workload in one line: `Gemm(...) -> relu(acc); Gemm(...) -> acc`."""
        return "; ".join(layer.describe() for layer in self.layers)


def _unpaired(problem: Problem) -> Problem:
    """Return a problem without an epilogue: of a pair one matmul, of integers their sums."""
    single = problem.unpaired if isinstance(problem, Gemm) else problem
    changed: Any = single
    is_sum = single.acc_dtype.is_whole
    plain: Problem = replace(changed, out_dtype=single.acc_dtype) if is_sum else single
    return plain


def _canonical(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    # The batch is folded in all layers or in none: otherwise the rows of two layers would differ.
    is_folded = all(
        isinstance(layer.problem, Gemm) and layer.problem.is_foldable and _keeps_stores(layer)
        for layer in layers
        if layer.problem.batch > 1
    )
    return tuple(
        _in_slices(layer, layer.problem.canonical)
        if (is_folded or layer.problem.batch == 1) and _keeps_stores(layer)
        else layer
        for layer in layers
    )


def _in_slices(layer: Layer, problem: Problem, rows: int = 0) -> Layer:
    """Return `layer` with the canonical `problem`, in slices of `rows` rows if it loads for slices;
    0 rows mean the slices that the layer has.
    """
    own = layer.problem.slice_rows
    return _of(layer, problem.in_slices((rows or own) if layer.has_slices else 0))


def _of(layer: Layer, problem: Problem) -> Layer:
    return layer if problem is layer.problem else replace(layer, problem=problem)


def _keeps_stores(layer: Layer) -> bool:
    """Return whether each reduction stores as many numbers for the canonical problem."""
    problem = layer.problem
    return problem.canonical is problem or all(
        prod(store_shape(problem, store)) == prod(store_shape(problem.canonical, store))
        for store in layer.epilogue.results
        if store.reduction
    )


def _check_joint(before: Problem, layer: Layer, index: int) -> None:
    """Check that `layer`, the layer number `index`, multiplies the result of the layer before."""
    then = layer.problem
    if not isinstance(then, Gemm):
        raise InvalidProblemError(
            f"Workload: layer {index} is {describe(then)}; from the second layer on, a layer is a "
            "matrix product or a 1x1 convolution of stride 1 without padding"
        )
    if in_groups(before) is not None:
        raise InvalidProblemError(
            f"Workload: layer {index - 1} is {describe(before)}; its rows are in groups, and no "
            "layer follows it"
        )
    given = {then.in_dtype} if layer.prologue.is_identity else {then.in_dtype, DType.F32}
    if before.out_dtype not in given:
        raise InvalidProblemError(
            f"Workload: layer {index - 1} gives {before.out_dtype.value}; layer {index} multiplies "
            f"{then.in_dtype.value}"
        )
    wanted = {"m": before.gemm.m, "k": before.gemm.n, "batch": before.batch}
    for name, value in wanted.items():
        if getattr(then, name) != value:
            raise InvalidProblemError(
                f"Workload: layer {index} has {name}={getattr(then, name)}; the output of layer "
                f"{index - 1} makes it {value}"
            )
    if not then.a_batched:
        raise InvalidProblemError(
            f"Workload: layer {index} shares A between the products of the batch, but the layer "
            "before it has a result for each"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The division of fusible layers into kernels.

    `counts` has the number of layers of each kernel. `reasons` has one text for each boundary of
    two layers: why it is cut, or why it is not.
    """

    counts: tuple[int, ...]
    reasons: tuple[str, ...]


# Divides fusible layers into kernels.
Cutter: TypeAlias = Callable[[tuple[Layer, ...]], Cut]


def separate(layers: tuple[Layer, ...]) -> Cut:
    """Return a cut with one kernel per layer."""
    return Cut(counts=(1,) * len(layers), reasons=("",) * (len(layers) - 1))
