"""The libraries of section models: ours, and those of TVM without boltgen.

Arrow: a model of `shapes.models()` to compressed libraries, through boltgen's cache. Needs TVM and
compilers.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import lzma
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import tvm
from onnx import ModelProto
from tvm.relax.backend.cuda import get_default_pipeline
from tvm.s_tir.dlight.gpu.matmul import MatmulTensorization

import boltgen
import models
from benchmarks.gpu.shapes import ModelShape
from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.frontend import relax
from boltgen.frontend.relax.normalise import normalise
from boltgen.ir.key import digest
from boltgen.runtime.artifact import LIBRARY
from boltgen.runtime.link import build_library, cuda_target, export_library
from boltgen.runtime.model_key import own_code
from boltgen.settings import Settings
from boltgen.stored import stored_costs
from models.parameters import Distribution, Normal, PeriodicParameters

_KIND, _OURS, _ALONE, _RECIPE = "suite_model", "ours.so.xz", "alone.so.xz", "recipe.json"
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx")
# The weights repeat themselves every 2 KiB: a thorough search for matches would find no more.
_FILTERS: Sequence[dict[str, Any]] = (
    {"id": lzma.FILTER_LZMA2, "preset": 6, "mf": lzma.MF_HC4, "nice_len": 64},
)


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """Compressed libraries, and the recipe of the model's parameters."""

    ours: Path
    alone: Path
    recipe: Path


def build_model(
    shape: ModelShape,
    arch: Arch,
    tools: Toolchain,
    cache: Cache,
    *,
    settings: Settings,
    jobs: int,
    reporter: Reporter,
) -> BuiltModel:
    """Compile a model with boltgen and with TVM alone, or find it in the cache.

    Raises:
        BoltgenError: it does not compile.
    """

    def fill(folder: Path) -> None:
        parameters = PeriodicParameters()
        model = models.build(
            shape.model, dtype="float16", parameters=parameters, **dict(shape.options)
        )
        started = time.monotonic()
        artifact = boltgen.compile(model, arch.name, jobs=jobs, reporter=reporter, reuse=False)
        compiled = time.monotonic()
        alone = _export_alone(model, folder / "alone.so", arch, tools, cache)
        seconds = {"boltgen": compiled - started, "tvm": time.monotonic() - compiled}
        _compress(artifact.folder / LIBRARY, folder / _OURS)
        _compress(alone, folder / _ALONE)
        alone.unlink()
        form = {
            "parameters": {
                name: [shape, *_moments(distribution)]
                for name, (shape, distribution) in parameters.recipe.items()
            },
            "tvm_tensor_cores": can_tensorise(),
            "compile_s": {name: round(value, 1) for name, value in seconds.items()},
        }
        (folder / _RECIPE).write_text(json.dumps(form, separators=(",", ":")))

    with stored_costs(arch, tools, settings) as costs:
        measurements = costs.stamp
    identity = (tools.cuda_identity, tools.host_identity, own_code(), _builders())
    versions = tuple(importlib.metadata.version(name) for name in _PACKAGES)
    key = digest("suite model", shape, arch, measurements, identity, versions)
    folder = cache.get_or_build(_KIND, key, fill).folder
    return BuiltModel(folder / _OURS, folder / _ALONE, folder / _RECIPE)


def _builders() -> str:
    """A digest of what else decides what a model's libraries are."""
    state = hashlib.sha256()
    for path in (Path(__file__), *sorted(Path(models.__file__).parent.glob("*.py"))):
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def _moments(distribution: Distribution) -> tuple[float, float]:
    """Mean and standard deviation of a tensor of `PeriodicParameters`."""
    if isinstance(distribution, Normal):
        return distribution.mean, distribution.std
    return (distribution.low + distribution.high) / 2, 0.0


def _compress(library: Path, target: Path) -> None:
    content = lzma.compress(library.read_bytes(), filters=list(_FILTERS))
    target.write_bytes(content)


def _export_alone(
    model: ModelProto,
    output: Path,
    arch: Arch,
    tools: Toolchain,
    cache: Cache,
) -> Path:
    """What TVM makes of the model in FP16 and NHWC."""
    module = normalise(relax.import_model(model).module)
    executable, _ = build_alone(module, arch, tools, cache, tensor_cores=can_tensorise())
    return export_library(executable, output, tools)


def can_tensorise() -> bool:
    """Whether this TVM's schedules can use tensor cores.

    With an FFI newer than the one that its wheel was compiled against, `Schedule.tensorize` ends
    the process.
    """
    return importlib.metadata.version("apache-tvm-ffi").startswith("0.1.14")


def build_alone(
    module: tvm.IRModule, arch: Arch, tools: Toolchain, cache: Cache, *, tensor_cores: bool
) -> tuple[tvm.runtime.Executable, list[Path]]:
    """`link.build_library` by TVM's own pipeline and schedules.

    Without `tensor_cores` its rule for them fits nothing.

    Raises:
        CompileError: nvcc refuses what TVM generated.
    """
    fits_nothing = mock.patch.object(MatmulTensorization, "apply", lambda *_: None)
    with nullcontext() if tensor_cores else fits_nothing:
        own = get_default_pipeline(cuda_target(arch))
        return build_library(module, arch, tools, cache, own)
