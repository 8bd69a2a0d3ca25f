"""Arrow: regions to objects; everything between a frontend and the linker.

    regions --tuning.select--> decisions --codegen--> sources --build--> objects

`plan_regions` is pure and needs no compiler; `build_regions` runs one on what was planned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from boltgen.arch import Arch, arch_named
from boltgen.build.archive import archive
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import DeviceCode, adapter_unit, kernel_unit
from boltgen.codegen.adapter import RegionLaunch, render_adapter
from boltgen.codegen.adapter_memory import call_memory
from boltgen.errors import NoLegalConfigError
from boltgen.families.family import Config
from boltgen.families.registry import candidates, kernel_spec, launch, spaces
from boltgen.families.source import KernelSource, kernel_symbol, render_kernel
from boltgen.frontend.partitioning import Passes
from boltgen.frontend.passes.carving import Rejects
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.move import LayoutTransform
from boltgen.ir.padding import PaddingCosts
from boltgen.ir.region import Convention, Region
from boltgen.ir.workload import Cut, Cutter, Layer, Workload, separate
from boltgen.options import KernelOptions, ModelOptions
from boltgen.settings import Settings, settings_from
from boltgen.stored import own_compilers, stored_costs, stored_measurements
from boltgen.tuning.fusion import candidate_fusions, cut_layers
from boltgen.tuning.outcome import DeviceIdentity
from boltgen.tuning.padding import OpenMeasurements, PaddingTimes
from boltgen.tuning.select import CostSource, Decision, Task, select


@dataclass(slots=True)
class Phases:
    """How long each phase took, in seconds, in the order in which they began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to phase `name`."""
        started = time.monotonic()
        self.seconds.setdefault(name, 0.0)
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - started


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions(ModelOptions):
    """How regions are built: what the user chose of the model, and what it is done with.

    `settings`, `toolchain` and `cache` default to what the environment says. `device` is the one
    whose measurements come before those of others of its architecture. With `planned_workspaces`,
    TVM passes each region its workspace.
    """

    settings: Settings = field(default_factory=settings_from)
    device_code: DeviceCode = DeviceCode.SASS_AND_PTX
    phases: Phases = field(default_factory=Phases)
    toolchain: Toolchain | None = None
    cache: Cache | None = None
    device: DeviceIdentity | None = None
    planned_workspaces: bool = True

    @classmethod
    def of(cls, options: KernelOptions) -> PipelineOptions:
        """What the user chose, with what the environment says."""
        if isinstance(options, PipelineOptions):
            return options
        return cls(**{each.name: getattr(options, each.name) for each in fields(KernelOptions)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be compiled: one launch per region, one source per distinct kernel.

    `decisions` are of the regions, in their order.
    """

    arch: str
    decisions: tuple[Decision, ...]
    launches: tuple[RegionLaunch, ...]
    kernels: tuple[KernelSource, ...]
    adapter: str
    convention: Convention = Convention.RELAX
    planned_workspaces: bool = True

    @property
    def adapters(self) -> tuple[tuple[str, str], ...]:
        """(name, text) of each adapter to compile.

        Relay's TVM asks for one module per region, so there each region has an adapter of its own.
        """
        if self.convention is Convention.RELAX:
            return (("regions", self.adapter),)
        return tuple((launch.region.symbol, self._adapter_of(launch)) for launch in self.launches)

    def _adapter_of(self, launch: RegionLaunch) -> str:
        return render_adapter([launch], self.convention, planned=self.planned_workspaces)

    @property
    def workspaces(self) -> dict[str, int]:
        """Bytes of the workspace that TVM is to pass, for each region's symbol that needs one."""
        sizes = {launch.region.symbol: launch.memory.workspace_bytes for launch in self.launches}
        return {symbol: size for symbol, size in sizes.items() if size and self.planned_workspaces}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRegions:
    """Objects to link, the adapters' first; `symbols` are the TVM functions that they export.

    For Relay there is an archive for each of the plan's kernels.
    """

    plan: Plan
    objects: tuple[Path, ...]
    symbols: tuple[str, ...]
    archives: tuple[Path, ...] = ()

    @property
    def linked(self) -> dict[str, tuple[Path, tuple[Path, ...]]]:
        """For Relay: by a region's symbol its adapter, and the archives of the kernels in it."""
        names = (kernel.symbol for kernel in self.plan.kernels)
        archives = dict(zip(names, self.archives, strict=True))
        found = {}
        for made, adapter in zip(self.plan.launches, self.objects, strict=False):
            kernels = (made.kernel, *(move.kernel for move in made.memory.moves))
            found[made.region.symbol] = adapter, tuple(archives[name] for name in kernels)
        return found


def tasks_of(regions: Sequence[Region]) -> tuple[Task, ...]:
    """What the model runs: a task for each region."""
    return tuple(Task(workload=region.workload) for region in regions)


