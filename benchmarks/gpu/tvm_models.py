"""The libraries of section models: ours, and TVM's without boltgen.

Arrow: a model of `shapes.models()` to compressed libraries, through boltgen's cache. Needs TVM and
compilers.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import json
import lzma
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import tvm
from onnx import ModelProto
from tvm import relax, tirx
from tvm.relax.backend.cuda import get_default_pipeline
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.target import Target

import boltgen
import models
from benchmarks.gpu.items import MODEL_ALONE, MODEL_OURS, MODEL_TUNED
from benchmarks.gpu.models_run import METASCHEDULE
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.workshop import BundleError, Workshop
from boltgen.arch import Arch
from boltgen.device.choose import provide_cuda_runtime
from boltgen.frontend.relax import annotate, import_model
from boltgen.ir.key import digest
from boltgen.passes.run import Passes
from boltgen.running.artifact import LIBRARY
from boltgen.stored import stored_costs
from boltgen.tvm_build.model_key import own_code
from boltgen.tvm_build.relax_link import build_library, cuda_target, export_library
from models.parameters import Distribution, Normal, PeriodicParameters

_KIND, _RECIPE, _PACKED = "suite_model", "recipe.json", ".so.xz"
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx")
# The weights repeat themselves every 2 KiB: a thorough search for matches would find no more.
_FILTERS: Sequence[dict[str, Any]] = (
    {"id": lzma.FILTER_LZMA2, "preset": 6, "mf": lzma.MF_HC4, "nice_len": 64},
)


def build_models(
    name: str, shape: ModelShape, arch: Arch, log: Path | None, shop: Workshop, *, compile: bool
) -> tuple[dict[str, Path], dict[str, Any]] | None:
    """Compile a model with boltgen, with TVM alone, and with the schedules of a log.

    Libraries are compressed, by their names in a bundle. The recipe says how parameters are made,
    what compiling took, and what `log`, a folder that `metaschedule` wrote, says of itself. Without
    `compile` only the cache is asked: None where it has not all of them.

    Raises:
        BoltgenError: it does not compile.
        BundleError: the log has none of the model's kernels.
    """

    def fill(folder: Path) -> None:
        parameters = PeriodicParameters()
        model = onnx_model(shape, parameters)
        started = time.monotonic()
        artifact = boltgen.compile(
            model, arch=arch.name, jobs=shop.jobs, reporter=shop.reporter, reuse=False
        )
        compiled = time.monotonic()
        own = get_default_pipeline(cuda_target(arch))
        alone = build_library(plain_module(model), arch, shop.tools, shop.cache, pipeline=own)[0]
        _export(alone, folder / MODEL_ALONE, shop)
        seconds = {"boltgen": compiled - started, "tvm": time.monotonic() - compiled}
        _compress(artifact.folder / LIBRARY, folder / MODEL_OURS)
        form = {
            "parameters": {
                tensor: [extents, *_moments(distribution)]
                for tensor, (extents, distribution) in parameters.recipe.items()
            },
            "compile_s": {column: round(value, 1) for column, value in seconds.items()},
        }
        (folder / _RECIPE).write_text(json.dumps(form))

    def fill_tuned(folder: Path) -> None:
        assert log is not None
        provide_cuda_runtime(shop.settings)
        executable, coverage = _with_schedules(log, shape, arch, shop)
        _export(executable, folder / MODEL_TUNED, shop)
        (folder / _RECIPE).write_text(json.dumps(coverage))

    identity = (shop.tools.cuda_identity, shop.tools.host_identity, own_code(), _own_sources())
    versions = tuple(importlib.metadata.version(package) for package in _PACKAGES)
    with stored_costs(arch, shop.tools, shop.settings) as costs:
        measurements = costs.stamp
    key = digest("suite model", shape, arch, measurements, identity, versions)
    folder = _entry(shop, key, fill if compile else None)
    if folder is None:
        return None
    found = {form.format(name=name): _packed(folder / form) for form in (MODEL_OURS, MODEL_ALONE)}
    recipe: dict[str, Any] = json.loads((folder / _RECIPE).read_text())
    if log:
        contents = b"".join(path.read_bytes() for path in sorted(log.iterdir()))
        said = hashlib.sha256(contents).hexdigest()
        key = digest("suite model tuned", shape, arch, said, identity, versions)
        folder = _entry(shop, key, fill_tuned if compile else None)
        if folder is None:
            return None
        found[MODEL_TUNED.format(name=name)] = _packed(folder / MODEL_TUNED)
        about, coverage = log / "about.json", folder / _RECIPE
        recipe[METASCHEDULE] = json.loads(about.read_text()) | json.loads(coverage.read_text())
    return found, recipe


def _entry(shop: Workshop, key: str, fill: Callable[[Path], None] | None) -> Path | None:
    """The folder of libraries in the cache, filled where `fill` is given and it is not there."""
    if fill is None:
        return shop.cache.find(_KIND, key, [_RECIPE])
    return shop.cache.get_or_build(_KIND, key, fill, [_RECIPE]).folder


def onnx_model(shape: ModelShape, parameters: PeriodicParameters) -> ModelProto:
    """Make the model that both are given."""
    return models.build(shape.model, dtype="float16", parameters=parameters, **dict(shape.options))


def plain_module(model: ModelProto) -> tvm.IRModule:
    """Write the model in FP16 and NHWC, with batch norms folded, all of it TVM's."""
    passes = Passes(rejects=lambda problem: "it is TVM's here")
    return annotate(import_model(model).module, passes).module()


