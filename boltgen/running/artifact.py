"""A compiled model: a folder that is saved, loaded and run.

model.so            the library, the same file for a GPU and for the virtual GPU
metadata.json       inputs, outputs, arch, kernels and configurations, versions
sources/            the generated C++
metadata.json.sig   the signature, if the artifact is signed; see `signature`
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.artifact.metadata import FILE_NAME, Metadata, read_metadata
from boltgen.artifact.signature import SIGNATURE, check_signature
from boltgen.errors import ArtifactError
from boltgen.intake.json_text import JsonError, read_json
from boltgen.running.inputs import Inputs, check_inputs, named_inputs
from boltgen.running.loaded import loaded_library
from boltgen.running.session import Session
from boltgen.settings import settings_from

LIBRARY = "model.so"
SOURCES = "sources"

# The files that the cache adds to an artifact.
CACHE_MANIFEST = "manifest.json"
_MOST_SHOWN = 400
_MOST_NAMED = 5


class Artifact:
    """A compiled model in `folder`.

    `keep` is an object that keeps the folder alive: the temporary folder of a model that is not
    saved.
    """

    def __init__(self, folder: Path, metadata: Metadata, keep: object = None) -> None:
        self.folder = folder
        self.metadata = metadata
        self._keep = keep
        self._sessions: dict[str, Session] = {}
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(map(str, infos)) for infos in (self.metadata.inputs, self.metadata.outputs)
        )
        return (
            f"<Artifact {self.metadata.model!r} for {self.metadata.arch}: "
            f"{inputs or 'no inputs'} -> {outputs}>"
        )

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, trusted_keys: Sequence[Path] | None = None
    ) -> Artifact:
        """Load the artifact that `save` wrote to `folder`.

        With `trusted_keys`, public keys in PEM files, the artifact must be signed by one of them.
        The default is the keys of BOLTGEN_TRUSTED_KEYS.

        Raises:
            ArtifactError: there is no artifact, it is damaged or of another version, or its
                signature is missing or wrong.
            BoltgenError: a trusted key cannot be read.
        """
        path = Path(folder)
        metadata = read_metadata(path)
        keys = settings_from().trusted_keys if trusted_keys is None else trusted_keys
        if keys:
            check_signature(path, keys)
        library = path / LIBRARY
        if not library.is_file():
            raise ArtifactError(f"{path} has no {LIBRARY}: it is incomplete; compile it again")
        _check_digest(library, metadata.library_sha256)
        for name, digest in metadata.sources_sha256.items():
            # The library may be shipped without its sources.
            if (path / name).exists():
                _check_digest(path / name, digest)
        return cls(path.resolve(), metadata)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copy the artifact to `folder`, which appears complete or not at all.

        An existing artifact is replaced, unless its folder has other files. The copy is not signed.

        Raises:
            ArtifactError: `folder` has something else, or cannot be written.
        """
        target = replaceable(folder)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # A short name, because the target's name may have the greatest length of the file
            # system.
            with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=target.parent) as name:
                staged = Path(name) / "new"
                staged.mkdir()
                mode = staged.stat().st_mode  # the user's choice; a temporary folder's is 0700
                _copy_tree(self.folder, staged)
                staged.chmod(mode)
                for left_out in (CACHE_MANIFEST, SIGNATURE):
                    (staged / left_out).unlink(missing_ok=True)
                self.metadata.write(staged)
                if target.exists():
                    target.rename(Path(name) / "old")
                staged.rename(target)
        except OSError as error:
            raise _unwritable(target, error) from error
        return target

    def worth_opening(self) -> list[Path]:
        """Return the files that a person may want to read."""
        kernels = [self.folder / kernel.source for kernel in self.metadata.kernels[:1]]
        return [self.folder / FILE_NAME, *kernels, self.folder / SOURCES]

    def run(self, inputs: Inputs, device: str = "vgpu") -> dict[str, np.ndarray[Any, Any]]:
        """Run the model once on `device` ("vgpu" or "cuda"); return the outputs by name.

        Inputs are given by name, or in a list by position; a model with one input takes it alone.
        Each is a NumPy array, a PyTorch tensor, or another object with DLPack.

        The library stays loaded for the next run. Any thread may call it, but calls wait for each
        other, because they share one session. To run several at once, `open` a session for each
        thread.

        Raises:
            InputError: a name, shape or dtype does not fit the model.
            DeviceError: the device does not exist, cannot run the model, or reports a fault.
        """
        if device not in self._sessions:
            # Report wrong inputs before the device is used.
            named = named_inputs(self.metadata.inputs, inputs)
            check_inputs(self.metadata.inputs, named, self.metadata.dimensions)
        with self._opening:
            session = self._sessions.get(device)
            if session is None:
                session = self._sessions[device] = self.open(device)
        return session.run(inputs)

    def open(self, device: str = "vgpu", *, graphs: int = 0) -> Session:
        """Open a session on `device` ("vgpu" or "cuda"), with the model's weights on the device.

        It keeps at most `graphs` CUDA graphs, one per combination of input sizes; each graph has
        its own memory for a run. Models of the frontend Relay have no graphs.

        Raises:
            DeviceError: the device does not exist or cannot run the model.
            ArtifactError: TVM cannot load the library.
        """
        return Session(loaded_library(self.folder / LIBRARY, self.metadata, device), graphs)


