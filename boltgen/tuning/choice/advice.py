"""Find changes of a model that cost almost no time: Bolt's codesign principles as a tool.

For each layer: channels that are a multiple of eight, another activation, and an appended 1x1
convolution. Times before and after a change are measured if one device has both, else predicted.
Source: Xing et al., Bolt, MLSys 2022, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.dtypes import VECTOR_BYTES, DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Unary
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.problem import has_groups
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.fusion import measured_us, predicted_us
from boltgen.tuning.choice.select import Measurements, ModelCosts

# Bolt's section 4.3 tries these in place of ReLU; none costs more than 8 % there.
_ACTIVATIONS = (UnaryOp.HARDSWISH, UnaryOp.GELU_ERF, UnaryOp.SILU, UnaryOp.SOFTPLUS)
_REPLACEABLE = frozenset({UnaryOp.RELU, *_ACTIVATIONS})
# A change is reported if the layer becomes at most this much slower, as much as Bolt's RepVGG with
# the slowest of these activations (table 4).
NEARLY_FREE = 0.08
# A 1x1 convolution doubles the layers: it makes Bolt's RepVGGAug 15.3 % slower (section 4.3).
NEARLY_FREE_LAYER = 0.16


class Change(Enum):
    """The kinds of changes that are tried."""

    CHANNELS = "aligned channels"
    ACTIVATION = "another activation"
    POINTWISE = "a 1x1 convolution behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLayer:
    """A layer of a model with its name for people."""

    name: str
    layer: Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of `layer` in words, and the times before and after it, both of one `origin`."""

    layer: NamedLayer
    change: Change
    what: str
    before_us: float
    after_us: float
    origin: str

    @property
    def cost(self) -> float:
        """The relative increase of the layer's time; negative if the layer becomes faster."""
        return self.after_us / self.before_us - 1.0


def advise(
    layers: Sequence[NamedLayer], arch: Arch, measurements: Sequence[Measurements] = ()
) -> tuple[Advice, ...]:
    """Return all changes that are nearly free, layer by layer.

    The times come from the first of `measurements` that has both times of a change, else from the
    analytical model.

    Raises:
        NoLegalConfigError: no kernel computes a layer.
    """
    found: list[Advice] = []
    for layer in layers:
        before = Workload(layers=(layer.layer,))
        for change, what, after in _variants(layer.layer):
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
    before: Workload, after: Workload, arch: Arch, measurements: Sequence[Measurements]
) -> tuple[float, float, str] | None:
    """Return both times and their origin; None if no kernel computes the changed layer."""
    for known in measurements:
        before_us, after_us = measured_us(known, before), measured_us(known, after)
        if before_us is not None and after_us is not None:
            return before_us, after_us, known.origin
    before_us = predicted_us(before, arch)
    try:
        return before_us, predicted_us(after, arch), ModelCosts(arch).origin
    except NoLegalConfigError:
        return None


def _most(change: Change) -> float:
    return NEARLY_FREE_LAYER if change is Change.POINTWISE else NEARLY_FREE


def _variants(layer: Layer) -> Iterator[tuple[Change, str, Workload]]:
    """Yield each change of a layer, in words, and the workload after the change."""
    problem = layer.problem
    if not problem.has_b:
        return
    extents = {"channels": problem.a_shape[-1], "filters": problem.d_shape[-1]}
    aligned = {name: _up(extent, problem.in_dtype) for name, extent in extents.items()}
    if has_groups(problem):  # each channel keeps its filters
        channels, filters = extents.values()
        aligned["filters"] = filters * aligned["channels"] // channels
    if aligned != extents:
        what = ", ".join(
            f"{extents[name]} {name} to {wide}"
            for name, wide in aligned.items()
            if wide != extents[name]
        )
        wider = replace(layer, problem=problem.resized(**aligned))
        yield Change.CHANNELS, what, Workload(layers=(wider,))
    for op, epilogue in _activations(layer.epilogue):
        yield Change.ACTIVATION, op.value, Workload(layers=(replace(layer, epilogue=epilogue),))
    if not problem.canonical.is_matrix:
        filters = extents["filters"]
        what = f"{filters} to {filters} channels, in the same kernel"
        yield Change.POINTWISE, what, _with_pointwise(layer)


def _up(extent: int, dtype: DType) -> int:
    """Round up to a multiple of a vector's elements."""
    vector = VECTOR_BYTES // dtype.size_bytes
    return -(-extent // vector) * vector


def _activations(epilogue: ElementwiseGraph) -> Iterator[tuple[UnaryOp, ElementwiseGraph]]:
    """Yield the epilogue with each other last activation."""
    last = epilogue.nodes[-1]
    if not isinstance(last, Unary) or last.op not in _REPLACEABLE:
        return
    for op in _ACTIVATIONS:
        if op is not last.op:
            yield op, replace(epilogue, nodes=(*epilogue.nodes[:-1], Unary(op, last.x)))


def _with_pointwise(layer: Layer) -> Workload:
    """Append a 1x1 convolution with as many filters, bias and ReLU, in the same kernel."""
    builder = ElementwiseBuilder()
    bias = builder.load(LoadKind.ROW, layer.problem.in_dtype)
    builder.unary(UnaryOp.RELU, builder.binary(BinaryOp.ADD, 0, bias))
    gemm = replace(layer.problem.gemm, out_dtype=layer.problem.in_dtype)
    # B is stored like the filters of a 1x1 convolution.
    behind = replace(gemm, k=gemm.n, b_layout=Layout.COLUMN)
    rounded: Any = layer.problem
    first = replace(layer, problem=replace(rounded, out_dtype=layer.problem.in_dtype))
    return Workload(layers=(first, Layer(problem=behind, epilogue=builder.build())))
