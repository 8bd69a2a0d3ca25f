"""What a model takes, compared with what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from boltgen.errors import InputError
from boltgen.runtime.metadata import DimensionInfo, TensorInfo
from boltgen.runtime.sizes import check_sizes, taken


class Tensor(Protocol):
    """What has a shape and an element type: NumPy's arrays, and TVM's tensors on a device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def dtype(self) -> Any:
        """The element type: what NumPy has, or its name."""


def check_inputs(
    expected: tuple[TensorInfo, ...],
    inputs: Mapping[str, Tensor],
    dimensions: Sequence[DimensionInfo] = (),
) -> None:
    """Compare arrays, or tensors on a device, with what the model takes.

    Raises:
        InputError: a name, shape or dtype differs; the message has both. Or shapes contradict each
            other or leave the range of one of the `dimensions`, as `check_sizes` says. Or there is
            NaN or an infinity, on the host, where the model takes none.
    """
    names = [info.name for info in expected]
    if missing := [name for name in names if name not in inputs]:
        raise InputError(f"no input {', '.join(map(repr, missing))}; {taken(expected)}")
    if unknown := [name for name in inputs if name not in names]:
        raise InputError(f"unknown input {', '.join(map(repr, unknown))}; {taken(expected)}")
    for info in expected:
        array = inputs[info.name]
        if not isinstance(array, np.ndarray) and not hasattr(array, "__dlpack__"):
            raise InputError(
                f"input {info.name!r} is a {type(array).__name__}, not a NumPy array; "
                + taken(expected)
            )
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise InputError(
                f"input {info.name!r} has masked elements, which would be computed with: fill them"
            )
    check_sizes(expected, {name: inputs[name].shape for name in names}, dimensions)
    for info in expected:
        array = inputs[info.name]
        # TVM's tensors have the name of a type.
        if np.dtype(array.dtype) != np.dtype(info.dtype):
            raise InputError(
                f"input {info.name!r} has dtype {array.dtype}, expected {info.dtype}: convert it; "
                + taken(expected)
            )
        if info.is_finite and isinstance(array, np.ndarray) and not np.isfinite(array).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise InputError(
                f"input {info.name!r} has {array[place]} at {place}; the model was compiled for "
                "numbers that are finite (--finite)"
            )
