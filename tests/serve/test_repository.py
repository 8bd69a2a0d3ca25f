"""Which folders are which models, and what is loaded when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boltgen.errors import (
    ArtifactError,
    DeviceError,
    NotReadyError,
    ServingError,
    UnknownModelError,
)
from boltgen.serve.repository import Repository, Source, found_models, one_arch, source_of


def made(folder: Path) -> Path:
    """A folder that looks like a compiled model."""
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text("{}")
    return folder


class Model:
    def __init__(self, name: str, version: str, folder: Path) -> None:
        self.name, self.version, self.folder = name, version, folder
        self.is_ready, self.is_closed = True, False

    def close(self) -> None:
        self.is_closed = True


def repository(*sources: Source, load: Any = Model) -> Repository:
    return Repository(sources, load)


def test_folders_become_models_and_versions(tmp_path: Path) -> None:
    alone = made(tmp_path / "alone.boltgen")
    for version in ("1", "12", "3"):
        made(tmp_path / "many" / "versions" / version)
    made(tmp_path / "many" / "other.boltgen")
    (tmp_path / "many" / "notes").mkdir()
    sources = [
        source_of(str(alone)),
        source_of(str(tmp_path / "many")),
        source_of(f"named={alone}"),
        source_of(f"again={tmp_path / 'many' / 'versions'}"),
    ]
    found = found_models(sources)
    assert {name: list(versions) for name, versions in found.items()} == {
        "alone": ["1"],
        "versions": ["1", "3", "12"],
        "other": ["1"],
        "named": ["1"],
        "again": ["1", "3", "12"],
    }
    models = repository(*sources)
    models.load_all()
    assert models.model("versions").version == "12"
    assert models.model("versions", "3").version == "3"


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="absent is no folder"):
        source_of(str(tmp_path / "absent"))
    for text in (str(tmp_path), f"named={tmp_path}"):
        with pytest.raises(ServingError, match=r"holds no compiled model.*metadata\.json"):
            found_models([source_of(text)])


def test_two_models_of_one_name(tmp_path: Path) -> None:
    one, other = made(tmp_path / "a" / "m"), made(tmp_path / "b" / "m")
    with pytest.raises(ServingError, match=r"version 1 of model 'm'.*NAME=DIR"):
        found_models([Source(one), Source(other)])
    assert set(found_models([Source(one), Source(other, "n")])) == {"m", "n"}


def test_what_is_loaded_anew_replaces_what_was_once_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    made(folder / "1")
    models = repository(Source(folder))
    models.load_all()
    old = models.model("m")
    made(folder / "2")
    models.load("m")
    assert (models.model("m").version, models.versions("m")) == ("2", ["1", "2"])
    assert old.is_closed
    with pytest.raises(UnknownModelError, match="no version '3', only 1, 2"):
        models.model("m", "3")


def test_what_cannot_be_loaded_leaves_what_runs(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    made(folder / "1")
    loaded: list[Model] = []

    def load(name: str, version: str, path: Path) -> Model:
        if version == "2":
            raise ArtifactError("model.so is not the file that was compiled")
        loaded.append(Model(name, version, path))
        return loaded[-1]

    models = repository(Source(folder), load=load)
    models.load_all()
    made(folder / "2")
    with pytest.raises(ArtifactError, match=r"model\.so"):
        models.load("m")
    assert models.model("m") is loaded[0]
    assert [model.is_closed for model in loaded] == [False, True]


def test_models_that_are_unloaded(tmp_path: Path) -> None:
    models = repository(Source(made(tmp_path / "m")))
    models.load_all()
    model = models.model("m")
    models.unload("m")
    assert model.is_closed
    with pytest.raises(NotReadyError, match="model 'm' was unloaded: load it first"):
        models.model("m")
    with pytest.raises(UnknownModelError, match="'m' is not loaded"):
        models.unload("m")
    with pytest.raises(UnknownModelError, match="'other'"):
        models.load("other")
    assert models.is_ready()
    models.load("m")
    models.model("m").is_ready = False
    assert not models.is_ready()
    assert [each["state"] for each in models.index()] == ["UNAVAILABLE"]


def test_a_model_that_is_unloaded_and_whose_folder_is_gone_is_unknown(tmp_path: Path) -> None:
    made(tmp_path / "kept")
    folder = made(tmp_path / "m")
    models = repository(Source(tmp_path))
    models.load_all()
    (folder / "metadata.json").unlink()
    models.unload("m")
    with pytest.raises(UnknownModelError, match="unknown model 'm'"):
        models.model("m")


def test_what_is_loaded_is_listed_without_its_folder(tmp_path: Path) -> None:
    made(tmp_path / "kept")
    folder = made(tmp_path / "m" / "1")
    models = repository(Source(tmp_path))
    models.load("m")
    (folder / "metadata.json").unlink()
    states = {each["name"]: each["state"] for each in models.index()}
    assert states == {"kept": "UNAVAILABLE", "m": "READY"}


def test_one_process_has_one_virtual_gpu() -> None:
    class Metadata:
        arch = "sm_80"

    model = Model("m", "1", Path())
    model.metadata = Metadata()  # type: ignore[attr-defined]
    models: Any = {"m": {"1": model}}
    one_arch(models, "n", "sm_80")
    with pytest.raises(DeviceError, match="'n' was compiled for sm_90a, 'm' for sm_80"):
        one_arch(models, "n", "sm_90a")


def test_a_model_that_is_being_loaded_is_not_unknown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made(tmp_path / name)
    asked: list[str] = []

    def load(name: str, version: str, folder: Path) -> Model:
        for other in ("a", "b", "c"):
            try:
                models.model(other)
                asked.append(f"{other} answers")
            except (NotReadyError, UnknownModelError) as error:
                asked.append(f"{other} {type(error).__name__}")
        if len(asked) > 6:
            raise ArtifactError("damaged")
        return Model(name, version, folder)

    models = repository(Source(tmp_path), load=load)
    models.load_all()
    assert asked[:3] == ["a NotReadyError", "b NotReadyError", "c UnknownModelError"]
    assert asked[3:] == ["a answers", "b NotReadyError", "c UnknownModelError"]
    models.unload("b")
    with pytest.raises(ArtifactError):
        models.load("b")
    with pytest.raises(UnknownModelError, match="'b'"):
        models.model("b")
