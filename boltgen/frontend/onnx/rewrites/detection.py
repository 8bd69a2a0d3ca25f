"""Operators on boxes, whose borders TVM's converters draw otherwise than ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand

# The operands of NonMaxSuppression behind boxes and scores, and what ONNX takes without them.
_LIMITS = (
    ("max_output_boxes_per_class", np.int64, 0),
    ("iou_threshold", np.float32, 0.0),
    ("score_threshold", np.float32, -np.inf),
)


@rewrites("NonMaxSuppression", why="its thresholds are written as ONNX compares with them")
def suppressed(node: Any, build: Builder) -> bool:
    """Raise the threshold of overlap by one step of FP32.

    ONNX suppresses boxes that overlap by more than it, TVM also those that overlap by as much.
    """
    limits = []
    for place, (what, dtype, default) in enumerate(_LIMITS, 2):
        name = operand(node, place)
        value = build.scope.constant(name) if name else np.asarray(default)
        if value is None:
            raise UnsupportedError(
                f"its {what} is computed, and TVM takes a number of its own",
                f"make {what} a constant of the model",
            )
        limits.append(value.astype(dtype).reshape(-1)[0])
    limits[1] = np.nextafter(limits[1], np.float32(np.inf))
    names = [build.constant([limit], limit.dtype) for limit in limits]
    build.again([*node.input[:2], *names])
    return True


@rewrites("RoiAlign", why="its regions are scaled before they are moved by half a pixel")
def aligned(node: Any, build: Builder) -> bool:
    """Scale regions in the model: TVM's converter moves them by half a pixel before it does."""
    if attribute(node, "mode", "avg") == "max":
        raise UnsupportedError(
            "mode is max, which TVM takes of other numbers", "export it with mode avg"
        )
    scale, dtype = attribute(node, "spatial_scale", 1.0), build.scope.dtype(node.input[1])
    if not _is_half_pixel(node, build) or scale == 1 or dtype is None:
        return False
    regions = build("Mul", [node.input[1], build.constant(scale, dtype)])
    build.again([node.input[0], regions, node.input[2]], spatial_scale=1.0)
    return True


def _is_half_pixel(node: Any, build: Builder) -> bool:
    default = "half_pixel" if build.scope.opset >= 16 else "output_half_pixel"
    return bool(attribute(node, "coordinate_transformation_mode", default) == "half_pixel")


@rewrites("RoiAlign", only="relay")
def unaligned(node: Any, build: Builder) -> bool:
    """Refuse regions that begin at half a pixel: TVM's converter to Relay does not move them."""
    if _is_half_pixel(node, build):
        raise UnsupportedError(
            "its coordinates are half_pixel, and TVM takes those of whole pixels",
            "export it with coordinate_transformation_mode output_half_pixel",
        )
    return False