def _check_digest(path: Path, digest: str) -> None:
    try:
        found = file_digest(path)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != digest:
        raise ArtifactError(
            f"{path} is not the file that was compiled (its SHA-256 differs from that in "
            f"{FILE_NAME}); compile the model again"
        )


def source_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in an artifact's `sources`, by its path in `folder`."""
    files = sorted(each for each in (folder / SOURCES).rglob("*") if each.is_file())
    return {each.relative_to(folder).as_posix(): file_digest(each) for each in files}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a folder's contents; stop at the first failure, unlike shutil."""
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir()
        else:
            shutil.copy2(path, copy)


def replaceable(folder: str | os.PathLike[str]) -> Path:
    """Return the absolute path of `folder` after a check that an artifact can be saved there.

    Raises:
        ArtifactError: `folder` has something else, or cannot be written.
    """
    target = Path(folder)
    try:
        target = target.resolve() if target.is_symlink() else target.absolute()
        if os.path.lexists(target) and not _is_replaceable(target):
            raise ArtifactError(
                f"{target} exists and is no compiled model; it is left as it is: "
                "give another folder"
            )
        if others := _others(target):
            named = ", ".join(others[:_MOST_NAMED]) + (" ..." if len(others) > _MOST_NAMED else "")
            raise ArtifactError(
                f"{target} holds a compiled model, and also what boltgen did not write: {named}; "
                "it is left as it is: move that away, or give another folder"
            )
        existing = next(each for each in target.parents if each.exists())
        with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=existing):
            return target
    except OSError as error:
        raise _unwritable(target, error) from error


def _others(target: Path) -> list[str]:
    """List the files in an artifact's folder that `save` did not write, or that were changed."""
    if not target.exists():
        return []
    own = {FILE_NAME, SIGNATURE, LIBRARY, SOURCES}
    others = [each.name for each in target.iterdir() if each.name not in own]
    digests = _digests(target) or {}
    for path in (target / SOURCES).rglob("*"):
        name = path.relative_to(target).as_posix()
        is_ours = path.is_dir() or (path.is_file() and digests.get(name) == file_digest(path))
        others += [] if is_ours else [name]
    return sorted(others)


def _digests(target: Path) -> Mapping[str, Any] | None:
    """Return the digests of an artifact's sources, or None if its metadata is not boltgen's.

    Other fields may be damaged, because a damaged artifact may be replaced.
    """
    try:
        form = read_json(target / FILE_NAME)
    except (OSError, JsonError):
        return None
    if not isinstance(form, dict) or "library_sha256" not in form:
        return None
    digests = form.get("sources_sha256")
    return digests if isinstance(digests, dict) else {}


def _unwritable(target: Path, error: OSError) -> ArtifactError:
    # A path that is too long is not shown in full.
    name = str(target) if len(str(target)) <= _MOST_SHOWN else f"{str(target)[:_MOST_SHOWN]}..."
    return ArtifactError(f"{name} cannot be written: {error.strerror or error}")


def _is_replaceable(target: Path) -> bool:
    if not target.is_dir():
        return False
    return not any(target.iterdir()) or _digests(target) is not None


def load(folder: str | os.PathLike[str]) -> Artifact:
    """Load the artifact that `Artifact.save` or `boltgen compile` wrote to `folder`.

    Raises:
        ArtifactError: there is no artifact, or it is damaged, not signed as required, or of another
            version.
    """
    return Artifact.load(folder)
