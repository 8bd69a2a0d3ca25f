"""Where a model's author gets something nearly for free: Bolt's codesign principles, as a tool.

For each layer: channels of a multiple of eight, another activation, a 1x1 convolution behind; with
the times before and after, measured where one device has both, else predicted.

Source: Xing et al., Bolt, MLSys 2022, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from boltgen.arch import Arch
from boltgen.ir.chain import ChainLayer
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseBuilder, ElementwiseGraph, LoadKind, Unary
from boltgen.ir.functions import UnaryOp
from boltgen.ir.problem import Conv2d, Problem
from boltgen.tune.chains import measured_us, predicted_us
from boltgen.tune.select import MODEL_ORIGIN, Measurements

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
    epilogue: ElementwiseGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of `layer`, in words, and its time before and after that, both of one `origin`."""

    layer: Layer
    change: Change
    what: str
    before_us: float
    after_us: float
    origin: str

    @property
    def cost(self) -> float:
        """The share by which the layer becomes slower; negative where it becomes faster."""
        return self.after_us / self.before_us - 1.0


def advise(
    layers: Sequence[Layer], arch: Arch, measurements: Sequence[Measurements] = ()
) -> tuple[Advice, ...]:
    """All changes that are nearly free, layer by layer.

    Times are those of the first of `measurements` that has them before and after a change, else
    the analytical model's.

    Raises:
        NoLegalConfigError: no kernel computes one of the layers.
    """
    found: list[Advice] = []
    for layer in layers:
        before = (ChainLayer(problem=layer.problem, epilogue=layer.epilogue),)
        for change, what, after in _variants(layer):
            times = _compared(before, after, arch, measurements)
            if times is not None:
                before_us, after_us, origin = times
                found.append(
                    Advice(
                        layer=layer,
                        change=change,
                        what=what,
                        before_us=before_us,
                        after_us=after_us,
                        origin=origin,
                    )
                )
    return tuple(advice for advice in found if advice.cost <= _most(advice.change))


def _compared(
    before: tuple[ChainLayer, ...],
    after: tuple[ChainLayer, ...],
    arch: Arch,
    measurements: Sequence[Measurements],
) -> tuple[float, float, str] | None:
    """Times of one origin, and which; None where what comes after is no kernel."""
    for known in measurements:
        before_us, after_us = measured_us(known, before), measured_us(known, after)
        if before_us is not None and after_us is not None:
            return before_us, after_us, known.origin
    predicted, changed = predicted_us(before, arch), predicted_us(after, arch)
    if isinstance(predicted, float) and isinstance(changed, float):
        return predicted, changed, MODEL_ORIGIN
    return None


def _most(change: Change) -> float:
    return NEARLY_FREE_LAYER if change is Change.POINTWISE else NEARLY_FREE


def _variants(layer: Layer) -> Iterator[tuple[Change, str, tuple[ChainLayer, ...]]]:
    """Each change of a layer, in words, and what is then computed in its place."""
    aligned = _aligned(layer.problem)
    if aligned != layer.problem:
        what = ", ".join(
            f"{name} {getattr(layer.problem, name)} to {getattr(aligned, name)}"
            for name in ("c", "k", "n")
            if getattr(layer.problem, name, None) != getattr(aligned, name, None)
        )
        yield Change.CHANNELS, what, (ChainLayer(problem=aligned, epilogue=layer.epilogue),)
    for op, epilogue in _activations(layer.epilogue):
        changed = ChainLayer(problem=layer.problem, epilogue=epilogue)
        yield Change.ACTIVATION, op.value, (changed,)
    if isinstance(layer.problem, Conv2d) and not layer.problem.is_pointwise:
        what = f"{layer.problem.k} to {layer.problem.k} channels, in the same kernel"
        yield Change.POINTWISE, what, _with_pointwise(layer.problem, layer.epilogue)


def _aligned(problem: Problem) -> Problem:
    """The problem with channels, or rows of weights, of whole vectors."""
    vector = VECTOR_BYTES // DType.F16.size_bytes

    def up(extent: int) -> int:
        return -(-extent // vector) * vector

    if isinstance(problem, Conv2d):
        return replace(problem, c=up(problem.c), k=up(problem.k))
    return replace(problem, n=up(problem.n), k=up(problem.k))


def _activations(epilogue: ElementwiseGraph) -> Iterator[tuple[UnaryOp, ElementwiseGraph]]:
    """The epilogue with another last activation."""
    last = epilogue.nodes[-1]
    if not isinstance(last, Unary) or last.op not in _REPLACEABLE:
        return
    for op in _ACTIVATIONS:
        if op is not last.op:
            yield op, ElementwiseGraph((*epilogue.nodes[:-1], Unary(op, last.x)))


def _with_pointwise(problem: Conv2d, epilogue: ElementwiseGraph) -> tuple[ChainLayer, ...]:
    """The layer, and one of as many columns behind it in the same kernel, with bias and ReLU."""
    builder = ElementwiseBuilder()
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
    return (
        ChainLayer(problem=replace(problem, out_dtype=DType.F16), epilogue=epilogue),
        ChainLayer(problem=behind, epilogue=builder.build()),
    )
