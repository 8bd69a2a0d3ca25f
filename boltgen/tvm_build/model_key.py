"""The identity of a whole compilation: equal keys, equal libraries. It fails closed, to no key."""

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

# Whatever turns a model's file into a module; Relay's TVM is identified by its files.
_PACKAGES = {
    "relax": ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx"),
    "relay": ("numpy", "onnx"),
}

# The key, in an ONNX file, of the name of another file that holds a tensor's contents. It may
# stand in a weight by chance: then the model is merely compiled again.
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
    """Return the key of compiling `model`, or None if not all of the model is known to be in one
    file.

    It covers the file's contents, arch, the options that a model depends on, boltgen's own code and
    templates, the compilers, TVM and the packages that import the model, and the state of the
    `measurements` that kernels are chosen by, and the `vgpu` that they are checked on. The options
    name their frontend.
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
        return None  # the import of the model says it better
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
