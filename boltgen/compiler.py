"""`boltgen.compile`: a model in, one deployable library out. Runs every arrow, in order."""

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

from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.check.ship import check_identity, checked, level_named
from boltgen.codegen.adapter import AdapterLaunch, AnyAdapterLaunch
from boltgen.errors import CacheError, ModelImportError
from boltgen.frontend.imported import TensorSpec
from boltgen.frontend.ranges import Range
from boltgen.frontend.relay.versions import installed_tvm
from boltgen.frontend.torch_module import export_module, is_module
from boltgen.ir.chain import describe_chain
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.move import Move
from boltgen.ir.problem import describe
from boltgen.ir.region import Placement
from boltgen.partitioned import (
    accumulator_named,
    frontend_named,
    import_model,
    partition,
    tasks_of_model,
)
from boltgen.pipeline import BuiltRegions, Phases, PipelineOptions, build_regions
from boltgen.runtime.artifact import LIBRARY, SOURCES, Artifact, check_inputs, file_digest
from boltgen.runtime.checked import CheckLevel
from boltgen.runtime.coverage import coverage
from boltgen.runtime.metadata import (
    FILE_NAME,
    KernelInfo,
    Metadata,
    PhaseInfo,
    PlacementInfo,
    RangeInfo,
    RegionInfo,
    TensorInfo,
    read_metadata,
)
from boltgen.runtime.model import Array, Model
from boltgen.runtime.model_key import model_key
from boltgen.settings import settings_from
from boltgen.stored import stored_costs
from boltgen.tune.budget import Budget, budget_of
from boltgen.tune.chain_model import predict_chain
from boltgen.tune.chains import ChainDecision
from boltgen.tune.cost_model import predict
from boltgen.tune.outcome import Trial
from boltgen.tune.progress import Observer
from boltgen.tune.select import Decision
from boltgen.tuner import Tuning, open_task_session

_log = logging.getLogger(__name__)

# Compiled models are as large as their weights: the latest ones, up to this much, are kept.
_KIND = "model"
_MOST_CACHED_BYTES = 2 << 30


def compile(
    model: object,
    example_inputs: object = None,
    arch: str = "sm_80",
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    example_kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    jobs: int | None = None,
    reporter: Reporter | None = None,
    reuse: bool = True,
    accumulate: str = "float32",
    fuse: bool = True,
    pad: bool = True,
    frontend: str | None = None,
    tune: str | Budget | None = None,
    calibrate: Mapping[str, Array] | Sequence[Mapping[str, Array]] = (),
    device: str = "cuda",
    observer: Observer | None = None,
    check: str = "kernels",
) -> Artifact:
    """Compile `model` for `arch` to one library that a GPU and the virtual GPU both run.

    `model` is the path of an ONNX file, a `torch.export` program, a `torch.nn.Module`, or a Relax
    module; `shapes` gives the inputs' shapes where the model leaves dimensions open. A
    `torch.nn.Module` is exported in eval mode, for inputs like the example inputs (one tensor, a
    sequence of positional arguments, or a mapping of keyword arguments) and keyword arguments;
    `dynamic_shapes` is torch.export's. `jobs` compilers run at once.
    `accumulate` is the type in which products are summed: "float32", or "float16", which is faster
    on consumer GPUs and rounds at every step. With `fuse`, products in sequence become one
    back-to-back kernel where that is faster; with `pad`, tensors have more channels than the model
    says where that is faster. The artifact lives in a temporary folder until it is saved. An ONNX
    file that was compiled before, for the same arch and by the same versions of everything, is
    taken whole from the cache, unless `reuse` is false. `frontend` is "relax" or "relay"; by
    default the one that the installed TVM has. Kernels are chosen by what was measured, and by the
    analytical model where nothing was; with a budget for `tune` ("120s", "500trials") they are
    measured first, on `device`, as `boltgen.tune` does. `calibrate` has arrays for the inputs, by
    name, or several such: the model is run on them in its author's precision, and what leaves
    FP16's range is FP32 in the library. `check` says what of the library is executed on the virtual
    GPU before it ships: its "kernels", each at boundary shapes; "full", the whole model too; or
    "none". A kernel that fails is replaced.

    Examples: `boltgen.compile("resnet50.onnx", arch="sm_80").save("resnet50")`;
    `boltgen.compile(module, (torch.zeros(1, 3, 224, 224),), arch="sm_80")`.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
        NoLegalConfigError: no kernel configuration is legal for a problem.
        ToolchainError: a compiler is missing or fails at its job.
        CompileError: a kernel does not compile.
        CacheError: the cache folder cannot be used.
        BoltgenError: `frontend` is neither.
        TuningError: `tune` is no budget, or another session has the device.
        DeviceError: there is no such device to tune on.
        InputError: an array to calibrate with is not what the model takes.
        DatabaseError: what is measured cannot be written.
        InvalidProblemError: `accumulate` is no type that a tensor core sums in.
        CheckError: `check` is no level, or something fails its check that cannot be replaced.
    """
    settings = settings_from()
    row = arch_named(arch)
    name = _model_name(model)
    summed_in = accumulator_named(accumulate)
    which = frontend_named(frontend)
    level = level_named(check)
    source = _exported(model, example_inputs, example_kwargs, dynamic_shapes, which)
    tuning = (
        None if tune is None else Tuning(budget=budget_of(tune), device=device, observer=observer)
    )
    tools = find_toolchain(settings)
    cache = Cache(settings.cache_dir)
    options = PipelineOptions(
        settings=settings,
        jobs=jobs,
        reporter=reporter or Silent(),
        toolchain=tools,
        cache=cache,
        accumulate=summed_in,
        fuse=fuse,
        pad=pad,
    )
    fixed = {name: tuple(extents) for name, extents in (shapes or {}).items()}
    samples = [calibrate] if isinstance(calibrate, Mapping) else list(calibrate)
    with options.phases.phase("look for it in the cache"):
        is_cached = reuse and tuning is None and not samples
        key = None
        if is_cached:
            with stored_costs(row, tools, settings) as costs:
                key = model_key(
                    source,
                    row,
                    fixed,
                    tools,
                    summed_in,
                    fuse=fuse,
                    pad=pad,
                    measurements=costs.stamp,
                    frontend=which,
                    check=check_identity(level, settings, cache),
                )
        found = cache.find(_KIND, key, [FILE_NAME, LIBRARY]) if key else None
    if found:
        metadata = replace(read_metadata(found), phases=_phase_infos(options.phases))
        return _warned(Artifact(found, metadata))
    artifact = _compile(
        model=source,
        name=name,
        arch=row,
        shapes=fixed,
        options=options,
        frontend=which,
        tuning=tuning,
        samples=samples,
        check=level,
    )
    if key:
        try:
            cache.put(_KIND, key, artifact.folder, _MOST_CACHED_BYTES)
        except CacheError as error:
            _log.warning("the compiled model is not kept in the cache: %s", error)
    return _warned(artifact)


