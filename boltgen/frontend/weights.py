"""Checks of a model's weights, by the names that the model has for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boltgen.errors import ModelImportError

# Largest finite FP16 number. Source: IEEE 754-2008, binary16: (2 - 2**-10) * 2**15.
FP16_MAX = 65504.0


def check_weight(
    name: str, array: npt.NDArray[np.floating], *, may_be_infinite: bool = True
) -> None:
    """Refuse NaN, and infinity where an element may not be infinite: masks are.

    Raises:
        ModelImportError: naming the tensor, and the first element that is wrong.
    """
    if not array.size:
        return
    low, high = float(array.min()), float(array.max())  # both are NaN if an element is
    if np.isnan(low):
        wrong, what = np.isnan(array), "NaN"
    elif not may_be_infinite and np.isinf([low, high]).any():
        wrong, what = np.isinf(array), "infinity"
    else:
        return
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(at)}" if at else ""
    raise ModelImportError(
        f"{name} contains {what} ({array[at]:g}{where}, {int(wrong.sum())} of {array.size} "
        "elements); retrain or re-export the model, or pass allow_nonfinite=True to compile it all "
        "the same"
    )
