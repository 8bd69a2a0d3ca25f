"""`boltgen.compile`: a model in, one deployable library out. It runs every arrow, in order."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from boltgen.arch import Arch
from boltgen.artifact.coverage import coverage
from boltgen.artifact.metadata import (
    FILE_NAME,
    ChoiceInfo,
    DimensionInfo,
    GemmInfo,
    KernelInfo,
    Metadata,
    PhaseInfo,
    PlacementInfo,
    RangeInfo,
    RegionInfo,
    RestInfo,
    TensorInfo,
    read_metadata,
)
from boltgen.build.cache import Cache
from boltgen.build.library.shared import shared_folders
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.check.ship import checked, checking_vgpu
from boltgen.codegen.adapter import Choice, RegionLaunch
from boltgen.device.asked_arch import asked_arch
from boltgen.errors import CacheError, ModelImportError
from boltgen.families.constants import model_constants
from boltgen.families.registry import predict
from boltgen.frontend.imported import TensorSpec
from boltgen.frontend.relay.versions import installed_tvm
from boltgen.frontend.torch.module import export_module, is_module
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim, symbolic, typical
from boltgen.options import DEFAULT_ARCH, CompileOptions
from boltgen.options.option import chosen, takes
from boltgen.passes.precision.observe_ranges import Range
from boltgen.pipeline import BuiltRegions, Phases, PipelineOptions, build_regions
from boltgen.problems.problem import Problem, describe
from boltgen.problems.region import Placement
from boltgen.running.arrays import sample_of
from boltgen.running.artifact import LIBRARY, SOURCES, Artifact, file_digest, source_digests
from boltgen.running.inputs import check_inputs
from boltgen.settings import settings_from
from boltgen.stored import rest_stamp, stored_costs
from boltgen.tuner import open_task_session
from boltgen.tuning.choice.select import Decision
from boltgen.tvm_build.model import (
    Array,
    Model,
    frontend_of,
    import_model,
    partition,
    tasks_of_model,
)
from boltgen.tvm_build.model_key import model_key

_log = logging.getLogger(__name__)

# Compiled models are as large as their weights: the latest ones, up to this much, are kept.
_KIND = "model"
_MOST_CACHED_BYTES = 2 << 30


@takes(CompileOptions)
def compile(
    model: object,
    example_inputs: object = None,
    arch: str = DEFAULT_ARCH,
    options: CompileOptions | None = None,
    *,
    example_kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    **overrides: Any,
) -> Artifact:
    """Compile `model` for `arch` to one library that a GPU and the virtual GPU both run.

    `model` is the path of an ONNX file, a `torch.export` program, a `torch.nn.Module`, or a module
    of Relax's or Relay's. A `torch.nn.Module` is exported in eval mode, for inputs like the example
    inputs (one tensor, a sequence of positional arguments, or a mapping of keyword arguments) and
    keyword arguments; `dynamic_shapes` is torch.export's. The other keyword arguments are the
    fields of `boltgen.CompileOptions`, and come before `options`.

    Kernels are chosen by what was measured, and by the analytical model where nothing was; with a
    budget for `tune` they are measured first, as `boltgen.tune` does. The artifact lives in a
    temporary folder until it is saved.

    Examples: `boltgen.compile("resnet50.onnx", arch="sm_80").save("resnet50")`;
    `boltgen.compile(module, (torch.zeros(1, 3, 224, 224),), pad=False)`.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
        NoLegalConfigError: no kernel configuration is legal for a problem.
        ToolchainError: a compiler is missing or fails at its job.
        CompileError: a kernel does not compile.
        AuditError: a kernel spills registers, or worse, and no other can replace it.
        CacheError: the cache folder cannot be used.
        LibraryError: a folder of `library` is no kernel library.
        BoltgenError: an option has a value that it cannot have.
        TuningError: `tune` is no budget, or another session has the device.
        DeviceError: the device to tune on is absent, or `arch` is native and the GPU is.
        InputError: an array to calibrate with is not what the model takes.
        DatabaseError: what is measured cannot be written.
        InvalidProblemError: `accumulate` is no type that a tensor core sums in, or not on `arch` or
            of the `precision`.
        CheckError: something fails its check that no kernel can replace.
    """
    given = chosen(CompileOptions, options, overrides)
    given = replace(given, frontend=frontend_of(given))
    row = asked_arch(arch)
    samples = [sample_of(each) for each in given.calibrate]
    name = _model_name(model)
    source = _exported(model, example_inputs, example_kwargs, dynamic_shapes, given)
    settings = settings_from()
    tools = find_toolchain(settings)
    libraries = shared_folders((*given.library, *settings.libraries), row.name, tools)
    cache = Cache(settings.cache_dir, shared=libraries)
    pipeline = PipelineOptions(
        **given.of_model, settings=settings, toolchain=tools, cache=cache, trace=given.trace
    )
    with pipeline.phase("look for it in the cache"):
        key = None
        # A model from the cache goes through no passes.
        if given.reuse and given.tune is None and given.trace is None and not samples:
            with stored_costs(row, tools, settings) as costs:
                vgpu = checking_vgpu(given.check, settings)
                stamp = costs.stamp + rest_stamp(row, settings)
                key = model_key(source, row, given, tools, stamp, vgpu=vgpu)
        found = cache.find(_KIND, key, [FILE_NAME, LIBRARY]) if key else None
    if found:
        metadata = replace(read_metadata(found), phases=_phase_infos(pipeline.phases))
        return _warned(Artifact(found, metadata))
    artifact = _compile(source, name, row, pipeline, given=given, samples=samples)
    if key:
        try:
            cache.put(_KIND, key, artifact.folder, _MOST_CACHED_BYTES)
        except CacheError as error:
            _log.warning("the compiled model is not kept in the cache: %s", error)
    return _warned(artifact)


def _warned(artifact: Artifact) -> Artifact:
    """Return `artifact`, after a warning if boltgen's kernels run little of it."""
    found = coverage(artifact.metadata.placements)
    if found.is_low:
        _log.warning("most of the model is not in boltgen's kernels: %s", found.verdict())
    return artifact


