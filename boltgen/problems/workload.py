"""Workloads: the computation of one kernel, with all fused operators.

Arrow: like `problem`. One layer, or several back to back: each one's output is then the next one's
A, rounded to the type that it multiplies, and stays on chip. Source: Xing et al., Bolt, MLSys 2022,
section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import TypeAlias

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph, Load, Store
from boltgen.ir.extent import Dim, Symbol, greatest, typical
from boltgen.problems.gemm.problem import Gemm, is_paired
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.problem import Problem, describe, with_extents
from boltgen.problems.results import store_shape

# BOLTGEN_MAX_LAYERS in templates/include/boltgen/abi.h.
MAX_LAYERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A problem, what is done to its A before, and to its product after.

    Raises:
        InvalidProblemError: the epilogue has a softmax, whose rows lie in several threadblocks; or
            it combines two products of a problem that is none of a pair, or the other way round; or
            a graph has rows of slices of a problem whose rows are in none.
    """

    problem: Problem
    epilogue: ElementwiseGraph = field(default_factory=ElementwiseGraph)
    prologue: ElementwiseGraph = field(default_factory=ElementwiseGraph)

    def __post_init__(self) -> None:
        if self.epilogue.has_softmax:
            raise InvalidProblemError(
                f"Layer: a softmax is the next layer's prologue, not an epilogue: {self.describe()}"
            )

        if self.prologue.is_paired or self.epilogue.is_paired != is_paired(self.problem):
            raise InvalidProblemError(
                "Layer: a second accumulator is of an epilogue of a pair of products, and each "
                f"pair has one: {self.describe()}"
            )

        if self.has_slices and not self.problem.slice_rows:
            raise InvalidProblemError(
                f"Layer: rows of slices or positions, and its rows are in none: {self.describe()}"
            )

    @property
    def has_slices(self) -> bool:
        """Whether it loads a row for each slice of D's rows, or for each position in them."""
        return any(load.kind.is_of_slices for load in self.loads)

    @property
    def loads(self) -> tuple[Load, ...]:
        """The operands of both graphs, in the order in which a kernel takes them."""
        return (*self.prologue.loads, *self.epilogue.loads)

    @property
    def columns_of_loads(self) -> tuple[int, ...]:
        """Columns of the matrix that each load spans: A's before a product, else D's."""
        columns = self.problem.matrix[1]
        before = self.problem.a_shape[-1] if self.problem.is_product else columns
        return (before,) * len(self.prologue.loads) + (columns,) * len(self.epilogue.loads)

    @property
    def further(self) -> tuple[tuple[Store, DType], ...]:
        """The results besides D with their types, in the order in which a kernel takes them.

        Raises:
            InvalidProblemError: a result is no full tensor.
        """
        before = () if self.problem.is_product else self.prologue.further
        return (*self.epilogue.further, *before)

    def describe(self) -> str:
        """Name the workload in a line."""
        before = f"{self.prologue.describe()} -> " if not self.prologue.is_identity else ""
        return f"{before}{describe(self.problem)} -> {self.epilogue.describe()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of one kernel; several layers run back to back.

    A workload is canonical when it is made: a pointwise convolution is a matrix product, and a
    batch that shares every B is one product of more rows, unless an epilogue sums the rows of each
    image, or of each product of the batch; rows are in slices where something is loaded for each.
    From the second layer on, problems are
    matrix products of the rows before, as they are stored, or in FP32 where a prologue takes them.

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
        """One layer."""
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
        """Whether it is several layers."""
        return len(self.layers) > 1

    @property
    def single(self) -> Layer:
        """The only layer.

        Raises:
            InvalidProblemError: there are several.
        """
        if self.is_fused:
            raise InvalidProblemError(f"{len(self.layers)} layers where one is wanted")
        return self.layers[0]

    @property
    def batch(self) -> int:
        """The number of products of each layer."""
        return self.first.problem.batch

    @property
    def flops(self) -> int:
        """Floating-point operations of all layers; a fused multiply-add counts as two."""
        return sum(layer.problem.flops for layer in self.layers)

    @property
    def intermediate_bytes(self) -> int:
        """The bytes between layers, which unfused kernels write and read again."""
        if not self.is_fused:
            return 0
        gemms = (layer.problem.gemm for layer in self.layers[:-1])
        return self.batch * sum(gemm.m * gemm.n * gemm.out_dtype.size_bytes for gemm in gemms)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of its extents, in order; empty where all sizes are known."""
        found: set[Symbol] = set()

        def look(extent: Dim) -> int:
            found.update(extent.symbols)
            return extent

        self.resized(look)
        return tuple(sorted(found))

    def resized(self, change: Callable[[Dim], int]) -> Workload:
        """It with each of its symbolic extents changed."""
        layers = tuple(_of(each, with_extents(each.problem, change)) for each in self.layers)
        return self if layers == self.layers else Workload(layers=layers)

    def at(self, values: Mapping[Symbol, int]) -> Workload:
        """It where its symbols have these values, which may be extents of other symbols."""
        return self.resized(lambda extent: extent.of(values)) if values else self

    def sliced(self, rows: int) -> Workload:
        """Return it with slices of so many rows, where rows are in slices; images stay slices."""
        layers = (_in_slices(each, each.problem, rows) for each in self.layers)
        return Workload(layers=tuple(layers))

    @property
    def greatest(self) -> Workload:
        """It where each symbol has its greatest value."""
        return self.resized(greatest)

    @property
    def corners(self) -> tuple[Workload, ...]:
        """It where each symbol has its least value or its greatest, in all combinations."""
        symbols = self.symbols
        ends = (sorted({symbol.low, symbol.high}) for symbol in symbols)
        return tuple(self.at(dict(zip(symbols, each, strict=True))) for each in product(*ends))

    @property
    def typical(self) -> Workload:
        """It in the middle of its symbols' ranges."""
        return self.resized(typical)

    @property
    def plain(self) -> Workload:
        """The products alone, each stored as it is, a pair as one product."""
        problems = (layer.problem for layer in self.layers)
        return Workload(
            layers=tuple(
                Layer(problem=each.unpaired if isinstance(each, Gemm) else each)
                for each in problems
            )
        )

    @property
    def short(self) -> str:
        """Enough for people to know it by: "gemm 64x10x128"."""
        problems = "; ".join(layer.problem.short for layer in self.layers)
        return f"one kernel: {problems}" if self.is_fused else problems

    @property
    def epilogues(self) -> str:
        """The epilogue of each layer, for people."""
        return "; ".join(layer.epilogue.describe() for layer in self.layers)

    def describe(self) -> str:
        """One line for people: `Gemm(...) -> relu(acc); Gemm(...) -> acc`."""
        return "; ".join(layer.describe() for layer in self.layers)


