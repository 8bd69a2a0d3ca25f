"""Compare given inputs with the inputs of a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from boltgen.artifact.metadata import DimensionInfo, TensorInfo
from boltgen.errors import InputError
from boltgen.intake.numerals import counted
from boltgen.running.sizes import check_sizes, taken

# By name, by position, or the single input of a model.
Inputs: TypeAlias = Mapping[str, Any] | Sequence[Any] | Any


class Tensor(Protocol):
    """A value with a shape and an element type: a NumPy array, or a TVM tensor on a device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the dimensions."""

    @property
    def dtype(self) -> Any:
        """The element type: a NumPy dtype, or its name."""


def named_inputs(expected: Sequence[TensorInfo], given: Inputs) -> dict[str, Any]:
    """Return the inputs by name, from a mapping, a list in the model's order, or a single input.

    Raises:
        InputError: the inputs have another form, or their number is wrong.
    """
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if _is_tensor(given):
        given = [given]
    if not isinstance(given, (list, tuple)):
        kind = "None" if given is None else f"a {type(given).__name__}"
        raise InputError(
            f"the inputs are {kind}: give a mapping of names to arrays, or a list of arrays in the "
            f"model's order; {taken(expected)}"
        )
    if len(given) != len(expected):
        raise InputError(
            f"{counted(len(given), 'input')} given for {len(expected)}; {taken(expected)}"
        )
    return {info.name: value for info, value in zip(expected, given, strict=True)}


def _is_tensor(value: object) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def _element(dtype: Any) -> str:
    """Return an element type's name: NumPy's, ml_dtypes', or PyTorch's without its prefix."""
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return str(dtype).removeprefix("torch.")


def check_inputs(
    expected: tuple[TensorInfo, ...],
    inputs: Mapping[str, Tensor],
    dimensions: Sequence[DimensionInfo] = (),
) -> None:
    """Compare arrays, or tensors on a device, with the inputs of the model.

    Raises:
        InputError: a name, shape or dtype differs (the message has both values); shapes contradict
            each other or leave a range of `dimensions` (see `check_sizes`); or an input on the host
            has NaN or an infinity although the model was compiled for finite numbers.
    """
    names = [info.name for info in expected]
    unknown = [name for name in inputs if name not in names]
    if missing := [name for name in names if name not in inputs]:
        given = f", but {', '.join(map(repr, unknown))}, which it does not take" if unknown else ""
        raise InputError(f"no input {', '.join(map(repr, missing))}{given}; {taken(expected)}")
    if unknown:
        raise InputError(f"unknown input {', '.join(map(repr, unknown))}; {taken(expected)}")
    for info in expected:
        array = inputs[info.name]
        if not _is_tensor(array):
            raise InputError(
                f"input {info.name!r} is a {type(array).__name__}, not a NumPy array; "
                + taken(expected)
            )
        if _is_masked(array):
            raise InputError(
                f"input {info.name!r} has masked elements, which would be computed with: fill them"
            )
    check_sizes(expected, {name: inputs[name].shape for name in names}, dimensions)
    for info in expected:
        array = inputs[info.name]
        if (found := _element(array.dtype)) != info.dtype:
            raise InputError(
                f"input {info.name!r} has dtype {found}, expected {info.dtype}: convert it; "
                + taken(expected)
            )
        if info.is_finite and isinstance(array, np.ndarray) and not np.isfinite(array).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise InputError(
                f"input {info.name!r} has {array[place]} at {place}; the model was compiled for "
                "numbers that are finite (--finite)"
            )


def _is_masked(array: Any) -> bool:
    # The name `np.ma` imports a module of 50 ms. Who has a masked array has imported it.
    masks = sys.modules.get("numpy.ma")
    return masks is not None and isinstance(array, masks.MaskedArray) and masks.is_masked(array)
