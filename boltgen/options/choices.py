"""Values of options that are one of a few words."""

from __future__ import annotations

from enum import Enum


class CheckLevel(Enum):
    """How much of a library is executed before it ships."""

    NONE = "none"
    KERNELS = "kernels"  # every kernel, at boundary shapes
    FULL = "full"  # and the whole model once


class BorderTypes(Enum):
    """Which types a model's inputs and outputs have."""

    MODEL = "model"  # as in the model
    HALF = "half"  # FP32 becomes the type that products multiply


class RestTuning(Enum):
    """Whether TVM's tuner schedules the kernels that TVM keeps."""

    ON = "on"
    OFF = "off"
