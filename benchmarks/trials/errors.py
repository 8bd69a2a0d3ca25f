"""The distance of a model's outputs from the right ones, and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.trials.process import Row

Array: TypeAlias = NDArray[Any]


# FP16 and BF16 round by half of these, of a number at most.
STEPS = {"fp16": 2.0**-10, "bf16": 2.0**-7}


def judge(
    actual: Sequence[Array],
    wanted: Sequence[Array],
    rounded: Sequence[Array],
    products: int,
    step: float = STEPS["fp16"],
) -> Row:
    """The errors of all outputs, and whether they are inside the bounds.

    Each product rounds its weight and its result by half a `step` of each; to first order
    the errors of all products add up, and, as they are independent, their squares do. A model may
    enlarge them: then `rounded`, its outputs with nothing but that done to it, says by how much.
    What else is rounded, and that other values are rounded up, is allowed a factor of four.
    """
    if len(actual) != len(wanted):
        return {"outcome": f"{len(actual)} outputs where {len(wanted)} were wanted"}
    largest, typical = _worst(actual, wanted)
    allowed = [4 * error if np.isfinite(error) else 0.0 for error in _worst(rounded, wanted)]
    bound = max(products * step, allowed[0], step)
    rms_bound = max(products**0.5 * step, allowed[1], step)
    return {
        "error": largest,
        "bound": bound,
        "rms_error": typical,
        "rms_bound": rms_bound,
        "outcome": "agrees" if largest <= bound and typical <= rms_bound else "wrong",
    }


def _worst(actual: Sequence[Array], wanted: Sequence[Array]) -> tuple[float, float]:
    errors = [errors_of(*pair) for pair in zip(actual, wanted, strict=True)]
    return max(each for each, _ in errors), max(each for _, each in errors)


def errors_of(actual: Array, wanted: Array) -> tuple[float, float]:
    """Return the largest error and the errors' root mean square, relative to the output's.

    Infinite where a shape or a whole number is another, or an element is no number.
    """
    if actual.shape != wanted.shape:
        return float("inf"), float("inf")
    if wanted.size == 0:
        return 0.0, 0.0
    exact = wanted.astype(np.float64)
    distance = np.abs(actual.astype(np.float64) - exact)
    is_whole = not np.issubdtype(wanted.dtype, np.floating)
    if not np.isfinite(distance).all() or (is_whole and distance.any()):
        return float("inf"), float("inf")
    scale = float(np.sqrt(np.mean(exact**2))) or 1.0
    return float(distance.max()) / scale, float(np.sqrt(np.mean(distance**2))) / scale
