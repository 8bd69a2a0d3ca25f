"""Convolutions and pools: padding that is a rule becomes numbers."""

from __future__ import annotations

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import (
    Builder,
    UnknownError,
    UnsupportedError,
    rewrites,
)
from boltgen.frontend.onnx.scope import attribute, operand


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
    """Widths before each axis, then behind; the odd one behind where it is `upper`."""
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
