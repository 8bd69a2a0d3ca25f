"""Values of options that are one of a few words."""

from __future__ import annotations

from enum import Enum


class CheckLevel(Enum):
    """The part of a library that is executed before it ships."""

    NONE = "none"
    KERNELS = "kernels"  # every kernel, at boundary shapes
    FULL = "full"  # and the whole model once


class BorderTypes(Enum):
    """The types of a model's inputs and outputs."""

    MODEL = "model"  # as in the model
    HALF = "half"  # FP32 becomes the type that products multiply


class RestTuning(Enum):
    """The choice whether TVM's tuner schedules TVM's own kernels."""

    ON = "on"
    OFF = "off"