def _canonical(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    # A batch is folded in all layers or in none: otherwise the rows of two would differ.
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
    """Return `layer` of the canonical `problem` with slices for its loads: of so many `rows`, or
    for 0 of as many as they have.
    """
    own = layer.problem.slice_rows
    return _of(layer, problem.in_slices((rows or own) if layer.has_slices else 0))


def _of(layer: Layer, problem: Problem) -> Layer:
    return layer if problem is layer.problem else replace(layer, problem=problem)


def _keeps_stores(layer: Layer) -> bool:
    """Whether the epilogue stores as many numbers of the canonical problem."""
    problem = layer.problem
    return problem.canonical is problem or all(
        prod(store_shape(problem, store)) == prod(store_shape(problem.canonical, store))
        for store in layer.epilogue.results
        if store.reduction
    )


def _check_joint(before: Problem, layer: Layer, index: int) -> None:
    """Check that `layer`, the one of that index, multiplies what the layer before it gives."""
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
            f"Workload: layer {index - 1} gives {before.out_dtype.value}; what the next layer "
            f"multiplies is {then.in_dtype.value}"
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
    """The cut of layers that could be one kernel into several.

    `counts` has the number of layers of each kernel; `reasons` says of each joint between layers
    why it is cut, or is not.
    """

    counts: tuple[int, ...]
    reasons: tuple[str, ...]


# Chooses the cut of layers that could be one kernel.
Cutter: TypeAlias = Callable[[tuple[Layer, ...]], Cut]


def separate(layers: tuple[Layer, ...]) -> Cut:
    """A kernel for each layer."""
    return Cut(counts=(1,) * len(layers), reasons=("",) * (len(layers) - 1))
