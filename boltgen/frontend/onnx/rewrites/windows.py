"""Convolutions and pools: padding that is a rule becomes numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand

WINDOWED = ("Conv", "MaxPool", "AveragePool", "LpPool")


@rewrites(*WINDOWED, why="padding that is a rule (auto_pad) was computed from the known shapes")
def explicit_pads(node: Any, build: Builder) -> bool:
    """Write SAME_UPPER, SAME_LOWER and VALID as numbers of elements."""
    rule = attribute(node, "auto_pad", "NOTSET")
    kernel = _kernel(node, build)
    extents = build.scope.extents(node.input[0])
    if rule == "NOTSET" or kernel is None or extents is None:
        return False
    rank = len(kernel)
    pads = [0] * (2 * rank)
    if rule != "VALID":
        strides = attribute(node, "strides") or [1] * rank
        dilations = attribute(node, "dilations") or [1] * rank
        for axis, extent in enumerate(extents[2:]):
            if not isinstance(extent, int):
                return False
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            steps = -(-extent // strides[axis])
            total = max((steps - 1) * strides[axis] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            upper = rule == "SAME_UPPER"
            pads[axis], pads[rank + axis] = (small, large) if upper else (large, small)
    build.again(node.input, auto_pad=None, pads=pads)
    return True


@rewrites("Conv", why="zeros that were padded before it are its own padding")
def absorb_pad(node: Any, build: Builder) -> bool:
    """Take the zeros of a Pad before a convolution as the convolution's own padding."""
    pad = build.scope.producer(node.input[0])
    kernel = _kernel(node, build)
    if pad is None or pad.op_type != "Pad" or kernel is None:
        return False
    if attribute(pad, "mode", "constant") != "constant" or operand(pad, 3):
        return False
    pads = build.scope.constant(operand(pad, 1))
    value = build.scope.constant(operand(pad, 2)) if operand(pad, 2) else np.zeros(1)
    if pads is None or value is None or value.any() or (pads < 0).any():
        return False
    rank = len(kernel)
    before, after = np.split(pads, 2)
    if len(before) != rank + 2 or before[:2].any() or after[:2].any():
        return False
    if attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return False
    own = attribute(node, "pads") or [0] * (2 * rank)
    both = [a + int(b) for a, b in zip(own, [*before[2:], *after[2:]], strict=True)]
    build.again([pad.input[0], *node.input[1:]], pads=both)
    return True


@rewrites("ConvTranspose", why="the padding that gives its output shape was computed")
def transposed(node: Any, build: Builder) -> bool:
    """Write an output shape, or SAME padding, as numbers of elements."""
    rule, shape = attribute(node, "auto_pad", "NOTSET"), attribute(node, "output_shape")
    kernel, extents = _kernel(node, build), build.scope.extents(node.input[0])
    if kernel is None or extents is None or (rule == "NOTSET" and not shape):
        return False
    rank = len(kernel)
    strides = attribute(node, "strides") or [1] * rank
    dilations = attribute(node, "dilations") or [1] * rank
    extra = list(attribute(node, "output_padding") or [0] * rank)
    pads = [0] * (2 * rank)
    for axis, extent in enumerate(extents[2:]):
        if rule == "VALID" and not shape:
            break
        if not isinstance(extent, int):
            return False
        wanted = shape[-rank:][axis] if shape else extent * strides[axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (extent - 1) + extra[axis] + reach - wanted
        if total < 0:
            extra[axis], total = extra[axis] - total, 0
        small, large = total // 2, total - total // 2
        # Source: ONNX's Operators.md, ConvTranspose: only SAME_UPPER puts the odd one behind.
        upper = rule == "SAME_UPPER"
        pads[axis], pads[rank + axis] = (small, large) if upper else (large, small)
    build.again(node.input, auto_pad=None, output_shape=None, pads=pads, output_padding=extra)
    return True


@rewrites("MaxPool", "AveragePool", only="relay")
def whole_windows(node: Any, build: Builder) -> bool:
    """Refuse ceil_mode where the last window starts in the padding: ONNX leaves it out."""
    kernel, extents = _kernel(node, build), build.scope.extents(node.input[0])
    if not attribute(node, "ceil_mode", 0) or kernel is None or extents is None:
        return False
    rank = len(kernel)
    strides = attribute(node, "strides") or [1] * rank
    dilations = attribute(node, "dilations") or [1] * rank
    pads = attribute(node, "pads") or [0] * (2 * rank)
    for axis, extent in enumerate(extents[2:]):
        if not isinstance(extent, int):
            continue
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        padded = extent + pads[axis] + pads[rank + axis]
        last = -(-(padded - reach) // strides[axis]) * strides[axis]
        if last >= extent + pads[axis]:
            raise UnsupportedError(
                "with a ceil_mode whose last window starts in the padding",
                "export it without ceil_mode",
            )
    return False


@rewrites("GridSample", why="its modes have their old names", only="relay")
def grid_sample(node: Any, build: Builder) -> bool:
    """Name the modes as operator set 16 does."""
    old = {"linear": "bilinear", "cubic": "bicubic"}
    mode = attribute(node, "mode", "linear")
    if mode not in old:
        return False
    build.again(node.input, mode=old[mode])
    return True


def _kernel(node: Any, build: Builder) -> list[int] | None:
    kernel: list[int] | None = attribute(node, "kernel_shape")
    if kernel is None and operand(node, 1):
        shape = build.scope.shape(node.input[1])
        kernel = None if shape is None else list(shape[2:])
    return kernel
