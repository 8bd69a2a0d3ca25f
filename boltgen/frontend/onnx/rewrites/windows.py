"""Rewrite convolutions and pools: padding that is a rule becomes numbers."""

from __future__ import annotations

from math import prod

import numpy as np

from boltgen.frontend.onnx.rewrites.normalisation import reduced
from boltgen.frontend.onnx.rewrites.registry import (
    Builder,
    UnknownError,
    UnsupportedError,
    rewrites,
)
from boltgen.frontend.onnx.scope import Array, attribute, operand


def _rank(build: Builder) -> int:
    return len(_kernel(build))


def _kernel(build: Builder) -> list[int]:
    return build.get("kernel_shape") or list(build.shape(1)[2:])


def _windows(build: Builder) -> list[tuple[int | str | None, int, int]]:
    """The extent of each spatial axis, and the reach and the stride of the window along it."""
    kernel = _kernel(build)
    strides, dilations = (build.get(key) or [1] * len(kernel) for key in ("strides", "dilations"))
    reaches = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    return list(zip(build.extents()[2:], reaches, strides, strict=True))


def _pads(totals: list[int], *, upper: bool) -> list[int]:
    """Return widths before each axis, then behind; the odd one is behind if `upper`."""
    small, large = [each // 2 for each in totals], [each - each // 2 for each in totals]
    return [*small, *large] if upper else [*large, *small]


@rewrites(
    *("Conv", "MaxPool", "AveragePool", "LpPool"),
    why="padding that is a rule (auto_pad) was computed from the known shapes",
)
def explicit_pads(build: Builder) -> list[str] | None:
    """Write SAME_UPPER, SAME_LOWER and VALID as numbers of elements."""
    rule = build.get("auto_pad", "NOTSET")
    if rule == "NOTSET":
        return None
    totals = [0] * _rank(build)
    if rule != "VALID":
        for axis, (extent, reach, stride) in enumerate(_windows(build)):
            if not isinstance(extent, int):
                raise UnknownError
            totals[axis] = max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    return build.again(auto_pad=None, pads=_pads(totals, upper=rule == "SAME_UPPER"))


@rewrites("Conv", why="zeros that were padded before it are its own padding")
def absorb_pad(build: Builder) -> list[str] | None:
    """Take the zeros of a Pad before a convolution as the convolution's own padding."""
    pad, rank = build.scope.producer(build.x), _rank(build)
    if pad is None or pad.op_type != "Pad" or build.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if attribute(pad, "mode", "constant") != "constant" or operand(pad, 3):
        return None
    pads = build.scope.constant(operand(pad, 1))
    value = build.scope.constant(operand(pad, 2)) if operand(pad, 2) else np.zeros(1)
    if pads is None or value is None or value.any() or (pads < 0).any():
        return None
    before, after = np.split(pads, 2)
    if len(before) != rank + 2 or before[:2].any() or after[:2].any():
        return None
    own = build.get("pads") or [0] * (2 * rank)
    both = [a + int(b) for a, b in zip(own, [*before[2:], *after[2:]], strict=True)]
    return build.again([pad.input[0], *build.node.input[1:]], pads=both)


@rewrites("MaxPool", why="places of the greatest numbers are looked for in each window")
def places_of_greatest(build: Builder) -> list[str] | None:
    """Gather the windows of a pool whose places are read, and find the greatest number of each.

    A place counts elements of the whole tensor; `storage_order` 1 counts rows before columns.
    """
    outputs = build.node.output
    if len(outputs) < 2 or outputs[1] not in build.scope.read:
        return None
    known = build.scope.shape(build.x)
    if known is None or build.get("auto_pad", "NOTSET") != "NOTSET":
        raise UnsupportedError(
            "with the places of the greatest numbers of a tensor of unknown size",
            "give the model's inputs fixed sizes with --shape",
        )
    batch, channels, *spatial = known
    table, made = _window_table(build, spatial)
    count, size = prod(spatial), table.shape[1]
    lowest = build.dtype().type(
        -np.inf if build.dtype().kind == "f" else np.iinfo(build.dtype()).min
    )
    rows = build.Reshape(build.x, [batch, channels, count])
    rows = build.Concat(rows, np.full((batch, channels, 1), lowest), axis=2)
    windows = build.Gather(rows, np.where(table < 0, count, table), axis=2)
    first = build.ArgMax(windows, axis=3, keepdims=0)
    places = np.arange(count).reshape(spatial)
    if build.get("storage_order", 0):
        places = np.arange(count).reshape(spatial[::-1]).T
    ordered = np.where(table < 0, 0, places.reshape(-1)[table]).reshape(-1)
    at = build.Add(first, np.arange(len(table)) * size)
    own = np.arange(batch * channels).reshape(batch, channels, 1) * count
    shape = [batch, channels, *made]
    place = build.Reshape(build.Add(build.Gather(ordered, at, axis=0), own), shape)
    return [build.Reshape(reduced(build, "ReduceMax", windows, [3]), shape), place]


def _window_table(build: Builder, spatial: list[int]) -> tuple[Array, list[int]]:
    """The places of a plane in each window, -1 in the padding, and how many windows there are."""
    rank = len(spatial)
    kernel, pads = _kernel(build), build.get("pads") or [0] * (2 * rank)
    dilations = build.get("dilations") or [1] * rank
    table, made = np.zeros((1, 1), np.int64), []
    for axis, (extent, reach, stride) in enumerate(_windows(build)):
        assert isinstance(extent, int)
        room = extent + pads[axis] + pads[rank + axis] - reach
        windows = (-(-room // stride) if build.get("ceil_mode", 0) else room // stride) + 1
        if (windows - 1) * stride >= extent + pads[axis]:
            windows -= 1  # a window that begins in the padding behind is none
        starts = np.arange(windows)[:, None] * stride - pads[axis]
        along = starts + np.arange(kernel[axis]) * dilations[axis]
        along = np.where((along >= 0) & (along < extent), along, -1)
        both = table[:, None, :, None] * extent + along[None, :, None, :]
        is_padding = (table < 0)[:, None, :, None] | (along < 0)[None, :, None, :]
        table = np.where(is_padding, -1, both).reshape(len(table) * windows, -1)
        made.append(windows)
    return table, made


@rewrites("ConvTranspose", why="the padding that gives its output shape was computed")
def transposed(build: Builder) -> list[str] | None:
    """Write an output shape, or SAME padding, as numbers of elements."""
    rule, shape = build.get("auto_pad", "NOTSET"), build.get("output_shape")
    if rule == "NOTSET" and not shape:
        return None
    rank = _rank(build)
    extra, totals = list(build.get("output_padding") or [0] * rank), [0] * rank
    for axis, (extent, reach, stride) in enumerate(_windows(build)):
        if rule == "VALID" and not shape:
            break
        if not isinstance(extent, int):
            raise UnknownError
        wanted = shape[-rank:][axis] if shape else extent * stride
        total = stride * (extent - 1) + extra[axis] + reach - wanted
        extra[axis] -= min(total, 0)
        totals[axis] = max(total, 0)
    # Source: ONNX's Operators.md, ConvTranspose: only SAME_UPPER puts the odd one behind.
    pads = _pads(totals, upper=rule == "SAME_UPPER")
    return build.again(auto_pad=None, output_shape=None, pads=pads, output_padding=extra)


@rewrites("ConvTranspose", why="output padding that is not below its stride is written out")
def wide_output_padding(build: Builder) -> str | None:
    """Write output padding of a stride or more as less padding, and as zeros before the bias.

    ONNX allows it up to the dilation, and TVM's converters below the stride alone.
    """
    if build.get("auto_pad", "NOTSET") != "NOTSET" or build.get("output_shape"):
        return None
    rank = _rank(build)
    strides = build.get("strides") or [1] * rank
    extra = list(build.get("output_padding") or [0] * rank)
    if all(more < stride for more, stride in zip(extra, strides, strict=True)):
        return None
    pads = list(build.get("pads") or [0] * (2 * rank))
    for axis in range(rank):
        cut = min(pads[rank + axis], extra[axis])
        pads[rank + axis] -= cut
        extra[axis] -= cut
    keys = ("dilations", "group", "kernel_shape", "strides")
    given = {key: build.get(key) for key in keys}
    result = build.ConvTranspose(build.x, build.operand(1), pads=pads, **given)
    if any(extra):
        result = build.Pad(result, [*([0] * (rank + 2)), 0, 0, *extra])
    if build.operand(2):
        column = build.Reshape(build.operand(2), [-1, *([1] * rank)])
        result = build.Add(result, column)
    return result


@rewrites("MaxPool", "AveragePool", only="relay")
def whole_windows(build: Builder) -> None:
    """Refuse ceil_mode where the last window starts in the padding: ONNX leaves it out."""
    rank = _rank(build)
    pads = build.get("pads") or [0] * (2 * rank)
    for axis, (extent, reach, stride) in enumerate(_windows(build)):
        if not isinstance(extent, int) or not build.get("ceil_mode", 0):
            continue
        padded = extent + pads[axis] + pads[rank + axis]
        if -(-(padded - reach) // stride) * stride >= extent + pads[axis]:
            raise UnsupportedError(
                "with a ceil_mode whose last window starts in the padding",
                "export it without ceil_mode",
            )


@rewrites("GridSample", why="its modes have their old names", only="relay")
def grid_sample(build: Builder) -> list[str] | None:
    """Name the modes as operator set 16 does."""
    old = {"linear": "bilinear", "cubic": "bicubic"}
    mode = build.get("mode", "linear")
    return build.again(mode=old[mode]) if mode in old else None
