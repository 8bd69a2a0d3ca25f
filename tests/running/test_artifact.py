"""Saving and loading compiled models, and what is said of arrays and folders that do not fit."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import boltgen
from boltgen.artifact.metadata import FILE_NAME, SCHEMA, TensorInfo
from boltgen.errors import ArtifactError, InputError
from boltgen.running.artifact import Artifact, load, replaceable
from boltgen.running.inputs import check_inputs, named_inputs
from tests.artifact.samples import HOSTILE, write_sample


@pytest.fixture
def sample(tmp_path: Path) -> Artifact:
    return write_sample(tmp_path / "sample")


def test_a_saved_artifact_loads_as_it_was(sample: Artifact, tmp_path: Path) -> None:
    sample.save(tmp_path / "deep" / "saved")
    loaded = load(tmp_path / "deep" / "saved")
    assert loaded.metadata == sample.metadata
    assert (loaded.folder / "sources" / "k.cu").read_text() == "// kernel\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["saved"]
    assert all(path.exists() for path in loaded.worth_opening())


def test_an_artifact_replaces_an_artifact_or_an_empty_folder(
    sample: Artifact, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    sample.save(target)
    (target / "metadata.json.sig").write_text("signed")
    sample.save(target)
    own = ["metadata.json", "model.so", "sources"]
    assert sorted(each.name for each in target.iterdir()) == own
    form = json.loads((target / "metadata.json").read_text())
    (target / "metadata.json").write_text(json.dumps(form | {"inputs": 7}))
    sample.save(target)  # to compile a damaged one again is the remedy
    assert load(target).metadata == sample.metadata


@pytest.mark.parametrize("name", ["notes.txt", "sources/mine.cu", "sources/k.cu", "data/x.npz"])
def test_a_file_of_the_users_in_an_artifact_is_kept(
    sample: Artifact, tmp_path: Path, name: str
) -> None:
    target = sample.save(tmp_path / "target")
    path = target / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    named = "data" if name.startswith("data") else name
    with pytest.raises(ArtifactError, match=f"boltgen did not write: {named}; it is left as it"):
        sample.save(target)
    assert path.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["sample", "target"]


def test_a_folder_of_another_program_is_kept(sample: Artifact, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "metadata.json").write_text('{"name": "mine"}')
    (target / "model.so").write_bytes(b"mine")
    with pytest.raises(ArtifactError, match="target exists and is no compiled model"):
        sample.save(target)
    assert (target / "model.so").read_bytes() == b"mine"


def test_a_link_to_an_artifact_stays_a_link(sample: Artifact, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sample.save(tmp_path / "target"))
    assert sample.save(tmp_path / "link") == tmp_path / "target"
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "link").metadata == sample.metadata


@pytest.mark.parametrize("folder", ["/proc/x", "/proc/a/b"])
def test_a_folder_that_cannot_be_written_is_found_before_work(folder: str) -> None:
    with pytest.raises(ArtifactError, match=f"{folder} cannot be written"):
        replaceable(folder)


def test_a_file_in_the_path_of_a_folder_is_found_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="out cannot be written: Not a directory"):
        replaceable(tmp_path / "file" / "out")


def test_what_is_no_artifact_is_never_overwritten(sample: Artifact, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(
        ArtifactError, match=r"home exists and is no compiled model.*another folder"
    ):
        sample.save(tmp_path / "home")
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is no compiled model"):
        sample.save(tmp_path / "file")


def test_a_save_that_fails_leaves_the_old_artifact(
    sample: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.save(tmp_path / "target")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(ArtifactError, match=r"target cannot be written: No space left on device$"):
        sample.save(tmp_path / "target")
    assert load(tmp_path / "target").metadata == sample.metadata
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sample", "target"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"it has no metadata\.json; give the folder"):
        load(tmp_path / "absent")


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("x")
    with pytest.raises(ArtifactError, match=r"model\.onnx is a file; a compiled model is a folder"):
        load(tmp_path / "model.onnx")


def test_a_library_that_is_missing(sample: Artifact) -> None:
    (sample.folder / "model.so").unlink()
    with pytest.raises(ArtifactError, match=r"has no model\.so: it is incomplete"):
        load(sample.folder)


def test_a_library_that_was_changed(sample: Artifact) -> None:
    (sample.folder / "model.so").write_bytes(b"librarz")
    with pytest.raises(ArtifactError, match=r"model\.so is not the file that was compiled"):
        load(sample.folder)


def test_a_source_that_was_changed_and_sources_that_were_left_at_home(sample: Artifact) -> None:
    path = sample.folder / "sources" / "k.cu"
    path.write_text("// another kernel\n")
    with pytest.raises(ArtifactError, match=r"k\.cu is not the file that was compiled"):
        load(sample.folder)
    shutil.rmtree(path.parent)
    load(sample.folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("\x00\xff", "cannot be read"),
        ("[]", "names no schema"),
        ("{}", "names no schema"),
        (json.dumps({"schema": SCHEMA + 1}), f"has schema {SCHEMA + 1}, .* reads {SCHEMA}"),
        (json.dumps({"schema": SCHEMA}), "incomplete or damaged"),
    ],
)
def test_metadata_that_cannot_be_used(sample: Artifact, text: str, said: str) -> None:
    (sample.folder / "metadata.json").write_text(text)
    with pytest.raises(ArtifactError, match=f"(?s){said}.*compile the model again"):
        load(sample.folder)


def test_metadata_with_a_field_too_many_or_too_few(sample: Artifact) -> None:
    path = sample.folder / "metadata.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"colour": "red"}))
    with pytest.raises(ArtifactError, match="colour: Metadata has no such field"):
        load(sample.folder)
    del values["inputs"][0]["shape"]
    path.write_text(json.dumps(values))
    with pytest.raises(ArtifactError, match="shape"):
        load(sample.folder)


INPUTS = (
    TensorInfo(name="x", shape=(2, 3), dtype="float32"),
    TensorInfo(name="n", shape=(), dtype="int64"),
)
X, N = np.zeros((2, 3), np.float32), np.array(1)


def test_arrays_that_fit() -> None:
    check_inputs(INPUTS, {"n": N, "x": X})
    check_inputs(INPUTS, {"n": N, "x": np.ma.masked_array(X)})
    check_inputs(INPUTS, {"x": np.zeros((3, 2), np.float32).T, "n": N})


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X}, "no input 'n'; the model takes x: float32[2, 3]; n: int64[]"),
        ({"x": X, "n": N, "m": N}, "unknown input 'm'; the model takes x"),
        ({"X": X, "n": N}, "no input 'x', but 'X', which it does not take; the model takes x"),
        ({"x": X[None], "n": N}, "input 'x' has shape (1, 2, 3), expected (2, 3)"),
        ({"x": X.astype(np.float64), "n": N}, "input 'x' has dtype float64, expected float32"),
        ({"x": X.tolist(), "n": N}, "input 'x' is a list, not a NumPy array"),
        ({"x": np.ma.masked_less(X, 1), "n": N}, "input 'x' has masked elements"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        check_inputs(INPUTS, arrays)


def test_inputs_by_position_and_tensors_of_pytorch() -> None:
    named = named_inputs(INPUTS, [X, N])
    assert list(named) == ["x", "n"]
    assert named["x"] is X
    alone = torch.zeros(2, 3)
    assert named_inputs(INPUTS[:1], alone)["x"] is alone
    assert named_inputs(INPUTS[:1], X)["x"] is X
    check_inputs(INPUTS, named_inputs(INPUTS, (torch.zeros(2, 3), torch.tensor(1))))
    taken = TensorInfo(name="h", shape=(2,), dtype="bfloat16")
    check_inputs((taken,), {"h": torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)})
    with pytest.raises(InputError, match="'x' has dtype float16, expected float32: convert it"):
        check_inputs(INPUTS, {"x": torch.zeros(2, 3, dtype=torch.half), "n": N})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "the inputs are None: give a mapping of names to arrays, or a list"),
        ("x.npz", "the inputs are a str: give a mapping"),
        (7, "the inputs are a int: give a mapping"),
        ([X], "1 input given for 2; the model takes x: float32[2, 3]; n: int64[]"),
        ([X, N, N], "3 inputs given for 2; the model takes"),
        (X, "1 input given for 2; the model takes"),
        ([X, None], "input 'n' is a NoneType, not a NumPy array"),
    ],
)
def test_inputs_that_are_none(given: object, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        check_inputs(INPUTS, named_inputs(INPUTS, given))


def test_an_artifact_says_what_it_is(sample: Artifact) -> None:
    shown = repr(sample)
    assert "for sm_80: " in shown
    assert "float32[1, 2] -> y: float16[2]>" in shown
    assert repr(HOSTILE) in shown


def test_the_package_lists_its_names() -> None:
    assert set(boltgen.__all__) <= set(dir(boltgen))


def test_inputs_are_checked_before_a_device_is_touched(sample: Artifact) -> None:
    with pytest.raises(InputError, match="no input"):
        sample.run({}, device="no such device")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"inputs": [{"name": 7, "shape": [1], "dtype": "float32"}]},
            r"inputs\[0\].name: expected",
        ),
        ({"inputs": [{"name": "x", "shape": "1", "dtype": "float32"}]}, "shape: expected a list"),
        ({"regions": {}}, "regions: expected a list"),
        ({"versions": {"nvcc": None}}, "versions.nvcc: expected a text"),
        ({"arch": "sm_x"}, "sm_x"),
        ({"phases": [{"name": "link", "seconds": "long"}]}, "seconds: expected a number"),
        ({"phases": [{"name": "link", "seconds": "inf"}]}, r"phases\[0\].seconds: .* found inf"),
        ({"phases": [{"name": "link", "seconds": -1}]}, r"phases\[0\].seconds: .* found -1"),
        (
            {"inputs": [{"name": "x", "shape": [1], "dtype": "float99"}]},
            r"inputs\[0\].dtype: expected one of bool, .* found 'float99'",
        ),
        (
            {"outputs": [{"name": "y", "shape": [1], "dtype": "object"}]},
            r"outputs\[0\].dtype: expected one of",
        ),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "int8"}]}, r"inputs\[0\].shape\[0\]: "),
        ({"inputs": [{"name": "x", "shape": [2**40], "dtype": "int8"}]}, r"inputs\[0\].shape: "),
        ({"inputs": [{"name": "x", "shape": [], "dtype": "int8"}] * 2}, "two have the name 'x'"),
        ({"outputs": []}, "outputs: expected at least one, found none"),
        ({"frontend": "tf"}, "frontend: expected one of relax, relay, found 'tf'"),
        ({"dimensions": [{"name": "n", "low": 3, "high": 2}]}, r"dimensions\[0\]: 3 to 2 is empty"),
        ({"sources_sha256": {"../../etc/passwd": "0"}}, "'../../etc/passwd' is no file in the"),
        (
            {"kernels": [{"symbol": "k", "config": "", "source": "/etc/passwd"}]},
            "'/etc/passwd' is no file in the folder",
        ),
        ({"schema": "2"}, "has schema '2', this version of boltgen reads 2"),
    ],
)
def test_metadata_of_other_types(tmp_path: Path, change: dict[str, object], words: str) -> None:
    write_sample(tmp_path / "sample")
    path = tmp_path / "sample" / FILE_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtifactError, match=words):
        load(tmp_path / "sample")


def test_metadata_that_is_nested_or_a_pipe(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample")
    path = tmp_path / "sample" / FILE_NAME
    path.write_text("[" * 100_000)
    with pytest.raises(ArtifactError, match="nested more than 32 deep"):
        load(tmp_path / "sample")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ArtifactError, match="it is a pipe or a device"):
        load(tmp_path / "sample")


def test_a_path_that_is_too_long_is_said_in_short(tmp_path: Path) -> None:
    artifact = write_sample(tmp_path / "sample")
    with pytest.raises(ArtifactError, match="cannot be written: File name too long") as caught:
        artifact.save(tmp_path / ("d" * 5000))
    assert len(str(caught.value)) < 600
    longest = tmp_path / ("d" * 255)
    assert artifact.save(longest) == longest


def test_a_name_stands_for_one_extent_of_at_least_one() -> None:
    expected = tuple(
        TensorInfo(name=name, shape=("n", 4), dtype="float32") for name in ("left", "right")
    )
    arrays = {"left": np.zeros((3, 4), np.float32), "right": np.zeros((3, 4), np.float32)}
    check_inputs(expected, arrays)
    with pytest.raises(InputError, match=r"'right' has shape \(2, 4\).*n = 3"):
        check_inputs(expected, arrays | {"right": np.zeros((2, 4), np.float32)})
    with pytest.raises(InputError, match=r"'left' has shape \(0, 4\)"):
        check_inputs(expected, {name: np.zeros((0, 4), np.float32) for name in arrays})
