"""Where a model's author gets something nearly for free: Bolt's codesign principles, as a tool.

For each layer: channels of a multiple of eight, another activation, a 1x1 convolution behind; with
the predicted times before and after. Source: Xing et al., Bolt, MLSys 2022, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import ChainLayer, chain_of, execution_chain
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.epilogue import BinaryOp, Epilogue, EpilogueBuilder, LoadKind, Unary, UnaryOp
from boltgen.ir.problem import Conv2d, Problem
from boltgen.space.kernel import execution_problem
from boltgen.tune.chain_model import best_chain_config
from boltgen.tune.select import ModelCosts

# What Bolt's section 4.3 tries in the place of ReLU; none is seen to cost more than 8 % there.
_ACTIVATIONS = (UnaryOp.HARDSWISH, UnaryOp.GELU_ERF, UnaryOp.SILU, UnaryOp.SOFTPLUS)
_REPLACEABLE = frozenset({UnaryOp.RELU, *_ACTIVATIONS})
# A change is worth telling where the layer takes at most this much longer: as much as Bolt's
# RepVGG loses by the slowest of its activations (table 4).
NEARLY_FREE = 0.08
# A 1x1 convolution doubles the layers: Bolt's RepVGGAug loses 15.3 % by it (section 4.3).
NEARLY_FREE_LAYER = 0.16


class Change(Enum):
    """What could be changed."""

    CHANNELS = "aligned channels"
    ACTIVATION = "another activation"
    POINTWISE = "a 1x1 convolution behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of a model, under the name that people know it by."""

    name: str
    problem: Problem
    epilogue: Epilogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of `layer`, in words, and the layer's predicted time before and after it."""

    layer: Layer
    change: Change
    what: str
    before_us: float
    after_us: float

    @property
    def cost(self) -> float:
        """The share by which the layer becomes slower; negative where it becomes faster."""
        return self.after_us / self.before_us - 1.0


def advise(layers: Sequence[Layer], arch: Arch) -> tuple[Advice, ...]:
    """All changes that are nearly free by the analytical model, layer by layer.

    Raises:
        NoLegalConfigError: no kernel computes one of the layers.
    """
    source = ModelCosts(arch)

    def time_us(problem: Problem, epilogue: Epilogue) -> float:
        costs = source.costs(execution_problem(problem), epilogue).by_config.values()
        return min(cost for cost in costs if isinstance(cost, float))

    found: list[Advice] = []
    for layer in layers:
        before_us = time_us(layer.problem, layer.epilogue)
        for change, what, problem, epilogue in _variants(layer):
            after_us = time_us(problem, epilogue)
            found.append(
                Advice(
                    layer=layer, change=change, what=what, before_us=before_us, after_us=after_us
                )
            )
        found += _pointwise(layer, arch, before_us)
    return tuple(advice for advice in found if advice.cost <= _most(advice.change))


def _most(change: Change) -> float:
    return NEARLY_FREE_LAYER if change is Change.POINTWISE else NEARLY_FREE


def _variants(layer: Layer) -> Iterator[tuple[Change, str, Problem, Epilogue]]:
    aligned = _aligned(layer.problem)
    if aligned != layer.problem:
        what = ", ".join(
            f"{name} {getattr(layer.problem, name)} to {getattr(aligned, name)}"
            for name in ("c", "k", "n")
            if getattr(layer.problem, name, None) != getattr(aligned, name, None)
        )
        yield Change.CHANNELS, what, aligned, layer.epilogue
    for op, epilogue in _activations(layer.epilogue):
        yield Change.ACTIVATION, op.value, layer.problem, epilogue


def _aligned(problem: Problem) -> Problem:
    """The problem with channels, or rows of weights, of whole vectors."""
    vector = VECTOR_BYTES // DType.F16.size_bytes

    def up(extent: int) -> int:
        return -(-extent // vector) * vector

    if isinstance(problem, Conv2d):
        return replace(problem, c=up(problem.c), k=up(problem.k))
    return replace(problem, n=up(problem.n), k=up(problem.k))


def _activations(epilogue: Epilogue) -> Iterator[tuple[UnaryOp, Epilogue]]:
    """The epilogue with another last activation."""
    last = epilogue.nodes[-1]
    if not isinstance(last, Unary) or last.op not in _REPLACEABLE:
        return
    for op in _ACTIVATIONS:
        if op is not last.op:
            yield op, Epilogue((*epilogue.nodes[:-1], Unary(op, last.x)))


def _pointwise(layer: Layer, arch: Arch, before_us: float) -> Iterator[Advice]:
    """The layer with one of as many columns behind it in the same kernel, with bias and ReLU."""
    problem = layer.problem
    if not isinstance(problem, Conv2d) or problem.is_pointwise:
        return
    builder = EpilogueBuilder()
    builder.unary(UnaryOp.RELU, builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.ROW)))
    behind = Conv2d(
        n=problem.n,
        h=problem.p,
        w=problem.q,
        c=problem.k,
        k=problem.k,
        r=1,
        s=1,
        acc_dtype=problem.acc_dtype,
    )
    first = ChainLayer(problem=replace(problem, out_dtype=DType.F16), epilogue=layer.epilogue)
    second = ChainLayer(problem=behind, epilogue=builder.build())
    try:
        _, predicted = best_chain_config(execution_chain(chain_of((first, second))), arch)
    except NoLegalConfigError:
        return
    yield Advice(
        layer=layer,
        change=Change.POINTWISE,
        what=f"{problem.k} to {problem.k} channels, in the same kernel",
        before_us=before_us,
        after_us=predicted.time_us,
    )