def _warned(artifact: Artifact) -> Artifact:
    """`artifact`, after a warning where little of it runs in boltgen's kernels."""
    found = coverage(artifact.metadata.placements)
    if found.is_low:
        _log.warning("most of the model is not in boltgen's kernels: %s", found.verdict())
    return artifact


def _compile(
    *,
    model: object,
    name: str,
    arch: Arch,
    shapes: dict[str, tuple[int, ...]],
    options: PipelineOptions,
    frontend: str,
    tuning: Tuning | None,
    samples: Sequence[Mapping[str, Array]],
    check: CheckLevel,
) -> Artifact:
    phases = options.phases
    imported = import_model(model, shapes, frontend, options)
    if samples:
        inputs = _tensor_infos(imported.inputs)
        with phases.phase("calibrate"):
            for sample in samples:
                check_inputs(inputs, sample)
            imported.calibrate([[sample[info.name] for info in inputs] for sample in samples])
    if tuning is not None:
        tasks = tasks_of_model(imported, arch.name, options)
        with (
            phases.phase("tune"),
            open_task_session(tasks, arch.name, tuning, options) as session,
        ):
            options = replace(options, device=session.run().device)
    artifact = checked(
        partial(_build, imported, name, arch, frontend, options), check, imported.reference, options
    )
    metadata = replace(artifact.metadata, phases=_phase_infos(phases))
    metadata.write(artifact.folder)
    return Artifact(artifact.folder, metadata, keep=artifact)


def _build(
    imported: Model, name: str, arch: Arch, frontend: str, options: PipelineOptions
) -> tuple[Artifact, Mapping[str, Path]]:
    """A library with what is chosen now, and the object of each of its kernels."""
    phases, tools, cache = options.phases, options.toolchain, options.cache
    if tools is None or cache is None:
        raise AssertionError("compile names its tools and its cache")
    inputs, outputs = _tensor_infos(imported.inputs), _tensor_infos(imported.outputs)
    partition(imported, arch.name, options)
    partitioned = imported.partitioned
    built = build_regions(partitioned.regions, arch.name, options, imported.frontend.convention)
    with phases.phase("TVM build"):
        device_sources = imported.build(built, arch, tools, cache, options)
    folder = _TemporaryFolder(tempfile.TemporaryDirectory(prefix="boltgen-"))
    with phases.phase("link"):
        library = imported.export(folder.path / LIBRARY, tools)
    kernels = _write_sources(folder.path / SOURCES, built, device_sources)
    metadata = Metadata(
        model=name,
        arch=arch.name,
        entry="main",
        inputs=inputs,
        outputs=outputs,
        regions=tuple(_region_info(launch, built) for launch in built.plan.launches),
        kernels=kernels,
        placements=tuple(_placement_info(placed) for placed in partitioned.placements),
        phases=_phase_infos(phases),
        versions=_versions(tools),
        library_sha256=file_digest(library),
        frontend=frontend,
        padding=partitioned.padding,
        notes=imported.notes,
        ranges=tuple(map(_range_info, imported.ranges)),
        layout_transforms=_layout_transforms(built),
    )
    metadata.write(folder.path)
    return Artifact(folder.path, metadata, keep=folder), built.kernel_objects