def plan_regions(
    regions: Sequence[Region],
    arch: str,
    convention: Convention = Convention.RELAX,
    costs: CostSource | None = None,
    *,
    planned_workspaces: bool = True,
) -> Plan:
    """Choose a kernel for each region and generate all sources; no compiler is run.

    `costs` are the analytical model's by default.

    Raises:
        NoLegalConfigError: no configuration is legal for a region's workload.
        UnknownArchError: `arch` is not in the table.
    """
    decisions = select(tasks_of(regions), arch_named(arch), costs)
    specs: dict[KernelSpec, None] = {}

    def symbol_of(workload: Workload, config: Config) -> str:
        spec = kernel_spec(workload, config, arch)
        specs[spec] = None
        return kernel_symbol(spec)

    def move_symbol(transform: LayoutTransform) -> str:
        workload = Workload.of(transform)
        (config,) = candidates(workload, arch_named(arch))
        return symbol_of(workload, config)

    launches = []
    for region, decision in zip(regions, decisions, strict=True):
        args = launch(decision.workload, decision.config)
        launches.append(
            RegionLaunch(
                region=region,
                kernel=symbol_of(decision.workload, decision.config),
                launch=args,
                memory=call_memory(region, args.workspace_bytes, move_symbol),
            )
        )
    return Plan(
        arch=arch,
        decisions=decisions,
        launches=tuple(launches),
        kernels=tuple(render_kernel(spec) for spec in specs),
        adapter=render_adapter(launches, convention, planned=planned_workspaces),
        convention=convention,
        planned_workspaces=planned_workspaces,
    )


def passes_for(arch: str, options: PipelineOptions) -> Passes:
    """The passes of a model for `arch`: with as many products in a kernel as is faster.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    return Passes(
        cut=cutter(arch, options),
        padding=padding_costs(arch, options),
        rejects=rejecter(arch),
        accumulate=options.accumulate,
    )


def cutter(arch: str, options: PipelineOptions) -> Cutter:
    """What tells a frontend which products become one kernel on `arch`.

    By what was measured, on `options.device` first; by the analytical model where nothing was, or
    where there is no compiler whose kernels measurements could be of.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    if not options.fuse:
        return separate
    measurements = _measurements(row, options)

    def cut(layers: tuple[Layer, ...]) -> Cut:
        with measurements() as known:
            return cut_layers(layers, row, known)

    return cut


def rejecter(arch: str) -> Rejects:
    """What tells a frontend why no kernel computes a workload on `arch`: None where one does.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)

    def rejects(workload: Workload) -> str | None:
        try:
            spaces(workload, row)
        except NoLegalConfigError as error:
            return str(error)
        return None

    return rejects


class Survey:
    """A cutter that cuts everything, and remembers the sequences that it was asked about."""

    def __init__(self) -> None:
        self.sequences: list[tuple[Layer, ...]] = []

    def __call__(self, layers: tuple[Layer, ...]) -> Cut:
        """A kernel for each layer."""
        self.sequences.append(layers)
        return separate(layers)

    def tasks(self, arch: str) -> tuple[Task, ...]:
        """A task for each part of a sequence that is worth timing as one kernel."""
        row = arch_named(arch)
        return tuple(
            Task(workload=workload, is_alternative=True)
            for layers in self.sequences
            for workload in candidate_fusions(layers, row)
        )


def padding_costs(arch: str, options: PipelineOptions) -> PaddingCosts | None:
    """The times by which a frontend pads tensors for `arch`; None where it is not to pad.

    Measured ones, on `options.device` first, where there are some of all that is compared.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    if not options.pad:
        return None
    return PaddingTimes(row, _measurements(row, options))


def _measurements(arch: Arch, options: PipelineOptions) -> OpenMeasurements:
    """Opens what was measured with the compilers that `options` mean."""
    tools = options.toolchain or own_compilers(options.settings)
    return partial(stored_measurements, arch, tools, options.settings, options.device)


def build_regions(
    regions: Sequence[Region],
    arch: str,
    options: PipelineOptions | None = None,
    convention: Convention = Convention.RELAX,
) -> BuiltRegions:
    """Plan and compile the regions; nothing is compiled where there are none.

    Raises:
        NoLegalConfigError: no configuration is legal for a region's workload.
        CompileError: a kernel does not compile.
        ToolchainError: a compiler is missing.
        CacheError: the cache folder cannot be used.
    """
    chosen = options or PipelineOptions()
    if not regions:
        return BuiltRegions(plan=plan_regions((), arch, convention), objects=(), symbols=())
    with chosen.phases.phase("choose kernels and generate sources"):
        tools = chosen.toolchain or find_toolchain(chosen.settings)
        with stored_costs(arch_named(arch), tools, chosen.settings, chosen.device) as costs:
            plan = plan_regions(
                regions, arch, convention, costs, planned_workspaces=chosen.planned_workspaces
            )
    with chosen.phases.phase("compile kernels"):
        return build_plan(plan, replace(chosen, toolchain=tools))


def build_plan(plan: Plan, options: PipelineOptions) -> BuiltRegions:
    """Compile what was planned, in parallel, through the cache."""
    tools = options.toolchain or find_toolchain(options.settings)
    cache = options.cache or Cache(options.settings.cache_dir)
    units = [
        *(adapter_unit(name, text, tools) for name, text in plan.adapters),
        *(kernel_unit(kernel, tools, options.device_code) for kernel in plan.kernels),
    ]
    outcomes = compile_all(
        units,
        cache,
        jobs=options.jobs or options.settings.jobs,
        reporter=options.reporter,
        title="kernels",
    )
    objects = objects_or_raise(outcomes)
    kernels = objects[len(plan.adapters) :] if plan.convention is Convention.RELAY else []
    return BuiltRegions(
        plan=plan,
        objects=tuple(compiled.path for compiled in objects),
        symbols=tuple(launch.region.symbol for launch in plan.launches),
        archives=tuple(archive(compiled, cache, tools) for compiled in kernels),
    )
