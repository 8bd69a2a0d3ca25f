"""Normalise convolutions of rows and volumes, and transposed ones, by writing them as others.

A transposed convolution with a stride is as many convolutions as the stride has phases, each with
every stride-th tap of the filter. They are one convolution here, with the filters of all phases,
and a move that puts the phases beside each other:

    (N, H, W, C) -> convolution -> (N, H', W', s s K) -> (N, s H', s W', K) -> the wanted pixels

The filters of all phases of a group are neighbours, and volumes have a depth as well. No zeros
between pixels are multiplied. A filter that is no multiple of the stride is filled up
with taps of zero: an infinite pixel makes NaN of neighbours that such a tap reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from boltgen.graph.attributes import Convolution, Permutation, TransposedConvolution
from boltgen.graph.graph import Array, GraphBuilder
from boltgen.passes.precision.call import DeclinedError, Item, OperatorCall, Rule
from boltgen.passes.precision.movement import permute_dims, viewed
from boltgen.passes.precision.products import (
    LAYOUTS,
    convolution,
    pending,
    pixels_of,
    with_padding,
)
from boltgen.passes.precision.reach import Reach
from boltgen.passes.precision.values import Linear, Order, Value, order_of, permuted


def _of_rows(convolve: Rule) -> Rule:
    """Return the rule of convolutions of rows, from the one of images: their height is one."""

    def rule(call: OperatorCall) -> Item | None:
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
        order = order_of(layout, "NWC")
        return _seen_as(call, made, order, permuted(call.shape, order), layout.index("C"))

    return rule


def _seen_as(
    call: OperatorCall,
    made: Item | None,
    order: Order,
    shape: tuple[int, ...],
    channel: int,
) -> Item | None:
    """Return `made`, a convolution of images, as the result of `call`: it lies in `shape`, which is
    the call's in `order`. `channel` is the axis of the call's channels.
    """
    if not isinstance(made, Value):
        return made
    waiting = made.pending
    if waiting is None:
        expr = call.builder.reshape(call.store.get(made, made.order), shape)
        return call.result(expr, order, reach=made.reach)

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        return call.builder.reshape(waiting.emit(array, bias, reach), shape)

    linear = Linear(emit, waiting.weight, waiting.axis, channel)
    return pending(call, linear, order, made.stored, made.reach)


def _of_volumes(call: OperatorCall) -> Item | None:
    """Write a convolution of volumes as one of images if its filter is flat, else as it is.

    With a filter of one plane, the planes of all volumes are images. With one of a single pixel in
    each plane, the planes are rows of an image, and their pixels its columns.
    """
    attrs = call.attrs.of(Convolution)
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    x, weight = call.tensor(0), call.tensor(1).constant
    known = layout in LAYOUTS and sorted(kernel_layout) == sorted("OIDHW")
    if not known or attrs.out_layout != layout or weight is None or x.constant is not None:
        return convolution(call)
    x, padding = with_padding(x, layout, attrs.padding)
    order = order_of(layout, "NDHWC")
    taps = permuted(weight.shape, order_of(kernel_layout, "DHW"))
    axes = _flat(taps, attrs, padding)
    laid = permute_dims(
        replace(call, args=(x,), shape=permuted(x.shape, order), attrs=Permutation(order))
    )
    if axes is None or not isinstance(laid, Value):
        return convolution(call)

    def image(volume: Sequence[int]) -> tuple[int, ...]:
        n, depth, high, wide, c = volume
        return (n * depth, high, wide, c) if axes == (1, 2) else (n, depth, high * wide, c)

    def filters(array: Array) -> Array:
        laid = array.transpose(order_of(kernel_layout, "ODHWI"))
        return np.asarray(laid.squeeze(1 if axes == (1, 2) else 3))

    result = permuted(call.shape, order)
    seen = viewed(replace(call, args=(laid,), shape=image(laid.shape), dtype=x.dtype))
    seen.single_use = x.single_use
    sides = (*axes, *(axis + 3 for axis in axes))
    made = convolution(
        replace(
            call,
            name="nn.conv2d",
            original=None,
            args=(seen, call.store.of_array(filters(weight))),
            shape=image(result),
            attrs=replace(
                attrs,
                strides=tuple(attrs.strides[axis] for axis in axes),
                dilation=tuple(attrs.dilation[axis] for axis in axes),
                padding=tuple(padding[side] for side in sides),
                data_layout="NHWC",
                kernel_layout="OHWI",
                out_layout="NHWC",
            ),
        )
    )
    if isinstance(made, Value) and made.pending is not None:
        emit, axis = made.pending.emit, kernel_layout.index("O")
        made.pending = Linear(
            lambda array, bias, reach: emit(filters(array), bias, reach), weight, axis, 3
        )
    return _seen_as(call, made, order, result, layout.index("C"))


def _flat(
    taps: Sequence[int], attrs: Convolution, padding: Sequence[int]
) -> tuple[int, int] | None:
    """Return the two axes along which a convolution is one of images, or None.

    It does nothing along the others; of depth and a plane's pixels, the pixels are one axis.
    """
    idle = [
        tap == step == 1 and before == after == 0
        for tap, step, before, after in zip(
            taps, attrs.strides, padding[:3], padding[3:], strict=True
        )
    ]
    if all(idle):
        return None  # a matmul of the volumes as they are
    if idle[0]:
        return 1, 2
    return (0, 1) if idle[1] and idle[2] else None


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
        before, after = attrs.padding[axis], attrs.padding[axis + len(attrs.strides)]
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


def _transposed(call: OperatorCall) -> Item | None:
    attrs = call.attrs.of(TransposedConvolution)
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    pixels = pixels_of(layout)
    known = layout in LAYOUTS and sorted(kernel_layout) == sorted(f"OI{pixels}")
    if not known or attrs.out_layout != layout:
        return None
    x, weight = call.tensor(0), call.tensor(1).constant
    if weight is None:
        raise DeclinedError("a transposed convolution whose weight is computed: make it a constant")
    order = order_of(layout, f"N{pixels}C")
    images, result = permuted(x.shape, order), permuted(call.shape, order)
    filters = _forward(weight.transpose(order_of(kernel_layout, f"IO{pixels}")), attrs.groups)
    sides = zip(images[1:], filters.shape[2:], strict=False)
    found = [_Phases.of(attrs, axis, *side) for axis, side in enumerate(sides)]
    phases = [each for each in found if each is not None]
    if len(phases) < len(found):
        raise DeclinedError(
            f"a transposed convolution whose padding {attrs.padding} takes off more than its "
            "filter adds"
        )
    count = prod(each.stride for each in phases)
    joint = (images[0], *(each.pixels for each in phases), count * result[-1])
    write = _of_volumes if len(phases) == 3 else convolution
    made = write(
        replace(
            call,
            name=f"nn.conv{len(pixels)}d",
            original=None,
            args=(x, call.store.of_array(_filters(filters, attrs, phases))),
            shape=permuted(joint, order_of(f"N{pixels}C", layout)),
            attrs=Convolution(
                groups=attrs.groups,
                strides=(1,) * len(phases),
                dilation=(1,) * len(phases),
                padding=tuple(each.padding[side] for side in (0, 1) for each in phases),
                data_layout=layout,
                kernel_layout=f"O{pixels}I",
                out_layout=layout,
            ),
        )
    )
    if not isinstance(made, Value) or made.pending is None:
        return made
    waiting = made.pending

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        # Where volumes became images, so did their filters.
        laid = _filters(array, attrs, phases).reshape(waiting.weight.shape)
        if bias is not None:
            bias = np.repeat(bias.reshape(attrs.groups, 1, -1), count, axis=1).reshape(-1)
        convolved = waiting.emit(laid, bias, reach)
        return _beside(call.builder, convolved, phases, attrs.groups, result)

    linear = Linear(emit, filters, 0, layout.index("C"))
    return pending(call, linear, order, made.stored, made.reach)


def _forward(weight: Array, groups: int) -> Array:
    """Return filters (I, O / groups, ...) as a forward convolution has them, (O, I / groups, ...).

    O are the channels of the result in both.
    """
    channels, filters, *taps = weight.shape
    apart = weight.reshape(groups, channels // groups, filters, *taps)
    made = apart.swapaxes(1, 2).reshape(groups * filters, channels // groups, *taps)
    return np.asarray(made)


def _filters(filters: Array, attrs: TransposedConvolution, phases: Sequence[_Phases]) -> Array:
    """Return the filters (O, I / groups, ...) of all phases, each group's beside each other:
    (groups x phases x O / groups, taps, I / groups).
    """
    out, of, *extents = filters.shape
    whole = np.zeros((out, of, *(each.taps * each.stride for each in phases)), filters.dtype)
    every = (
        slice(None, apart * extent, apart)
        for apart, extent in zip(attrs.dilation, extents, strict=True)
    )
    places = slice(None), slice(None), *every
    whole[places] = filters
    split = [extent for each in phases for extent in (each.taps, each.stride)]
    each_group = whole.reshape(attrs.groups, out // attrs.groups, of, *split)
    taps, strides = range(3, 3 + len(split), 2), range(4, 4 + len(split), 2)
    # A convolution reads pixels in order, where the gradient reads taps in reverse.
    laid = np.flip(each_group, tuple(taps)).transpose(0, *strides, 1, *taps, 2)
    return np.asarray(laid.reshape(-1, *(each.taps for each in phases), of))


def _beside(
    builder: GraphBuilder, x: int, phases: Sequence[_Phases], groups: int, shape: Sequence[int]
) -> int:
    """Put the phases of a convolution's result beside each other, and keep the wanted pixels."""
    n, *pixels, _ = builder.shape(x)
    rank, channels = len(phases), shape[-1]
    strides = [each.stride for each in phases]
    if max(strides) > 1:
        in_groups = [groups] if groups > 1 else []
        shares = (*in_groups, *strides, channels // groups)
        apart = builder.reshape(x, (n, *pixels, *shares))
        of_phases = 1 + rank + len(in_groups)
        pairs = [axis for at in range(rank) for axis in (1 + at, of_phases + at)]
        axes = (0, *pairs, *range(1 + rank, of_phases), of_phases + rank)
        wide = (extent * stride for extent, stride in zip(pixels, strides, strict=True))
        x = builder.reshape(builder.permute_dims(apart, axes), (n, *wide, channels))
    for axis, (phase, extent) in enumerate(zip(phases, shape[1:], strict=False), 1):
        if builder.shape(x)[axis] != extent:
            x = builder.slice(x, axis, phase.offset, phase.offset + extent)
    return x


RULES: dict[str, Rule] = {
    "nn.conv1d": _of_rows(convolution),
    "nn.conv3d": _of_volumes,
    "nn.conv1d_transpose": _of_rows(_transposed),
    "nn.conv2d_transpose": _transposed,
    "nn.conv3d_transpose": _transposed,
}
