"""Checks of a model's weights, by the names that the model has for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boltgen.errors import ModelImportError

# Largest finite FP16 number. Source: IEEE 754-2008, binary16: (2 - 2**-10) * 2**15.
FP16_MAX = 65504.0


def check_weight(name: str, array: npt.NDArray[np.floating], *, is_weight: bool) -> None:
    """Refuse NaN anywhere, and in a weight also what is or becomes infinite in FP16.

    A constant that is no weight may be infinite: masks are.

    Raises:
        ModelImportError: naming the tensor, and the first element that is wrong.
    """
    if not array.size:
        return
    low, high = float(array.min()), float(array.max())  # both are NaN if an element is
    if np.isnan(low):
        _refuse(name, array, np.isnan(array), "NaN", "retrain or re-export the model")
    if is_weight and (np.isinf(low) or np.isinf(high)):
        _refuse(name, array, np.isinf(array), "infinity", "retrain or re-export the model")
    if is_weight and max(-low, high) > FP16_MAX:
        remedy = f"scale it down: FP16 ends at {FP16_MAX:.0f}"
        _refuse(name, array, np.abs(array) > FP16_MAX, "a number too large for FP16", remedy)


def _refuse(
    name: str, array: npt.NDArray[np.floating], wrong: npt.NDArray[np.bool_], what: str, remedy: str
) -> None:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(at)}" if at else ""
    raise ModelImportError(
        f"{name} contains {what} ({array[at]:g}{where}, {int(wrong.sum())} of {array.size} "
        f"elements); {remedy}, or pass allow_nonfinite=True to compile it all the same"
    )
