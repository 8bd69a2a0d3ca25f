"""Recognise model files that boltgen does not read, by their contents, and say what to do with
each. Nothing in a file is loaded.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from boltgen.intake.files import open_regular

_EXPORT = "torch.export.save(torch.export.export(module, example_inputs), 'model.pt2')"
_CHECKPOINT = (
    "a PyTorch checkpoint: weights without the model. Load it into its module "
    "(module.load_state_dict(torch.load(path))), and call boltgen.compile(module, example_inputs) "
    f"or {_EXPORT}"
)
_TORCHSCRIPT = (
    f"a TorchScript archive. Export the module that it was made of instead: {_EXPORT}; or write "
    "ONNX with torch.onnx.export"
)
_PROGRAM = "a torch.export program: give it a name that ends in .pt2"
_SAFETENSORS = (
    "a safetensors file: weights without the model. Load them into the module "
    f"(safetensors.torch.load_model), and call boltgen.compile(module, example_inputs) or {_EXPORT}"
)
_KERAS = "a Keras model. Convert it to ONNX: model.export('model.onnx', format='onnx')"
_TFLITE = (
    "a TensorFlow Lite model. Convert it to ONNX: "
    "python -m tf2onnx.convert --tflite model.tflite --output model.onnx"
)
_SAVED_MODEL = (
    "a TensorFlow SavedModel. Convert it to ONNX: "
    "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx"
)
_FROZEN = (
    "a TensorFlow graph. Convert it to ONNX: python -m tf2onnx.convert --graphdef model.pb "
    "--inputs NAME:0 --outputs NAME:0 --output model.onnx"
)
_GGUF = (
    "a GGUF file: quantised weights for llama.cpp, without a graph. Start from the model that it "
    "was made of, and export that to ONNX or with torch.export"
)
_TENSORRT = "a TensorRT engine, which is compiled already. Give the ONNX file that it was made of"
_OPENVINO = "an OpenVINO model. Give the ONNX file or the PyTorch module that it was made of"
_COREML = "a Core ML model. Give the ONNX file or the PyTorch module that it was made of"
_COMPILED = "a model that boltgen has compiled already: `boltgen run` runs it"
_HUGGING_FACE = (
    "a Hugging Face model. Export it to ONNX: optimum-cli export onnx --model FOLDER OUTPUT; or "
    "load it with transformers, and call boltgen.compile(module, example_inputs)"
)
_MOST_BYTES = 64
# By how a file begins.
_MAGIC = {
    b"GGUF": _GGUF,
    b"\x89HDF\r\n\x1a\n": _KERAS,
    b"ftrt": _TENSORRT,
    b"ptrt": _TENSORRT,
    b"\x80\x02": _CHECKPOINT,
    b"\x80\x03": _CHECKPOINT,
    b"\x80\x04": _CHECKPOINT,
    b"\x80\x05": _CHECKPOINT,
}
_SUFFIXES = {
    ".engine": _TENSORRT,
    ".plan": _TENSORRT,
    ".trt": _TENSORRT,
    ".pb": _FROZEN,
    ".mlmodel": _COREML,
    ".mlpackage": _COREML,
}


def other_kind(path: Path) -> str | None:
    """Name the kind of a file or folder that boltgen cannot read, and what to do; None for any
    other.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir():
        return _folder_kind(path)
    with open_regular(path) as file:
        head = file.read(_MOST_BYTES)
        if head.startswith(b"PK\x03\x04"):
            file.seek(0)
            try:
                with zipfile.ZipFile(file) as archive:
                    return _archive_kind(path, {each.lower() for each in archive.namelist()})
            except zipfile.BadZipFile:  # its reader reports it
                return None
        size = file.seek(0, 2)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head[4:8] == b"TFL3":
        return _TFLITE
    # The length of a header in JSON, and its beginning.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return _SAFETENSORS
    if head.lstrip().startswith(b"<?xml") and path.suffix == ".xml":
        return _OPENVINO
    return _SUFFIXES.get(path.suffix)


def _folder_kind(path: Path) -> str | None:
    if (path / "saved_model.pb").is_file():
        return _SAVED_MODEL
    if (path / "metadata.json").is_file() and (path / "model.so").is_file():
        return _COMPILED
    if (path / "config.json").is_file() and any(
        each.suffix in {".safetensors", ".bin", ".pt", ".pth"} for each in path.iterdir()
    ):
        return _HUGGING_FACE
    return _SUFFIXES.get(path.suffix)


def _archive_kind(path: Path, names: set[str]) -> str | None:
    inner = {name.partition("/")[2] for name in names}
    if "archive_format" in inner and "models/model.json" in inner:
        return None if path.suffix == ".pt2" else _PROGRAM
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        return _TORCHSCRIPT
    if "data.pkl" in inner:
        return _CHECKPOINT
    if {"config.json", "model.weights.h5"} <= names:
        return _KERAS
    return None
