"""Named arrays in `.npz` files: the inputs and outputs of the command line."""

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

# The first bytes of a file that holds one array.
_NPY = b"\x93NUMPY"
# Inputs of a batch of zeros shrink to nothing, and are no attack.
_HARMLESS_BYTES = 1 << 30
# NumPy's format has no name for BF16 and stores two bytes of any kind.
_NAMELESS = np.dtype("V2")

# Tells our files from other programs' files.
_COMMENT = b"boltgen"

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


def read_arrays(path: Path) -> Arrays:
    """Read the arrays of an `.npz` file by name; BF16 arrays have `ml_dtypes`' type.

    Raises:
        InputError: it cannot be read, or is no such file.
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


def _typed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array`, or the BF16 numbers that it was: NumPy's format does not store their type."""
    return array.view(DType.BF16.numpy) if array.dtype == _NAMELESS else array


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write `arrays` to the `.npz` file `path`, whatever their names are.

    Raises:
        InputError: it cannot be written, or another program wrote a file of that name.
    """
    try:
        with (
            written_whole(path, _is_ours) as staged,
            zipfile.ZipFile(staged, "w") as archive,
        ):
            archive.comment = _COMMENT
            for name, array in arrays.items():
                # An array's name is its member's name; numpy.savez cannot write one called "file".
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be written: {reason}") from error


def _is_ours(file: BinaryIO) -> bool:
    """Whether `write_arrays` wrote a file."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return archive.comment == _COMMENT
