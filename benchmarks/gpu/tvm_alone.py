"""TVM without boltgen: a whole model by TVM's own pipeline, with default or with tuned schedules.

Needs TVM and compilers.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import tvm
from onnx import ModelProto
from tvm import relax, tirx
from tvm.relax.backend.cuda import get_default_pipeline
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.target import Target

import models
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.tuned_log import TunedLog
from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend.partitioning import Passes
from boltgen.frontend.relax import annotate, import_model
from boltgen.runtime.link import build_library, cuda_target
from models.parameters import ParameterSource

_SCHEDULED = "tirx.is_scheduled"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of a model's kernels that TVM would schedule, how many have a schedule of a log's."""

    covered: int
    wanted: int


def load_intrinsics() -> None:
    """Let TVM know the tensor cores' instructions, which schedules name.

    For each one that it defines TVM has Python look for the source lines of all frames, in every
    module that is loaded: a minute. It uses none of them.
    """
    stack = mock.patch.object(inspect, "stack", partial(inspect.stack, 0))
    with stack, mock.patch.object(inspect, "getsourcefile", inspect.getfile):
        importlib.import_module("tvm.s_tir.tensor_intrin")


def onnx_model(shape: ModelShape, parameters: ParameterSource) -> ModelProto:
    """The model as both are given it."""
    return models.build(shape.model, dtype="float16", parameters=parameters, **dict(shape.options))


def plain_module(model: ModelProto) -> tvm.IRModule:
    """The model in FP16 and NHWC, with batch norms folded, all of it TVM's."""
    passes = Passes(rejects=lambda problem: "it is TVM's here")
    nothing = annotate(import_model(model).module, passes)
    return nothing.module()


def build_alone(
    module: tvm.IRModule, arch: Arch, tools: Toolchain, cache: Cache
) -> tvm.runtime.Executable:
    """`link.build_library` by TVM's own pipeline and schedules.

    Raises:
        CompileError: nvcc refuses what TVM generated.
    """
    own = get_default_pipeline(cuda_target(arch))
    return build_library(module, arch, tools, cache, own)[0]


def build_tuned(
    module: tvm.IRModule, log: TunedLog, arch: Arch, tools: Toolchain, cache: Cache
) -> tuple[tvm.runtime.Executable, Coverage]:
    """`build_alone` with the schedules of a log where it has one.

    Raises:
        LogError: the log cannot be read, or has none of the model's kernels.
        CompileError: nvcc refuses what TVM generated.
    """
    load_intrinsics()
    target = cuda_target(arch)
    before = fused(module, target)
    with tempfile.TemporaryDirectory() as name:
        log.unpack(Path(name))
        try:
            database = JSONDatabase(work_dir=name, allow_missing=False)
        except Exception as error:  # TVM's FFI has exceptions of many kinds
            raise log.unusable(
                f"TVM {tvm.__version__} cannot read what TVM {log.about.tvm} wrote ({error})"
            ) from error
        with target, database:
            after = relax.transform.MetaScheduleApplyDatabase()(before)
    wanted = _unscheduled(before)
    coverage = Coverage(covered=wanted - _unscheduled(after), wanted=wanted)
    if not coverage.covered:
        raise log.unusable(
            f"TVM {tvm.__version__} makes {wanted} kernels of the model, and not one is among the "
            f"{log.about.tuned} that TVM {log.about.tvm} made and tuned"
        )
    *_, schedule = cuda.legalize_passes(target)
    rest = (schedule, *cuda.dataflow_lower_passes(target), *cuda.finalize_passes(target))
    return build_library(after, arch, tools, cache, tvm.transform.Sequential(rest))[0], coverage


def fused(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """The module as TVM's pipeline has it before it gives kernels their schedules."""
    *legalise, _ = cuda.legalize_passes(target)
    with target:
        return tvm.transform.Sequential([*cuda.library_dispatch_passes(target), *legalise])(module)


def _unscheduled(module: tvm.IRModule) -> int:
    return sum(
        isinstance(function, tirx.PrimFunc) and _SCHEDULED not in (function.attrs or {})
        for _, function in module.functions_items()
    )
