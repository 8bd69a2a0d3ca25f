"""Chains: products computed by one kernel, each layer's output the next one's A.

Arrow: like `problem`, for back-to-back fusion. What lies between two layers is rounded to FP16 and
stays on chip. Source: Xing et al., Bolt, MLSys 2022, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem, describe

# BOLTGEN_MAX_LAYERS in templates/include/boltgen/abi.h.
MAX_LAYERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLayer:
    """One product of a chain, and what is done to it."""

    problem: Problem
    epilogue: ElementwiseGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmChain:
    """Matrix products of the same rows: layer i+1's A is layer i's D.

    All layers are `Gemm`, or all `BatchedGemm` of one batch.

    Raises:
        InvalidProblemError: the layers do not fit together, or their number is not 2 to
            `MAX_LAYERS`; the message names the layer and the numbers.
    """

    layers: tuple[ChainLayer, ...]

    def __post_init__(self) -> None:
        kind = type(self.layers[0].problem) if self.layers else Gemm
        _check_chain(self, kind if kind is BatchedGemm else Gemm)
        for index in range(1, len(self.layers)):
            before, then = (layer.problem for layer in self.layers[index - 1 : index + 1])
            if isinstance(before, Conv2d) or isinstance(then, Conv2d):
                raise AssertionError("_check_chain let a convolution pass")
            wanted = {"m": before.m, "k": before.n}
            if isinstance(before, BatchedGemm):
                wanted["batch"] = before.batch
            _check_fields("GemmChain", index, then, wanted)
            if isinstance(then, BatchedGemm) and not then.a_batched:
                raise InvalidProblemError(
                    f"GemmChain: layer {index} shares A between the products of the batch, but "
                    "the layer before it has a result for each"
                )

    @property
    def flops(self) -> int:
        """Floating-point operations of all layers; a fused multiply-add counts as two."""
        return sum(layer.problem.flops for layer in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dChain:
    """A convolution, then 1x1 convolutions of stride 1 without padding.

    Raises:
        InvalidProblemError: the layers do not fit together, a later one is no 1x1 convolution of
            stride 1, or their number is not 2 to `MAX_LAYERS`.
    """

    layers: tuple[ChainLayer, ...]

    def __post_init__(self) -> None:
        _check_chain(self, Conv2d)
        for index in range(1, len(self.layers)):
            before, then = self.convolution(index - 1), self.convolution(index)
            wanted = {"n": before.n, "h": before.p, "w": before.q, "c": before.k}
            _check_fields("Conv2dChain", index, then, wanted)
            if not then.is_pointwise or then.dilation != (1, 1):
                raise InvalidProblemError(
                    f"Conv2dChain: layer {index} has a {then.r}x{then.s} filter, stride "
                    f"{then.stride}, padding {then.padding} and dilation {then.dilation}; from the "
                    "second layer on, filters are 1x1 with stride 1, no padding, no dilation"
                )

    @property
    def flops(self) -> int:
        """Floating-point operations of all layers; a fused multiply-add counts as two."""
        return sum(layer.problem.flops for layer in self.layers)

    def convolution(self, layer: int) -> Conv2d:
        """The problem of a layer."""
        problem = self.layers[layer].problem
        if not isinstance(problem, Conv2d):
            raise AssertionError("the layers of a Conv2dChain are convolutions")
        return problem


Chain: TypeAlias = GemmChain | Conv2dChain
# What one kernel computes. A chain has its layers' epilogues in it.
AnyProblem: TypeAlias = Problem | Chain


def chain_of(layers: tuple[ChainLayer, ...]) -> Chain:
    """The chain of `layers`, of convolutions where the first one is.

    Raises:
        InvalidProblemError: they are no chain.
    """
    is_convolution = bool(layers) and isinstance(layers[0].problem, Conv2d)
    return Conv2dChain(layers=layers) if is_convolution else GemmChain(layers=layers)


def _check_chain(chain: Chain, kind: type[Problem]) -> None:
    name, count = type(chain).__name__, len(chain.layers)
    if not 2 <= count <= MAX_LAYERS:
        raise InvalidProblemError(f"{name}: {count} layers; a chain has 2 to {MAX_LAYERS}")
    for index, layer in enumerate(chain.layers):
        if not isinstance(layer.problem, kind):
            raise InvalidProblemError(
                f"{name}: layer {index} is a {type(layer.problem).__name__}; this chain is of "
                f"{kind.__name__} throughout"
            )
        if index + 1 < count and layer.problem.out_dtype is not DType.F16:
            raise InvalidProblemError(
                f"{name}: layer {index} gives {layer.problem.out_dtype.value}; what the next layer "
                "multiplies is float16"
            )


def _check_fields(name: str, index: int, problem: Problem, wanted: dict[str, int]) -> None:
    for field, value in wanted.items():
        actual = getattr(problem, field)
        if actual != value:
            raise InvalidProblemError(
                f"{name}: layer {index} has {field}={actual}; the output of layer {index - 1} "
                f"makes it {value}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where layers that could be one chain are cut into kernels.

    `counts` has the number of layers of each kernel; `reasons` says of each joint between layers
    why it is cut, or is not.
    """

    counts: tuple[int, ...]
    reasons: tuple[str, ...]


