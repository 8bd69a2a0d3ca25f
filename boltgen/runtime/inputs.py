"""What a model takes, compared with what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from boltgen.errors import InputError
from boltgen.runtime.metadata import DimensionInfo, TensorInfo


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
        InputError: a name, shape or dtype differs; the message has both. Or one of the `dimensions`
            is out of its range; the message has the input, the dimension and the range. Or there is
            NaN or an infinity, on the host, where the model takes none.
    """
    ranges = {each.name: each for each in dimensions}
    names = [info.name for info in expected]
    if missing := [name for name in names if name not in inputs]:
        raise InputError(f"no input {', '.join(map(repr, missing))}; {_taken(expected)}")
    if unknown := [name for name in inputs if name not in names]:
        raise InputError(f"unknown input {', '.join(map(repr, unknown))}; {_taken(expected)}")
    known: dict[str, int] = {}
    for info in expected:
        array = inputs[info.name]
        if not isinstance(array, np.ndarray) and not hasattr(array, "__dlpack__"):
            raise InputError(
                f"input {info.name!r} is a {type(array).__name__}, not a NumPy array; "
                + _taken(expected)
            )
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise InputError(
                f"input {info.name!r} has masked elements, which would be computed with: fill them"
            )
        if not _fits(array.shape, info.shape, known):
            named = "".join(f", with {name} = {value}" for name, value in known.items())
            raise InputError(
                f"input {info.name!r} has shape {tuple(array.shape)}, expected {info.shape}"
                f"{named}; {_taken(expected)}"
            )
        for name, value in zip(info.shape or (), array.shape, strict=False):
            limits = ranges.get(str(name))
            if limits and not limits.low <= value <= limits.high:
                raise InputError(
                    f"input {info.name!r} has {name} = {value}, the model was compiled for "
                    f"{limits.low} to {limits.high}: compile it with another range, for instance "
                    f"--shape {info.name}={_suggested(info.shape or (), array.shape, ranges)}"
                )
        # TVM's tensors have the name of a type.
        if np.dtype(array.dtype) != np.dtype(info.dtype):
            raise InputError(
                f"input {info.name!r} has dtype {array.dtype}, expected {info.dtype}: convert it; "
                + _taken(expected)
            )
        if info.is_finite and isinstance(array, np.ndarray) and not np.isfinite(array).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise InputError(
                f"input {info.name!r} has {array[place]} at {place}; the model was compiled for "
                "numbers that are finite (--finite)"
            )


def _taken(expected: Sequence[TensorInfo]) -> str:
    return "the model takes " + "; ".join(map(str, expected))


def _suggested(
    shape: Sequence[int | str], found: Sequence[int], ranges: Mapping[str, DimensionInfo]
) -> str:
    """The shape that takes what was found too, as an option of the command line."""
    extents = []
    for extent, value in zip(shape, found, strict=True):
        limits = ranges.get(str(extent))
        if limits is None:
            extents.append(str(extent))
        else:
            extents.append(f"{min(limits.low, value)}..{max(limits.high, value)}")
    return ",".join(extents)


def _fits(
    shape: tuple[int, ...], expected: tuple[int | str, ...] | None, known: dict[str, int]
) -> bool:
    """Whether a shape is the one expected; a name stands for one extent wherever it is in `known`.

    Names that are met for the first time are put there. None stands for 0: sums over nothing are
    undefined in TVM.
    """
    if expected is None:
        return True
    return len(shape) == len(expected) and all(
        have == (known.setdefault(want, have) if isinstance(want, str) and have else want)
        for have, want in zip(shape, expected, strict=True)
    )
