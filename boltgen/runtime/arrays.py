"""Named arrays in `.npz` files: how the command line takes inputs and gives outputs."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from boltgen.errors import InputError

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


def read_arrays(path: Path) -> Arrays:
    """The arrays of an `.npz` file by name.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    remedy = "write one with numpy.savez(path, name=array)"
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds one array without a name; {remedy}")
        with arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as an .npz file ({error}); {remedy}") from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write `arrays` to the `.npz` file `path`, whatever their names are.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                # An array's name is its member's name; numpy.savez cannot write one called "file".
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {error}") from error