def _tensor_infos(specs: Sequence[TensorSpec]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name=t.name, shape=t.shape, dtype=t.dtype) for t in specs)


def _exported(
    model: object,
    example_inputs: object,
    example_kwargs: Mapping[str, object] | None,
    dynamic_shapes: object,
    frontend: str,
) -> object:
    """The program of a PyTorch module; any other model as it is."""
    has_examples = not (example_inputs is example_kwargs is dynamic_shapes is None)
    if isinstance(example_inputs, str):
        raise ModelImportError(
            f"{example_inputs!r} is given for example inputs, the second argument: name the "
            f"architecture, arch={example_inputs!r}"
        )
    if is_module(model):
        if frontend == "relay":
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
    """A folder that goes with the last artifact that refers to it."""

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
    """Write the generated C++ for people to read; the kernels' entries in the metadata."""
    folder.mkdir()
    infos = []
    for kernel in built.plan.kernels:
        path = folder / f"{kernel.symbol}.cu"
        path.write_text(kernel.text, encoding="utf-8")
        infos.append(
            KernelInfo(
                symbol=kernel.symbol,
                config=str(kernel.spec.config),
                source=f"{SOURCES}/{path.name}",
            )
        )
    for move in built.plan.moves:
        (folder / f"{move.symbol}.cu").write_text(move.text, encoding="utf-8")
    if built.plan.launches:
        (folder / "regions.cc").write_text(built.plan.adapter, encoding="utf-8")
    for number, path in enumerate(device_sources):
        suffix = f"_{number}" if number else ""
        shutil.copyfile(path, folder / f"tvm_kernels{suffix}.cu")
    return tuple(infos)


def _region_info(launch: AnyAdapterLaunch, built: BuiltRegions) -> RegionInfo:
    plan = built.plan
    decision = plan.decisions[plan.launches.index(launch)]
    region = launch.region
    if isinstance(launch, AdapterLaunch):
        problem, epilogue = describe(launch.region.problem), launch.region.epilogue.describe()
        runs_as = describe(launch.problem)
        swizzle, split_k = launch.swizzle, launch.split_k
        trial = Trial(
            problem=launch.problem, epilogue=launch.region.epilogue, config=decision.config
        )
    else:
        layers = launch.region.chain.layers
        problem = "; ".join(describe(layer.problem) for layer in layers)
        epilogue = "; ".join(layer.epilogue.describe() for layer in layers)
        runs_as = describe_chain(launch.chain)
        swizzle = split_k = 1
        trial = Trial(problem=launch.chain, epilogue=Epilogue(), config=decision.config)
    return RegionInfo(
        symbol=region.symbol,
        label=region.label,
        problem=problem,
        runs_as=runs_as,
        epilogue=epilogue,
        kernel=plan.kernel_of(launch).symbol,
        config=str(decision.config),
        split_k=split_k,
        swizzle=swizzle,
        why=f"{decision.config}: {decision.time_us:.1f} us, {decision.origin}; "
        f"{_bound(decision, plan.arch)}",
        moves=tuple(launch.memory.describe()),
        workspace_bytes=launch.memory.workspace_bytes,
        trial=trial,
    )


def _layout_transforms(built: BuiltRegions) -> tuple[Move, ...]:
    moves = (each.move for launch in built.plan.launches for each in launch.memory.moves)
    return tuple(dict.fromkeys(moves))


def _bound(decision: Decision | ChainDecision, arch: str) -> str:
    """What the analytical model thinks that the time is made of."""
    if isinstance(decision, ChainDecision):
        return predict_chain(decision.chain, decision.config, arch_named(arch)).bound
    problem, epilogue = decision.problem, decision.epilogue
    return predict(problem, epilogue, decision.config, arch_named(arch)).bound


def _placement_info(placed: Placement) -> PlacementInfo:
    return PlacementInfo(
        operator=placed.operator,
        shape=placed.shape,
        region=placed.region,
        reason=placed.reason,
        flops=placed.flops,
    )


def _range_info(found: Range) -> RangeInfo:
    return RangeInfo(
        operator=found.operator,
        shape=found.shape,
        low=f"{found.low:g}",
        high=f"{found.high:g}",
        is_kept_wide=found.is_beyond,
    )


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
