"""Rewrite operators on boxes: TVM's converters and ONNX disagree about their borders."""

from __future__ import annotations

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites

# The operands of NonMaxSuppression behind boxes and scores, and what ONNX takes without them.
_LIMITS = (
    ("max_output_boxes_per_class", np.int64, 0),
    ("iou_threshold", np.float32, 0.0),
    ("score_threshold", np.float32, -np.inf),
)


@rewrites("NonMaxSuppression", why="its thresholds are written as ONNX compares with them")
def suppressed(build: Builder) -> list[str]:
    """Raise the threshold of overlap by one step of FP32.

    ONNX suppresses boxes that overlap by more than the threshold; TVM also suppresses boxes at the
    threshold.
    """
    limits = []
    for place, (what, dtype, default) in enumerate(_LIMITS, 2):
        value = build.known(place) if build.operand(place) else np.asarray(default)
        if value is None:
            raise UnsupportedError(
                f"its {what} is computed, and TVM takes a number of its own",
                f"make {what} a constant of the model",
            )
        limits.append(value.astype(dtype).reshape(-1)[:1])
    limits[1] = np.nextafter(limits[1], np.float32(np.inf))
    return build.again([*build.node.input[:2], *limits])


@rewrites("RoiAlign", why="its regions are scaled before they are moved by half a pixel")
def aligned(build: Builder) -> list[str] | None:
    """Scale regions in the model: TVM's converter moves them by half a pixel before it does."""
    if build.get("mode", "avg") == "max":
        raise UnsupportedError(
            "mode is max, which TVM takes of other numbers", "export it with mode avg"
        )
    scale = build.get("spatial_scale", 1.0)
    if not _is_half_pixel(build) or scale == 1:
        return None
    regions = build.Mul(build.operand(1), build.dtype(1).type(scale))
    return build.again([build.x, regions, build.operand(2)], spatial_scale=1.0)


def _is_half_pixel(build: Builder) -> bool:
    default = "half_pixel" if build.scope.opset >= 16 else "output_half_pixel"
    return bool(build.get("coordinate_transformation_mode", default) == "half_pixel")


@rewrites("RoiAlign", only="relay")
def unaligned(build: Builder) -> None:
    """Refuse regions that begin at half a pixel: TVM's converter to Relay does not move them."""
    if _is_half_pixel(build):
        raise UnsupportedError(
            "its coordinates are half_pixel, and TVM takes coordinates of whole pixels",
            "export it with coordinate_transformation_mode output_half_pixel",
        )
