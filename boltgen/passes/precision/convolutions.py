"""Normalise convolutions of rows, and transposed ones, by writing them as convolutions of images.

A transposed convolution with a stride is as many convolutions as the stride has phases, each with
every stride-th tap of the filter. They are one convolution here, with the filters of all phases,
and a move that puts the phases beside each other:

    (N, H, W, C) -> convolution -> (N, H', W', s s K) -> (N, s H', s W', K) -> the wanted pixels

No zeros between pixels are multiplied. A filter that is no multiple of the stride is filled up
with taps of zero: an infinite pixel makes NaN of neighbours that such a tap reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from boltgen.graph.attributes import Convolution, Slice, TransposedConvolution
from boltgen.graph.graph import Array, GraphBuilder
from boltgen.passes.precision.call import Declined, Item, OperatorCall, Rule
from boltgen.passes.precision.movement import viewed
from boltgen.passes.precision.products import conv2d, pending, with_padding
from boltgen.passes.precision.reach import Reach
from boltgen.passes.precision.values import Linear, Value, order_of, permuted

_FILTERS = "HWOI"


def _of_rows(convolve: Rule) -> Rule:
    """Return the rule of convolutions of rows, from the one of images: their height is one."""

    def rule(call: OperatorCall) -> Item | Declined | None:
        attrs = call.attrs.of(Convolution)
        layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
        known = layout in {"NCW", "NWC"} and set(kernel_layout) == set("OIW")
        if not known or attrs.out_layout != layout:
            return None

        def taller(shape: tuple[int, ...], given: str) -> tuple[int, ...]:
            at = given.index("W")
            return (*shape[:at], 1, *shape[at:])

        def seen(x: Value, given: str) -> Value:
            shape = taller(x.shape, given)
            if x.constant is not None:
                return call.store.of_array(x.constant.reshape(shape))
            made = viewed(replace(call, args=(x,), shape=shape, dtype=x.dtype))
            made.single_use = x.single_use
            return made

        x, padding = call.tensor(0), attrs.padding
        if not isinstance(attrs, TransposedConvolution):
            x, padding = with_padding(x, layout, padding)
        left, right = padding
        of_images = replace(
            attrs,
            strides=(1, *attrs.strides),
            dilation=(1, *attrs.dilation),
            padding=(0, left, 0, right),
            data_layout=layout.replace("W", "HW"),
            kernel_layout=kernel_layout.replace("W", "HW"),
            out_layout=layout.replace("W", "HW"),
        )
        if isinstance(of_images, TransposedConvolution):
            of_images = replace(of_images, output_padding=(0, *of_images.output_padding))
        made = convolve(
            replace(
                call,
                name=call.name.replace("1d", "2d"),
                original=None,
                args=(seen(x, layout), seen(call.tensor(1), kernel_layout)),
                shape=taller(call.shape, layout),
                attrs=of_images,
            )
        )
        if not isinstance(made, Value):
            return made
        order = order_of(layout, "NWC")
        waiting, shape = made.pending, permuted(call.shape, order)
        if waiting is None:
            expr = call.builder.reshape(call.store.get(made, made.order), shape)
            return call.result(expr, order, reach=made.reach)

        def emit(array: Array, bias: Array | None, reach: Reach) -> int:
            return call.builder.reshape(waiting.emit(array, bias, reach), shape)

        linear = Linear(emit, waiting.weight, waiting.axis, layout.index("C"))
        return pending(call, linear, order, made.stored, made.reach)

    return rule


@dataclass(frozen=True, slots=True)
class _Phases:
    """One axis of a transposed convolution as a convolution with a filter for each phase.

    The convolution's results are at `first` strides of the whole result and later ones: `pixels`
    of them, of which each gives `stride` pixels. The wanted pixels begin with the one at `offset`.
    """

    stride: int
    taps: int
    padding: tuple[int, int]
    pixels: int
    offset: int

    @classmethod
    def of(cls, attrs: TransposedConvolution, axis: int, pixels: int, taps: int) -> _Phases | None:
        """Return the phases along `axis`; None if a padding takes off more than the filter adds."""
        stride, dilation = attrs.strides[axis], attrs.dilation[axis]
        before, after = attrs.padding[axis], attrs.padding[axis + 2]
        reach = dilation * (taps - 1) + 1
        of_phase = -(-reach // stride)
        first, offset = divmod(before, stride)
        last = pixels - 1 + (reach + attrs.output_padding[axis] - 1 - after) // stride
        wanted = last - first + 1
        ahead = of_phase - 1 - first
        behind = wanted - pixels - ahead + of_phase - 1
        if ahead < 0 or behind < 0:
            return None
        return cls(stride, of_phase, (ahead, behind), wanted, offset)


def _conv2d_transpose(call: OperatorCall) -> Item | Declined | None:
    attrs = call.attrs.of(TransposedConvolution)
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    known = layout in {"NCHW", "NHWC"} and set(kernel_layout) == set("OIHW")
    if not known or attrs.out_layout != layout:
        return None
    if attrs.groups != 1:
        return Declined(
            f"a transposed convolution with groups={attrs.groups}: kernels exist for one group only"
        )
    x, weight = call.tensor(0), call.tensor(1).constant
    if weight is None:
        return Declined("a transposed convolution whose weight is computed: make it a constant")
    order = order_of(layout, "NHWC")
    images, result = permuted(x.shape, order), permuted(call.shape, order)
    filters = weight.transpose(order_of(kernel_layout, _FILTERS))
    rows = _Phases.of(attrs, 0, images[1], filters.shape[0])
    columns = _Phases.of(attrs, 1, images[2], filters.shape[1])
    if rows is None or columns is None:
        return Declined(
            f"a transposed convolution whose padding {attrs.padding} takes off more than its "
            "filter adds"
        )
    joint = (images[0], rows.pixels, columns.pixels, rows.stride * columns.stride * result[3])
    made = conv2d(
        replace(
            call,
            name="nn.conv2d",
            original=None,
            args=(x, call.store.of_array(_filters(filters, attrs, rows, columns))),
            shape=permuted(joint, order_of("NHWC", layout)),
            attrs=Convolution(
                groups=1,
                strides=(1, 1),
                dilation=(1, 1),
                padding=(rows.padding[0], columns.padding[0], rows.padding[1], columns.padding[1]),
                data_layout=layout,
                kernel_layout="OHWI",
                out_layout=layout,
            ),
        )
    )
    if not isinstance(made, Value) or made.pending is None:
        return made
    waiting = made.pending

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        laid = _filters(array.transpose(order_of(kernel_layout, _FILTERS)), attrs, rows, columns)
        phases = rows.stride * columns.stride
        each = None if bias is None else np.tile(bias, phases)
        return _beside(call.builder, waiting.emit(laid, each, reach), rows, columns, result)

    linear = Linear(emit, weight, kernel_layout.index("O"), layout.index("C"))
    return pending(call, linear, order, made.stored, made.reach)


def _filters(
    filters: Array, attrs: TransposedConvolution, rows: _Phases, columns: _Phases
) -> Array:
    """Return the filters (rows, columns, O, I) of all phases, (phases x O, taps, taps, I)."""
    (high, wide), (dilated, apart) = filters.shape[:2], attrs.dilation
    whole = np.zeros(
        (rows.taps * rows.stride, columns.taps * columns.stride, *filters.shape[2:]), filters.dtype
    )
    whole[: dilated * (high - 1) + 1 : dilated, : apart * (wide - 1) + 1 : apart] = filters
    out, of = filters.shape[2:]
    of_phases = whole.reshape(rows.taps, rows.stride, columns.taps, columns.stride, out, of)
    # A convolution reads pixels in order, where the gradient reads taps in reverse.
    of_phases = of_phases[::-1, :, ::-1].transpose(1, 3, 4, 0, 2, 5)
    return np.asarray(of_phases.reshape(-1, rows.taps, columns.taps, of))


def _beside(
    builder: GraphBuilder, x: int, rows: _Phases, columns: _Phases, shape: Sequence[int]
) -> int:
    """Put the phases of a convolution's result beside each other, and keep the wanted pixels."""
    n, h, w, _ = builder.shape(x)
    _, high, wide, k = shape
    if (rows.stride, columns.stride) != (1, 1):
        apart = builder.reshape(x, (n, h, w, rows.stride, columns.stride, k))
        turned = builder.permute_dims(apart, (0, 1, 3, 2, 4, 5))
        x = builder.reshape(turned, (n, h * rows.stride, w * columns.stride, k))
    for axis, begin, extent in ((1, rows.offset, high), (2, columns.offset, wide)):
        before = builder.shape(x)
        if before[axis] != extent:
            attrs = Slice(axis=axis, begin=begin, end=begin + extent)
            kept = (*before[:axis], extent, *before[axis + 1 :])
            x = builder.operator("strided_slice", [x], kept, builder.dtype(x), attrs=attrs)
    return x


RULES: dict[str, Rule] = {
    "nn.conv1d": _of_rows(conv2d),
    "nn.conv1d_transpose": _of_rows(_conv2d_transpose),
    "nn.conv2d_transpose": _conv2d_transpose,
}
