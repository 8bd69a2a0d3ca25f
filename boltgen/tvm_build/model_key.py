"""The identity of a whole compilation: equal keys mean equal libraries. In doubt, no key."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from boltgen.arch import Arch
from boltgen.build.toolchain import Toolchain
from boltgen.intake.files import read_regular
from boltgen.ir.key import digest
from boltgen.options import ModelOptions
from boltgen.paths import resource_dir
from boltgen.tvm_build.relay_identity import relay_identity

# The packages that turn a model's file into a module. Relay's TVM is identified by its files.
_PACKAGES = {
    "relax": ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx"),
    "relay": ("numpy", "onnx"),
}

# The key in an ONNX file that names another file with a tensor's contents. If a weight contains it
# by chance, the model is merely compiled again.
_EXTERNAL = b"location"
# The largest message of protobuf, the format of ONNX files.
_MOST_BYTES = 2 << 30


def model_key(
    model: object,
    arch: Arch,
    options: ModelOptions,
    tools: Toolchain,
    measurements: str = "",
    *,
    vgpu: str = "",
) -> str | None:
    """Return the key of compiling `model`, or None unless the whole model is known to be one file.

    The key covers the file's contents, `arch`, the options that affect a model, boltgen's code and
    templates, the compilers, TVM and the packages that import the model, the state of the
    `measurements`, and the `vgpu` that checks kernels. The options must name the frontend.
    """
    frontend = options.frontend
    if frontend is None:
        raise AssertionError("which frontend is known before a model is looked for")
    if not isinstance(model, (str, Path)) or Path(model).suffix != ".onnx":
        return None
    try:
        contents = read_regular(Path(model), _MOST_BYTES)
        versions = tuple(
            f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES[frontend]
        )
    except (OSError, importlib.metadata.PackageNotFoundError):
        return None  # the import of the model reports the error better
    tvm = relay_identity() if frontend == "relay" else ""
    if _EXTERNAL in contents or tvm is None:
        return None
    return digest(
        "model",
        hashlib.sha256(contents).hexdigest(),
        Path(model).stem,
        arch,
        options.decisive,
        measurements,
        vgpu,
        (frontend, tvm, *versions),
        (tools.cuda_identity, tools.host_identity, str(tools.nvcc.path), str(tools.cxx.path)),
        tools.device_code.value,
        own_code(),
    )


def own_code() -> str:
    """A digest of boltgen's code and templates."""
    code, templates = Path(__file__).resolve().parent.parent, resource_dir("templates")
    state = hashlib.sha256()
    for folder, pattern in ((code, "*.py"), (templates, "*")):
        for path in sorted(folder.rglob(pattern)):
            if path.is_file():
                state.update(f"{path.relative_to(folder)}\0".encode())
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()
