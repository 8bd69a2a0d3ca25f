"""Files of other programs' models: each is recognised, without being loaded, with what to do."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest
import torch

import boltgen
from boltgen.errors import ModelImportError
from boltgen.intake.model_files import other_kind


def _zip(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return path


def _safetensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return path


def _old_checkpoint(path: Path) -> Path:
    data = io.BytesIO()
    torch.save({"w": torch.zeros(2)}, data, _use_new_zipfile_serialization=False)
    path.write_bytes(data.getvalue())
    return path


def _checkpoint(path: Path) -> Path:
    torch.save(torch.nn.Linear(2, 2).state_dict(), path)
    return path


def _script(path: Path) -> Path:
    torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)).save(str(path))
    return path


def _written(content: bytes):
    def write(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return write


def _folder(*names: str):
    def write(path: Path) -> Path:
        path.mkdir()
        for name in names:
            (path / name).write_text("x")
        return path

    return write


CASES = {
    "model.pth": (_checkpoint, "PyTorch checkpoint.*load_state_dict"),
    "pytorch_model.bin": (_old_checkpoint, "PyTorch checkpoint.*load_state_dict"),
    "script.pt": (_script, r"TorchScript archive.*torch\.export\.save"),
    "model.safetensors": (_safetensors, "safetensors file.*safetensors.torch.load_model"),
    "saved": (_folder("saved_model.pb"), "TensorFlow SavedModel.*tf2onnx.convert --saved-model"),
    "frozen.pb": (_written(b"\n\x10"), "TensorFlow graph.*--graphdef"),
    "m.tflite": (_written(b"\x1c\0\0\0TFL3" + bytes(20)), "TensorFlow Lite.*--tflite"),
    "m.gguf": (_written(b"GGUF\x03\0\0\0"), "GGUF file"),
    "m.engine": (_written(b"\0\0\0\0"), "TensorRT engine.*ONNX file that it was made of"),
    "m.bin": (_written(b"ftrt\0\0\0\0"), "TensorRT engine"),
    "m.h5": (_written(b"\x89HDF\r\n\x1a\n" + bytes(20)), "Keras model.*format='onnx'"),
    "m.keras": (lambda path: _zip(path, "config.json", "model.weights.h5"), "Keras model"),
    "m.xml": (_written(b'<?xml version="1.0"?><net>'), "OpenVINO"),
    "hub": (_folder("config.json", "model.safetensors"), "Hugging Face model.*optimum-cli"),
    "compiled": (_folder("metadata.json", "model.so"), "compiled already: `boltgen run`"),
    "program.pt": (
        lambda path: _zip(path, "m/archive_format", "m/models/model.json"),
        r"torch\.export program: give it a name that ends in \.pt2",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_another_program_is_told_with_what_to_do(tmp_path: Path, name: str) -> None:
    make, said = CASES[name]
    path = make(tmp_path / name)
    with pytest.raises(ModelImportError, match=f"{name} is .*{said}"):
        boltgen.compile(path)


def test_a_pickle_is_recognised_and_not_loaded(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> object:
            return (tmp_path / "canary").touch, ()

    torch.save(Evil(), tmp_path / "model.pth")
    with pytest.raises(ModelImportError, match="PyTorch checkpoint"):
        boltgen.compile(tmp_path / "model.pth")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x08\x08", b"{" * 9, b"\xff" * 70])
def test_what_is_none_of_them_is_left_to_its_reader(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert other_kind(path) is None
    assert other_kind(_folder("notes.txt")(tmp_path / "folder")) is None