def _compile(
    model: object,
    name: str,
    arch: Arch,
    options: PipelineOptions,
    *,
    given: CompileOptions,
    samples: Sequence[Mapping[str, Array]],
) -> Artifact:
    phases, tuning = options.phases, given.tuning
    imported = import_model(model, options)
    if samples:
        inputs = _tensor_infos(imported.inputs)
        with options.phase("calibrate"):
            for sample in samples:
                check_inputs(inputs, sample, _dimension_infos(imported.dimensions))
            imported.calibrate([[sample[info.name] for info in inputs] for sample in samples])
    if tuning is not None:
        tasks = tasks_of_model(imported, arch.name, options)
        with (
            phases.phase("tune"),  # it tells of itself
            open_task_session([tasks], arch, tuning, options, [imported]) as session,
        ):
            options = replace(options, device=session.run().device)
    artifact = checked(
        partial(_build, imported, name, arch, options), given.check, imported.reference, options
    )
    inputs = tuple(replace(each, is_finite=given.finite) for each in artifact.metadata.inputs)
    metadata = replace(artifact.metadata, inputs=inputs, phases=_phase_infos(phases))
    metadata.write(artifact.folder)
    return Artifact(artifact.folder, metadata, keep=artifact)


def _build(
    imported: Model, name: str, arch: Arch, options: PipelineOptions
) -> tuple[Artifact, Mapping[str, Path]]:
    """Build a library with the kernels chosen now; return it with the object of each kernel."""
    phases, tools, cache = options.phases, options.toolchain, options.cache
    if tools is None or cache is None:
        raise AssertionError("compile names its tools and its cache")
    partition(imported, arch.name, options)
    partitioned = imported.partitioned
    built = build_regions(partitioned.regions, arch.name, options, imported.frontend.convention)
    with options.phase("TVM build"):
        device_sources = imported.build(built, arch, tools, cache, options)
    folder = _TemporaryFolder(tempfile.TemporaryDirectory(prefix="boltgen-"))
    with options.phase("link"):
        library = imported.export(folder.path / LIBRARY, tools)
    kernels = _write_sources(folder.path / SOURCES, built, device_sources)
    metadata = Metadata(
        model=name,
        arch=arch.name,
        entry="main",
        inputs=_tensor_infos(imported.inputs),
        outputs=_tensor_infos(imported.outputs),
        regions=tuple(
            _region_info(launch, decisions, regret, arch)
            for launch, decisions, regret in zip(
                built.plan.launches, built.plan.decisions, built.plan.regrets, strict=True
            )
        ),
        kernels=kernels,
        placements=tuple(_placement_info(placed) for placed in partitioned.placements),
        phases=_phase_infos(phases),
        versions=_versions(tools),
        library_sha256=file_digest(library),
        sources_sha256=source_digests(folder.path),
        frontend=frontend_of(options),
        padding=partitioned.padding,
        notes=imported.notes,
        ranges=tuple(_range_info(each, options.precision.dtype) for each in imported.ranges),
        dimensions=_dimension_infos(imported.dimensions),
        rest=_rest_infos(imported, arch),
    )
    metadata.write(folder.path)
    return Artifact(folder.path, metadata, keep=folder), built.kernel_objects


