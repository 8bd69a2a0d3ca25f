"""A compiled model: a folder that is saved, loaded and run.

model.so        the library, the same file for a GPU and for the virtual GPU
metadata.json   inputs, outputs, arch, kernels and configurations, versions
sources/        the generated C++
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.errors import ArtifactError, InputError
from boltgen.runtime.loaded import LoadedModel, LoadedRelaxModel, LoadedRelayModel
from boltgen.runtime.metadata import (
    FILE_NAME,
    DimensionInfo,
    Metadata,
    TensorInfo,
    read_metadata,
)

LIBRARY = "model.so"
SOURCES = "sources"

# What the cache adds to an artifact that it keeps.
CACHE_MANIFEST = "manifest.json"
_MOST_SHOWN = 400


class Artifact:
    """A compiled model in `folder`.

    `keep` is an object whose lifetime the folder's is bound to: a temporary folder, for a model
    that has not been saved yet.
    """

    def __init__(self, folder: Path, metadata: Metadata, keep: object = None) -> None:
        self.folder = folder
        self.metadata = metadata
        self._keep = keep
        self._loaded: dict[str, LoadedModel] = {}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Artifact:
        """The artifact that `save` wrote to `folder`.

        Raises:
            ArtifactError: there is none, or it is damaged or of another version.
        """
        path = Path(folder)
        metadata = read_metadata(path)
        library = path / LIBRARY
        if not library.is_file():
            raise ArtifactError(f"{path} has no {LIBRARY}: it is incomplete; compile it again")
        try:
            found = file_digest(library)
        except OSError as error:
            raise ArtifactError(f"{library} cannot be read: {error.strerror or error}") from error
        if found != metadata.library_sha256:
            raise ArtifactError(
                f"{library} is not the file that was compiled (its SHA-256 differs from that in "
                f"{FILE_NAME}); compile the model again"
            )
        return cls(path.resolve(), metadata)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copy the artifact to `folder`, which appears whole or not at all.

        An artifact that is already there is replaced.

        Raises:
            ArtifactError: `folder` holds something else, or cannot be written.
        """
        target = replaceable(folder)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # A short name: the target may have the longest that the file system takes.
            with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=target.parent) as name:
                staged = Path(name) / "new"
                staged.mkdir()
                mode = staged.stat().st_mode  # the user's choice; a temporary folder's is 0700
                shutil.copytree(self.folder, staged, dirs_exist_ok=True)
                staged.chmod(mode)
                (staged / CACHE_MANIFEST).unlink(missing_ok=True)
                self.metadata.write(staged)
                if target.exists():
                    target.rename(Path(name) / "old")
                staged.rename(target)
        except OSError as error:
            raise _unwritable(target, error) from error
        return target

    def worth_opening(self) -> list[Path]:
        """The files that a person may want to read."""
        kernels = [self.folder / kernel.source for kernel in self.metadata.kernels[:1]]
        return [self.folder / FILE_NAME, *kernels, self.folder / SOURCES]

    def run(
        self, inputs: Mapping[str, np.ndarray[Any, Any]], device: str = "vgpu"
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run the model once on `device` ("vgpu" or "cuda"); the outputs by name.

        The library stays loaded for the next run.

        Raises:
            InputError: a name, shape or dtype is not what the model takes.
            DeviceError: the device is not there, cannot run the model, or reports a fault.
        """
        check_inputs(self.metadata.inputs, inputs, self.metadata.dimensions)
        loaded = self._loaded.get(device)
        if loaded is None:
            kind = LoadedRelayModel if self.metadata.frontend == "relay" else LoadedRelaxModel
            loaded = kind(self.folder / LIBRARY, self.metadata, device)
            self._loaded[device] = loaded
        return loaded.run([np.ascontiguousarray(inputs[i.name]) for i in self.metadata.inputs])


def check_inputs(
    expected: tuple[TensorInfo, ...],
    inputs: Mapping[str, np.ndarray[Any, Any]],
    dimensions: Sequence[DimensionInfo] = (),
) -> None:
    """Compare arrays with what the model takes.

    Raises:
        InputError: a name, shape or dtype differs; the message has both. Or one of the `dimensions`
            is out of its range; the message has the input, the dimension and the range.
    """
    ranges = {each.name: each for each in dimensions}
    names = [info.name for info in expected]
    takes = "the model takes " + "; ".join(map(str, expected))
    if missing := [name for name in names if name not in inputs]:
        raise InputError(f"no input {', '.join(map(repr, missing))}; {takes}")
    if unknown := [name for name in inputs if name not in names]:
        raise InputError(f"unknown input {', '.join(map(repr, unknown))}; {takes}")
    known: dict[str, int] = {}
    for info in expected:
        array = inputs[info.name]
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"input {info.name!r} is a {type(array).__name__}, not a NumPy array; {takes}"
            )
        if not _fits(array.shape, info.shape, known):
            named = "".join(f", with {name} = {value}" for name, value in known.items())
            raise InputError(
                f"input {info.name!r} has shape {tuple(array.shape)}, expected {info.shape}"
                f"{named}; {takes}"
            )
        for name, value in zip(info.shape or (), array.shape, strict=False):
            limits = ranges.get(str(name))
            if limits and not limits.low <= value <= limits.high:
                raise InputError(
                    f"input {info.name!r} has {name} = {value}, the model was compiled for "
                    f"{limits.low} to {limits.high}: compile it with another range, for instance "
                    f"--shape {info.name}={_suggested(info.shape or (), array.shape, ranges)}"
                )
        if array.dtype != np.dtype(info.dtype):
            raise InputError(
                f"input {info.name!r} has dtype {array.dtype}, expected {info.dtype}; {takes}"
            )


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


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def replaceable(folder: str | os.PathLike[str]) -> Path:
    """The absolute path of `folder`, where an artifact can be saved; nothing is written.

    Raises:
        ArtifactError: `folder` holds something else, or cannot be a folder's path.
    """
    target = Path(folder)
    try:
        target = target.absolute()
        if target.exists() and not _is_replaceable(target):
            raise ArtifactError(
                f"{target} exists and is no compiled model; it is left as it is: "
                "give another folder"
            )
        return target
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> ArtifactError:
    # The name of a path that is too long says nothing in full.
    name = str(target) if len(str(target)) <= _MOST_SHOWN else f"{str(target)[:_MOST_SHOWN]}..."
    return ArtifactError(f"{name} cannot be written: {error.strerror or error}")


def _is_replaceable(target: Path) -> bool:
    if not target.is_dir():
        return False
    is_artifact = (target / FILE_NAME).is_file() and (target / LIBRARY).is_file()
    return is_artifact or not any(target.iterdir())


def load(folder: str | os.PathLike[str]) -> Artifact:
    """The artifact that `Artifact.save` or `boltgen compile` wrote to `folder`.

    Raises:
        ArtifactError: there is none, or it is damaged or of another version.
    """
    return Artifact.load(folder)
