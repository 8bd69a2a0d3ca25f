"""Read ONNX files, and refuse every other file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.installation import install_command


def onnx_package() -> Any:
    """The package onnx.

    Raises:
        ModelImportError: it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415
        import onnx.inliner  # noqa: PLC0415
        import onnx.shape_inference  # noqa: PLC0415
        import onnx.version_converter  # noqa: PLC0415
    except ImportError as error:
        raise ModelImportError(
            f"reading an ONNX model needs the onnx package: {install_command('onnx')}"
        ) from error
    return onnx


@contextlib.contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Put the file's name before errors of a model that came from a file."""
    try:
        yield
    except ModelImportError as error:
        if path is None or str(error).startswith(str(path)):
            raise
        raise ModelImportError(f"{path}: {error}") from error


def read_onnx(path: Path) -> Any:
    """The ModelProto in a file, with the data that it refers to.

    Raises:
        ModelImportError: the file is missing, unreadable, truncated, or no ONNX model.
    """
    onnx = onnx_package()
    if path.is_dir():
        raise ModelImportError(f"{path}: is a folder; give the ONNX file in it")
    if not path.exists():
        raise ModelImportError(f"{path}: there is no such file")
    if not path.is_file():
        raise ModelImportError(f"{path}: is no regular file; give an ONNX file")
    try:
        model = onnx.load(path)
    except (OSError, onnx.checker.ValidationError) as error:
        raise ModelImportError(
            f"{path}: cannot be read: {error}. Weights kept outside must lie beside the file, "
            "under the names it was exported with"
        ) from error
    except Exception as error:  # protobuf's DecodeError, and a codec's for .textproto and .json
        raise ModelImportError(
            f"{path}: not an ONNX model, or a truncated one ({path.stat().st_size} bytes; the "
            f"parser says: {error}). Export or download it again"
        ) from error
    if not model.graph.node or not model.opset_import:
        raise ModelImportError(
            f"{path}: not an ONNX model: it has no operators. Export or download it again"
        )
    return model
