"""Checks of a model's constants, by the names that the model has for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boltgen.errors import ModelImportError

# Largest finite FP16 number. Source: IEEE 754-2008, binary16: (2 - 2**-10) * 2**15.
FP16_MAX = 65504.0


def refuse_nan(name: str, array: npt.NDArray[np.floating]) -> None:
    """Refuse a constant that contains NaN; infinite ones may be masks.

    Raises:
        ModelImportError: naming the tensor, and the first element that is NaN.
    """
    if not array.size or not np.isnan(float(array.min())):  # which is NaN if an element is
        return
    wrong = np.isnan(array)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(at)}" if at else ""
    raise ModelImportError(
        f"{name} contains NaN (nan{where}, {int(wrong.sum())} of {array.size} elements); "
        "retrain or re-export the model, or pass allow_nonfinite=True to compile it all the same"
    )