# Chooses the cut of layers that could be one chain.
Cutter: TypeAlias = Callable[[tuple[ChainLayer, ...]], Cut]


def separate(layers: tuple[ChainLayer, ...]) -> Cut:
    """A kernel for each layer."""
    return Cut(counts=(1,) * len(layers), reasons=("",) * (len(layers) - 1))


def as_gemm_chain(chain: Conv2dChain) -> GemmChain:
    """The chain of matrix products that computes the same.

    Raises:
        InvalidProblemError: the first layer is not pointwise: its A is no matrix in memory.
    """
    if not chain.convolution(0).is_pointwise:
        raise InvalidProblemError(
            f"{describe(chain.convolution(0))} is no plain matrix product: it is not 1x1 with "
            "stride 1 and no padding"
        )
    return GemmChain(
        layers=tuple(
            ChainLayer(problem=implicit_gemm(layer), epilogue=layer.epilogue)
            for layer in chain.layers
        )
    )


def plain(layers: tuple[ChainLayer, ...]) -> tuple[ChainLayer, ...]:
    """`layers` as they are without neighbours: no batch where all of it share every B."""
    found = []
    for layer in layers:
        product = layer.problem.plain if isinstance(layer.problem, BatchedGemm) else None
        if product is None:
            return layers
        found.append(replace(layer, problem=product))
    return tuple(found)


def execution_chain(chain: Chain) -> Chain:
    """What really runs for `chain`: one whose first convolution is pointwise is plain products."""
    if isinstance(chain, Conv2dChain) and chain.convolution(0).is_pointwise:
        return as_gemm_chain(chain)
    return chain


def implicit_gemm(layer: ChainLayer) -> Gemm:
    """The product that a layer computes, of one slice of a batch."""
    match layer.problem:
        case Conv2d():
            return layer.problem.implicit_gemm
        case BatchedGemm():
            return layer.problem.gemm
        case Gemm():
            return layer.problem


def batch_of(chain: Chain) -> int:
    """How many products each layer stands for."""
    first = chain.layers[0].problem
    return first.batch if isinstance(first, BatchedGemm) else 1


def intermediate_bytes(chain: Chain) -> int:
    """Bytes of all that lies between layers: what unfused kernels write, and read again."""
    return batch_of(chain) * sum(
        gemm.m * gemm.n * gemm.out_dtype.size_bytes
        for gemm in map(implicit_gemm, chain.layers[:-1])
    )


def layers_of(problem: AnyProblem, epilogue: ElementwiseGraph) -> tuple[ChainLayer, ...]:
    """The products that one kernel computes: a chain's, or the single one."""
    if isinstance(problem, (GemmChain, Conv2dChain)):
        return problem.layers
    return (ChainLayer(problem=problem, epilogue=epilogue),)


def describe_any(problem: AnyProblem) -> str:
    """One line for people, of a single problem or of a chain."""
    if isinstance(problem, (GemmChain, Conv2dChain)):
        return describe_chain(problem)
    return describe(problem)


def describe_chain(chain: Chain) -> str:
    """One line for people: `GemmChain(Gemm(...) -> relu(acc); Gemm(...) -> acc)`."""
    layers = "; ".join(
        f"{describe(layer.problem)} -> {layer.epilogue.describe()}" for layer in chain.layers
    )
    return f"{type(chain).__name__}({layers})"