def _dimension_infos(ranges: Mapping[str, tuple[int, int | None]]) -> tuple[DimensionInfo, ...]:
    return tuple(
        DimensionInfo(name=name, low=low, high=high) for name, (low, high) in ranges.items()
    )


def _tensor_infos(specs: Sequence[TensorSpec]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name=t.name, shape=t.shape, dtype=t.dtype) for t in specs)


def _exported(
    model: object,
    example_inputs: object,
    example_kwargs: Mapping[str, object] | None,
    dynamic_shapes: object,
    options: CompileOptions,
) -> object:
    """Export a PyTorch module to a program; return any other model as it is."""
    has_examples = not (example_inputs is example_kwargs is dynamic_shapes is None)
    if isinstance(example_inputs, str):
        raise ModelImportError(
            f"{example_inputs!r} is given for example inputs, the second argument: name the "
            f"architecture, arch={example_inputs!r}"
        )
    if is_module(model):
        if options.frontend == "relay":
            raise ModelImportError(
                "the Relay frontend takes a PyTorch module that was traced: give "
                "torch.jit.trace(module, inputs), and shapes={'name': (1, 3, 224, 224)}"
            )
        return export_module(model, example_inputs, example_kwargs, dynamic_shapes)
    if has_examples:
        raise ModelImportError(
            f"example inputs are for a torch.nn.Module; the model is a {type(model).__qualname__}, "
            "which says itself what its inputs are"
        )
    return model


@dataclass(frozen=True)
class _TemporaryFolder:
    """A folder that is removed with the last artifact that refers to it."""

    owner: tempfile.TemporaryDirectory[str]

    @property
    def path(self) -> Path:
        return Path(self.owner.name)


def _model_name(model: object) -> str:
    if isinstance(model, (str, Path)):
        return Path(model).stem
    return type(model).__name__


def _write_sources(
    folder: Path, built: BuiltRegions, device_sources: Sequence[Path]
) -> tuple[KernelInfo, ...]:
    """Write the generated C++ for people to read; return the kernels' entries in the metadata."""
    folder.mkdir()
    trials = built.plan.trials
    infos = []
    for kernel in built.plan.kernels:
        path = folder / f"{kernel.symbol}.cu"
        path.write_text(kernel.text, encoding="utf-8")
        infos.append(
            KernelInfo(
                symbol=kernel.symbol,
                config=str(kernel.spec.config),
                source=f"{SOURCES}/{path.name}",
                trials=trials[kernel.symbol],
                registers=used.registers if (used := built.usage.get(kernel.symbol)) else None,
            )
        )
    if built.plan.launches:
        (folder / "regions.cc").write_text(built.plan.adapter, encoding="utf-8")
    for number, path in enumerate(device_sources):
        suffix = f"_{number}" if number else ""
        shutil.copyfile(path, folder / f"tvm_kernels{suffix}.cu")
    return tuple(infos)