def fused(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Bring the module to where TVM's pipeline gives kernels their schedules."""
    *legalise, _ = cuda.legalize_passes(target)
    with target:
        return tvm.transform.Sequential([*cuda.library_dispatch_passes(target), *legalise])(module)


def load_intrinsics() -> None:
    """Let TVM know the tensor cores' instructions, which schedules name.

    For each one that it defines TVM has Python look for the source lines of all frames, in every
    module that is loaded: a minute. It uses none of them.
    """
    stack = mock.patch.object(inspect, "stack", partial(inspect.stack, 0))
    with stack, mock.patch.object(inspect, "getsourcefile", inspect.getfile):
        importlib.import_module("tvm.s_tir.tensor_intrin")


def _with_schedules(
    log: Path, shape: ModelShape, arch: Arch, shop: Workshop
) -> tuple[tvm.runtime.Executable, dict[str, int]]:
    """Build the model as TVM does, but with the log's schedules, and say how many it has."""
    load_intrinsics()
    target = cuda_target(arch)
    before = fused(plain_module(onnx_model(shape, PeriodicParameters())), target)
    database = JSONDatabase(work_dir=str(log), allow_missing=False)
    with target, database:
        after = relax.transform.MetaScheduleApplyDatabase()(before)
    wanted = _unscheduled(before)
    covered = wanted - _unscheduled(after)
    if not covered:
        raise BundleError(
            f"{log} has none of the {wanted} kernels that TVM {tvm.__version__} makes of the "
            "model: record it anew with this version, or remove it"
        )
    *_, schedule = cuda.legalize_passes(target)
    rest = (schedule, *cuda.dataflow_lower_passes(target), *cuda.finalize_passes(target))
    passes = tvm.transform.Sequential(rest)
    executable = build_library(after, arch, shop.tools, shop.cache, pipeline=passes)[0]
    return executable, {"covered": covered, "wanted": wanted}


def _unscheduled(module: tvm.IRModule) -> int:
    return sum(
        isinstance(function, tirx.PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {})
        for _, function in module.functions_items()
    )


def _own_sources() -> str:
    """Digest the sources that make models."""
    paths = (Path(__file__), *sorted(Path(models.__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _moments(distribution: Distribution) -> tuple[float, float]:
    """Take mean and standard deviation of a tensor of `PeriodicParameters`."""
    if isinstance(distribution, Normal):
        return distribution.mean, distribution.std
    return (distribution.low + distribution.high) / 2, 0.0


def _packed(path: Path) -> Path:
    return path.with_name(path.name + _PACKED)


def _compress(library: Path, target: Path) -> None:
    _packed(target).write_bytes(lzma.compress(library.read_bytes(), filters=list(_FILTERS)))


def _export(executable: tvm.runtime.Executable, target: Path, shop: Workshop) -> None:
    """Write a library, compressed."""
    library = export_library(executable, target, shop.tools)
    _compress(library, target)
    library.unlink()
