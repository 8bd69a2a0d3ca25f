"""Named arrays in `.npz` files, the inputs and outputs of the command line."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from boltgen.errors import InputError
from boltgen.intake.files import open_regular, written_whole
from boltgen.intake.unpacking import check_zip
from boltgen.ir.dtypes import DType

# The first bytes of a `.npy` file, which has one array.
_NPY = b"\x93NUMPY"
# A small file of zeros may expand to this size; a larger expansion may be an attack.
_HARMLESS_BYTES = 1 << 30
# NumPy's format cannot name BF16 and stores it as two untyped bytes.
_NAMELESS = np.dtype("V2")

# Marks boltgen's files.
_COMMENT = b"boltgen"

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


def read_arrays(path: Path) -> Arrays:
    """Read the arrays of an `.npz` file by name; BF16 arrays get `ml_dtypes`' type.

    Raises:
        InputError: the file cannot be read, or is not an `.npz` file.
    """
    remedy = "write one with numpy.savez(path, name=array)"
    try:
        with open_regular(path) as file:
            if file.read(len(_NPY)) == _NPY:
                raise InputError(f"{path} holds one array without a name; {remedy}")
            check_zip(file, _HARMLESS_BYTES)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _typed(arrays[name]) for name in arrays.files}
    except InputError:
        raise
    except Exception as error:  # NumPy and zipfile raise any type for a damaged file
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise InputError(f"{path} cannot be read as an .npz file ({reason}); {remedy}") from error


def sample_of(given: Mapping[str, np.ndarray[Any, Any]] | Path | str) -> Mapping[str, Any]:
    """Return arrays by the names of inputs, which may be in an `.npz` file.

    Raises:
        InputError: the file cannot be read, or is not an `.npz` file.
    """
    return read_arrays(Path(given)) if isinstance(given, (str, Path)) else given


def _typed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array`, with BF16 restored: NumPy's format does not store this type."""
    return array.view(DType.BF16.numpy) if array.dtype == _NAMELESS else array


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write `arrays` to the `.npz` file `path`, with any names.

    Raises:
        InputError: the file cannot be written, or exists and boltgen did not write it.
    """
    try:
        with (
            written_whole(path, _is_ours) as staged,
            zipfile.ZipFile(staged, "w") as archive,
        ):
            archive.comment = _COMMENT
            for name, array in arrays.items():
                # The member's name is the array's name; numpy.savez cannot write an array called
                # "file".
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be written: {reason}") from error


def _is_ours(file: BinaryIO) -> bool:
    """Return whether `write_arrays` wrote a file."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return archive.comment == _COMMENT