def _region_info(
    launch: RegionLaunch, decisions: Sequence[Decision], regret: float, arch: Arch
) -> RegionInfo:
    region, layers = launch.region, launch.region.workload.layers
    choice, decision = _usual(launch, decisions)
    bound = predict(decision.workload, decision.config, arch).bound
    return RegionInfo(
        symbol=region.symbol,
        label=region.label,
        problem="; ".join(describe(layer.problem) for layer in layers),
        epilogue=region.workload.epilogues,
        kernel=choice.kernel,
        config=str(decision.config),
        why=f"{decision.config}: {decision.time_us:.1f} us, {decision.origin}; {bound}",
        moves=tuple(launch.memory.describe()),
        workspace_bytes=launch.memory.workspace_bytes,
        gemms=tuple(_gemm_info(layer.problem) for layer in layers),
        family=decision.config.family,
        tile=decision.config.tile,
        time_us=decision.time_us,
        origin=decision.origin,
        choices=_choice_infos(launch, decisions),
        regret=round(regret, 4) if region.workload.symbols else None,
    )


def _usual(launch: RegionLaunch, decisions: Sequence[Decision]) -> tuple[Choice, Decision]:
    """Return the choice for the sizes in the middle of the ranges, with its decision."""
    middle = [typical(symbolic(symbol)) for symbol in launch.region.workload.symbols]
    for choice, decision in zip(launch.choices, decisions, strict=True):
        ends = (symbol.high for symbol in choice.cell.symbols)
        if all(size <= end for size, end in zip(middle, ends, strict=True)):
            return choice, decision
    raise AssertionError("the last cell has the greatest sizes")


def _choice_infos(launch: RegionLaunch, decisions: Sequence[Decision]) -> tuple[ChoiceInfo, ...]:
    """Return the table by which calls choose; empty if there is one size."""
    if not launch.region.workload.symbols:
        return ()
    return tuple(
        ChoiceInfo(
            sizes=", ".join(f"{s.name} {s.low} to {s.high}" for s in choice.cell.symbols),
            kernel=choice.kernel,
            config=str(decision.config),
            time_us=decision.time_us,
            origin=decision.origin,
        )
        for choice, decision in zip(launch.choices, decisions, strict=True)
    )


def _gemm_info(problem: Problem) -> GemmInfo:
    depth = problem.gemm.k if problem.has_b else "-"
    batch, m, n, k = (
        str(each) if isinstance(each, Dim) else each
        for each in (problem.batch, *problem.matrix, depth)
    )
    return GemmInfo(batch=batch, m=m, n=n, k=k)


def _placement_info(placed: Placement) -> PlacementInfo:
    return PlacementInfo(
        operator=placed.operator,
        shape=placed.shape,
        region=placed.region,
        reason=placed.reason,
        flops=placed.flops,
    )


def _range_info(found: Range, precision: DType) -> RangeInfo:
    return RangeInfo(
        operator=found.operator,
        shape=found.shape,
        low=f"{found.low:g}",
        high=f"{found.high:g}",
        is_kept_wide=found.is_beyond(precision),
    )


def _rest_infos(imported: Model, arch: Arch) -> tuple[RestInfo, ...] | None:
    """Return TVM's own kernels, in descending order of time."""
    if imported.rest is None:
        return None
    constants = model_constants(arch)
    found = (
        RestInfo(
            name=each.name,
            count=each.count,
            time_us=each.time_us(arch, constants),
            schedule=imported.rest_schedules.get(each.name, ""),
            moved_bytes=each.count * each.bytes_moved,
            is_open=each.is_open,
        )
        for each in imported.rest
    )
    return tuple(sorted(found, key=lambda each: (-each.time_us, each.name)))


def _phase_infos(phases: Phases) -> tuple[PhaseInfo, ...]:
    return tuple(
        PhaseInfo(name=name, seconds=round(seconds, 3)) for name, seconds in phases.seconds.items()
    )


def _versions(tools: Toolchain) -> dict[str, str]:
    versions = {
        "nvcc": tools.nvcc.version_text,
        "CUTLASS": tools.cutlass.version,
        "host compiler": tools.cxx.version,
    }
    # A TVM with Relay is as a rule no installed package; tvm-ffi belongs to TVM from 0.21 on.
    for package in ("boltgen", "apache-tvm", "apache-tvm-ffi"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    tvm = installed_tvm()
    if tvm is not None and "apache-tvm" not in versions:
        versions["tvm"] = tvm.version
    return versions
