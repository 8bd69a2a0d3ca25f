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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm

import boltgen
import models
from benchmarks.gpu import tvm_alone
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.tuned_log import TunedLog
from benchmarks.gpu.tvm_alone import Coverage
from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.ir.key import digest
from boltgen.runtime.artifact import LIBRARY
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.runtime.link import export_library
from boltgen.runtime.model_key import own_code
from boltgen.settings import Settings
from boltgen.stored import stored_costs
from models.parameters import Distribution, Normal, PeriodicParameters

_KIND, _RECIPE = "suite_model", "recipe.json"
_OURS, _ALONE, _TUNED = "ours.so.xz", "alone.so.xz", "tuned.so.xz"
_COVERAGE = "coverage.json"
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
        model = tvm_alone.onnx_model(shape, parameters)
        started = time.monotonic()
        artifact = boltgen.compile(model, arch=arch.name, jobs=jobs, reporter=reporter, reuse=False)
        compiled = time.monotonic()
        alone = tvm_alone.build_alone(tvm_alone.plain_module(model), arch, tools, cache)
        _export(alone, folder / _ALONE, tools)
        seconds = {"boltgen": compiled - started, "tvm": time.monotonic() - compiled}
        _compress(artifact.folder / LIBRARY, folder / _OURS)
        form = {
            "parameters": {
                name: [shape, *_moments(distribution)]
                for name, (shape, distribution) in parameters.recipe.items()
            },
            "compile_s": {name: round(value, 1) for name, value in seconds.items()},
        }
        (folder / _RECIPE).write_text(json.dumps(form, separators=(",", ":")))

    with stored_costs(arch, tools, settings) as costs:
        measurements = costs.stamp
    key = digest("suite model", shape, arch, measurements, *_identity(tools))
    folder = cache.get_or_build(_KIND, key, fill).folder
    return BuiltModel(folder / _OURS, folder / _ALONE, folder / _RECIPE)


def build_tuned_model(
    shape: ModelShape,
    arch: Arch,
    tools: Toolchain,
    cache: Cache,
    log: TunedLog,
    *,
    settings: Settings,
) -> tuple[Path, Coverage]:
    """A model's compressed library by TVM with a log's schedules, or find it in the cache.

    Raises:
        LogError: the log cannot be read, or has none of the model's kernels.
        BoltgenError: it does not compile.
    """

    def fill(folder: Path) -> None:
        provide_cuda_runtime(settings)
        module = tvm_alone.plain_module(tvm_alone.onnx_model(shape, PeriodicParameters()))
        executable, coverage = tvm_alone.build_tuned(module, log, arch, tools, cache)
        _export(executable, folder / _TUNED, tools)
        (folder / _COVERAGE).write_text(json.dumps(asdict(coverage)))

    key = digest("suite model tuned", shape, arch, log.digest, *_identity(tools))
    folder = cache.get_or_build(_KIND, key, fill).folder
    return folder / _TUNED, Coverage(**json.loads((folder / _COVERAGE).read_text()))


def _identity(tools: Toolchain) -> tuple[Any, ...]:
    """What else decides what a model's libraries are."""
    versions = tuple(importlib.metadata.version(name) for name in _PACKAGES)
    return tools.cuda_identity, tools.host_identity, own_code(), _builders(), versions


def _builders() -> str:
    """A digest of the sources that make models."""
    state = hashlib.sha256()
    ours = Path(__file__), Path(__file__).with_name("tvm_alone.py")
    for path in (*ours, *sorted(Path(models.__file__).parent.glob("*.py"))):
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


def _export(executable: tvm.runtime.Executable, target: Path, tools: Toolchain) -> None:
    """Write a library, compressed."""
    library = export_library(executable, target.with_suffix(""), tools)
    _compress(library, target)
    library.unlink()
