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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from onnx import ModelProto
from tvm.relax.backend.cuda import pipeline

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
    """What TVM makes of the model in FP16 and NHWC by its default schedules."""
    module = normalise(relax.import_model(model).module)
    executable, _ = build_library(module, arch, tools, cache, _default_pipeline(arch))
    return export_library(executable, output, tools)


def _default_pipeline(arch: Arch) -> tvm.transform.Pass:
    """TVM's own pipeline, but that convolutions do not try tensor cores.

    In TVM 0.27 the rule for products fails to fit some convolutions to `wmma` (3x3, 192 to 192
    channels, at 14x14). It should then go on without, but writes the function as JSON into the
    failure's message, and crashes of it, as `tvm.ir.save_json` does of any TensorIR function.
    """
    target = cuda_target(arch)
    *legalize, schedule = pipeline.legalize_passes(target)
    return tvm.transform.Sequential(
        [
            *pipeline.library_dispatch_passes(target),
            *legalize,
            _without_wmma(),
            schedule,
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
    )


def _without_wmma() -> tvm.transform.Pass:
    """Marks convolutions, as TVM's rules know to leave them."""

    @tvm.transform.module_pass(opt_level=0, name="WithoutWmma")
    def mark(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for variable, function in module.functions.items():
            if isinstance(function, tvm.tirx.PrimFunc) and "conv2d" in variable.name_hint:
                module[variable] = function.with_attr("dlight.do_not_tensorize", 1)
        return module

    found: tvm.transform.Pass = mark
    return found
