"""The models of a server, which are found in folders, and loaded or unloaded while it runs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.artifact.metadata import FILE_NAME
from boltgen.errors import (
    BoltgenError,
    DeviceError,
    NotReadyError,
    ServingError,
    UnknownModelError,
)
from boltgen.serve.model import ServedModel

_log = logging.getLogger("boltgen.serve")

# The version of a model whose folder has no versions.
ONLY_VERSION = "1"
_SUFFIX = ".boltgen"
_MOST_DIGITS = 18

Load = Callable[[str, str, Path], ServedModel]


@dataclass(frozen=True, slots=True)
class Source:
    """A folder for models: it is a model, or contains versions of a model, or several models.

    With a `name` it is that model, or contains its versions.
    """

    folder: Path
    name: str | None = None


def source_of(text: str) -> Source:
    """Parse an argument of the command line: `DIR` or `NAME=DIR`.

    Raises:
        ServingError: the text names no folder, or the name cannot be in a URL's path.
    """
    name, equals, folder = text.partition("=")
    source = Source(Path(folder), name) if equals and name else Source(Path(text))
    if not source.folder.is_dir():
        raise ServingError(f"{source.folder} is no folder; give one that `boltgen compile` wrote")
    return source


def found_models(sources: Sequence[Source]) -> dict[str, dict[str, Path]]:
    """Return the folders of compiled models, by name and version.

    Raises:
        ServingError: a source has no models, or two models have the same name and version.
    """
    found: dict[str, dict[str, Path]] = {}
    for source in sources:
        models = _models_in(source)
        if not models:
            raise ServingError(
                f"{source.folder} holds no compiled model: a model is a folder with {FILE_NAME}, "
                "as DIR, DIR/MODEL, DIR/VERSION or DIR/MODEL/VERSION"
            )
        for name, versions in models.items():
            for version, folder in versions.items():
                other = found.setdefault(name, {}).setdefault(version, folder)
                if other != folder:
                    raise ServingError(
                        f"{other} and {folder} are both version {version} of model {name!r}: give "
                        "one of them another name, as NAME=DIR"
                    )
    return found


def _models_in(source: Source) -> dict[str, dict[str, Path]]:
    name = source.name or source.folder.resolve().name.removesuffix(_SUFFIX)
    if _is_model(source.folder):
        return {_usable(name): {ONLY_VERSION: source.folder}}
    if versions := _versions_in(source.folder):
        return {_usable(name): versions}
    if source.name is not None:
        return {}
    models: dict[str, dict[str, Path]] = {}
    for folder in sorted(source.folder.iterdir()):
        if folder.is_dir():
            models |= _models_in(Source(folder, folder.name.removesuffix(_SUFFIX)))
    return models


def _versions_in(folder: Path) -> dict[str, Path]:
    found = [each for each in folder.iterdir() if _is_version(each.name) and _is_model(each)]
    return {each.name: each for each in sorted(found, key=lambda each: int(each.name))}


def _is_model(folder: Path) -> bool:
    return (folder / FILE_NAME).is_file()


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS


def _usable(name: str) -> str:
    if not name or "/" in name or not name.isprintable():
        raise ServingError(f"{name!r} cannot be a model's name: give one, as NAME=DIR")
    return name


class Repository:
    """The models of a server, loaded or loadable; any thread may use it.

    Each load searches the folders again, so models and versions may appear and disappear.
    """

    def __init__(self, sources: Sequence[Source], load: Load) -> None:
        self._sources = sources
        self._load = load
        self._models: dict[str, dict[str, ServedModel]] = {}
        # Names of models that are being loaded, or wait to be loaded.
        self._coming: frozenset[str] = frozenset()
        # Names of models that a client has unloaded and may load again.
        self._unloaded: frozenset[str] = frozenset()
        # One load or unload at a time; requests do not wait for it.
        self._changing = threading.Lock()

    def load_all(self) -> None:
        """Load every model of every source.

        Raises:
            BoltgenError: a model cannot be loaded.
        """
        names = list(found_models(self._sources))
        self._coming |= set(names)
        for name in names:
            self.load(name)

    def load(self, name: str) -> None:
        """Load all versions of a model; they replace the loaded versions once they run.

        Raises:
            UnknownModelError: no source has the model.
            BoltgenError: the model cannot be loaded; the loaded versions stay.
        """
        with self._changing:
            folders = found_models(self._sources).get(name)
            if folders is None:
                raise UnknownModelError(f"no folder of the server has a model {name!r}")
            _log.info("loading", extra={"event": "load", "model": name})
            fresh: dict[str, ServedModel] = {}
            self._coming, self._unloaded = self._coming | {name}, self._unloaded - {name}
            try:
                for version, folder in folders.items():
                    fresh[version] = self._load(name, version, folder)
                old = self._models.get(name, {})
                self._models = self._models | {name: fresh}
            except BaseException:
                for model in fresh.values():
                    model.close()
                raise
            finally:
                self._coming -= {name}
            for model in old.values():
                model.close()
            _log.info("ready", extra={"event": "ready", "model": name, "versions": list(fresh)})

    def unload(self, name: str) -> None:
        """Answer the waiting requests of a model, and unload it.

        Raises:
            UnknownModelError: the model is not loaded.
        """
        with self._changing:
            if name not in self._models:
                raise UnknownModelError(f"model {name!r} is not loaded")
            old = self._models[name]
            with contextlib.suppress(BoltgenError):  # the model's folder may be gone
                self._unloaded |= {name} & found_models(self._sources).keys()
            self._models = {other: each for other, each in self._models.items() if other != name}
            for model in old.values():
                model.close()
            _log.info("unloaded", extra={"event": "unload", "model": name})

    def hurry(self) -> None:
        """Run waiting requests without waiting for others, because the server ends."""
        for versions in self._models.values():
            for model in versions.values():
                model.hurry()

    def close(self) -> None:
        """Unload all models."""
        for name in list(self._models):
            self.unload(name)

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """Return a version of a model, the highest if no version is named.

        Raises:
            UnknownModelError: there is no such model or version.
            NotReadyError: the model is being loaded, or was unloaded.
        """
        is_coming = name in self._coming
        versions = self._models.get(name)
        if not versions:
            if is_coming:
                raise NotReadyError(f"model {name!r} is being loaded: try again later")
            if name in self._unloaded:
                raise NotReadyError(f"model {name!r} was unloaded: load it first")
            known = ", ".join(map(repr, self._models)) or "none"
            raise UnknownModelError(f"unknown model {name!r}; the server has {known}")
        if not version:
            return versions[max(versions, key=int)]
        if version not in versions:
            raise UnknownModelError(
                f"model {name!r} has no version {version!r}, only {', '.join(self.versions(name))}"
            )
        return versions[version]

    def versions(self, name: str) -> list[str]:
        """Return the loaded versions of a model, oldest first."""
        return sorted(self._models.get(name, {}), key=int)

    def models(self) -> Mapping[str, Mapping[str, ServedModel]]:
        """Return all loaded models, by name and version."""
        return self._models

    def index(self) -> list[dict[str, str]]:
        """Return each version of each model, loaded or not, as the repository extension has it."""
        listed: list[dict[str, str]] = []
        found, loaded = found_models(self._sources), self._models
        for name in {**found, **loaded}:
            # A loaded model answers even if its folder has changed or disappeared.
            for version in {**found.get(name, {}), **loaded.get(name, {})}:
                model = loaded.get(name, {}).get(version)
                state = "READY" if model and model.is_ready else "UNAVAILABLE"
                reason = "" if model is None or model.is_ready else "the device reported a fault"
                listed.append({"name": name, "version": version, "state": state, "reason": reason})
        return listed

    def is_ready(self) -> bool:
        """Return whether all loaded models answer."""
        loaded = [model for versions in self._models.values() for model in versions.values()]
        return all(model.is_ready for model in loaded)

    def require_ready(self, name: str, version: str | None = None) -> None:
        """Raise an error unless a model answers requests.

        Raises:
            UnknownModelError: there is no such model.
            NotReadyError: the model has failed, or is being loaded.
        """
        if not self.model(name, version).is_ready:
            raise NotReadyError(f"model {name!r} has failed: the device reported a fault")


def one_arch(models: Mapping[str, Mapping[str, ServedModel]], name: str, arch: str) -> None:
    """Reject a model of another architecture than the loaded ones: a process has one virtual GPU.

    Raises:
        DeviceError: a loaded model has another architecture.
    """
    for versions in models.values():
        for model in versions.values():
            if model.metadata.arch != arch:
                raise DeviceError(
                    f"model {name!r} was compiled for {arch}, {model.name!r} for "
                    f"{model.metadata.arch}: one process has one virtual GPU; serve them apart"
                )
