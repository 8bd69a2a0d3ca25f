"""Arrow: regions to objects; everything between a frontend and the linker.

    regions --tuning.select--> decisions --codegen--> sources --build--> objects

`plan_regions` is pure and needs no compiler; `build_regions` runs one on what was planned.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from boltgen.arch import arch_named
from boltgen.build.archive import archive
from boltgen.build.cache import Cache
from boltgen.build.nvcc.ptx import stored_content
from boltgen.build.nvcc.usage import KernelUsage, usage_of
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.progress import telling
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import adapter_unit, kernel_unit
from boltgen.codegen.adapter import Choice, RegionLaunch, render_adapter
from boltgen.codegen.adapter_memory import call_memory
from boltgen.errors import AuditError
from boltgen.families.family import Config
from boltgen.families.registry import candidates, kernel_spec, launch
from boltgen.families.source import KernelSource, kernel_symbol, render_kernel
from boltgen.families.trial import Trial
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import DeviceIdentity
from boltgen.options import KernelOptions, ModelOptions
from boltgen.problems.cells import representative
from boltgen.problems.layout_transform.problem import LayoutTransform
from boltgen.problems.region import Convention, Region
from boltgen.problems.workload import Workload
from boltgen.settings import Settings, settings_from
from boltgen.stored import learn_contents, stored_costs
from boltgen.tuning.choice.excluded import Excluded
from boltgen.tuning.choice.select import (
    CostSource,
    Decision,
    ModelCosts,
    Task,
    WithoutFaults,
    select,
)
from boltgen.tuning.choice.size_tables import regret, table, tasks_over
from boltgen.tuning.choice.traffic import Sizes

_log = logging.getLogger(__name__)

# So often kernels are chosen by measurements and found to be others by now. Then what was not
# compiled is taken to have changed too: to compile kernel after kernel would take too long.
_MOST_VOIDS = 2


@dataclass(slots=True)
class Phases:
    """The time of each phase in seconds, in the order in which they began."""

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
    """Options of building regions: the user's choices, and the tools to use.

    `settings`, `toolchain` and `cache` default to the environment's. The measurements of `device`
    come before measurements of other devices of its architecture. With `planned_workspaces`, TVM
    passes each region its workspace. Kernels that are `excluded` are not chosen. The folder
    `trace` gets the graphs between passes.
    """

    settings: Settings = field(default_factory=settings_from)
    phases: Phases = field(default_factory=Phases)
    toolchain: Toolchain | None = None
    cache: Cache | None = None
    device: DeviceIdentity | None = None
    planned_workspaces: bool = True
    excluded: Excluded = field(default_factory=Excluded)
    trace: Path | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the `with` block as phase `name`, and report it."""
        with self.phases.phase(name), telling(self.reporter, name):
            yield

    @classmethod
    def of(cls, options: KernelOptions) -> PipelineOptions:
        """Return the user's choices, completed by the environment."""
        if isinstance(options, PipelineOptions):
            return options
        return cls(**{each.name: getattr(options, each.name) for each in fields(KernelOptions)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a compilation: one launch per region, one source per distinct kernel.

    `decisions` are of the regions, in their order: one for each row of its table. `regrets` have
    what the kernels of each cost beyond the best for each size, as a ratio.
    """

    arch: str
    decisions: tuple[tuple[Decision, ...], ...]
    launches: tuple[RegionLaunch, ...]
    kernels: tuple[KernelSource, ...]
    adapter: str
    convention: Convention = Convention.RELAX
    planned_workspaces: bool = True
    regrets: tuple[float, ...] = ()

    @property
    def adapters(self) -> tuple[tuple[str, str], ...]:
        """(name, text) of each adapter to compile.

        Relay's TVM asks for one module per region, so there each region has an adapter of its own.
        """
        if self.convention is Convention.RELAX:
            return (("regions", self.adapter),)
        return tuple((launch.region.symbol, self._adapter_of(launch)) for launch in self.launches)

    @property
    def measured(self) -> tuple[tuple[KernelSpec, str], ...]:
        """Each kernel that was chosen for a measured time, and the content that had it."""
        return tuple(
            (kernel_spec(each.workload, each.config, self.arch), each.kernel)
            for of_region in self.decisions
            for each in of_region
            if each.kernel is not None
        )

    @property
    def trials(self) -> dict[str, tuple[Trial, ...]]:
        """Everything that the model launches, regions' calls and layout transforms, by kernel."""
        found: dict[str, dict[Trial, None]] = {}
        for decisions, made in zip(self.decisions, self.launches, strict=True):
            # The greatest sizes stand for all sizes of one launch. A configuration may have several
            # kernels, for several alignments.
            of_launch = {
                (choice.kernel, decision.config): decision
                for decision, choice in zip(decisions, made.choices, strict=True)
            }
            for (kernel, config), decision in of_launch.items():
                trial = Trial(workload=decision.workload, config=config)
                found.setdefault(kernel, {})[trial] = None
            for move in made.memory.moves:
                found.setdefault(move.kernel, {})[_move_trial(move.transform, self.arch)] = None
        return {symbol: tuple(trials) for symbol, trials in found.items()}

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

    For Relay there is an archive for each of the plan's kernels. `usage` has ptxas's report of
    kernels, by their symbols; `contents` has the contents of the kernels that were chosen for a
    measured time.
    """

    plan: Plan
    objects: tuple[Path, ...]
    symbols: tuple[str, ...]
    archives: tuple[Path, ...] = ()
    usage: Mapping[str, KernelUsage] = field(default_factory=dict)
    contents: Mapping[KernelSpec, str] = field(default_factory=dict)

    @property
    def changed(self) -> Mapping[KernelSpec, str]:
        """The contents of the kernels that differ from the measured ones."""
        return {
            spec: self.contents[spec]
            for spec, measured in self.plan.measured
            if self.contents[spec] != measured
        }

    @property
    def faults(self) -> dict[KernelSpec, str]:
        """The kernels that must not ship, and why, as ptxas reports."""
        return {
            kernel.spec: "; ".join(found)
            for kernel in self.plan.kernels
            if kernel.symbol in self.usage and (found := self.usage[kernel.symbol].faults)
        }

    def require_no_faults(self) -> None:
        """Pass the audit, the last line before linking.

        Raises:
            AuditError: a kernel must not ship, and nothing was left to choose in its place.
        """
        for spec, fault in self.faults.items():
            symbol = kernel_symbol(spec)
            computes = "; ".join(each.workload.describe() for each in self.plan.trials[symbol])
            raise AuditError(
                f"kernel {symbol} must not ship: {fault}. No other kernel computes {computes}. "
                "To do: compile without fusion (--no-fuse) if it has several layers; or set "
                "BOLTGEN_DEVICE_CODE=ptx, so that the GPU's driver makes the machine code, which "
                "nobody audits"
            )

    @property
    def kernel_objects(self) -> dict[str, Path]:
        """The object of each kernel, by its symbol."""
        objects = self.objects[len(self.plan.adapters) :]
        names = (kernel.symbol for kernel in self.plan.kernels)
        return dict(zip(names, objects, strict=True))

    @property
    def linked(self) -> dict[str, tuple[Path, tuple[Path, ...]]]:
        """For Relay: the adapter of each region, by symbol, and the archives of its kernels."""
        names = (kernel.symbol for kernel in self.plan.kernels)
        archives = dict(zip(names, self.archives, strict=True))
        found = {}
        for made, adapter in zip(self.plan.launches, self.objects, strict=False):
            kernels = (*made.kernels, *(move.kernel for move in made.memory.moves))
            found[made.region.symbol] = adapter, tuple(archives[name] for name in kernels)
        return found


def tasks_of(regions: Sequence[Region], traffic: Sequence[Sizes] = ()) -> tuple[Task, ...]:
    """Return the model's tasks: one for each region, or one for each cell of its sizes.

    Raises:
        BoltgenError: the traffic does not fit the model.
    """
    return tuple(task for region in regions for task in tasks_over(region, traffic))


def plan_regions(
    regions: Sequence[Region],
    arch: str,
    convention: Convention = Convention.RELAX,
    costs: CostSource | None = None,
    *,
    planned_workspaces: bool = True,
    traffic: Sequence[Sizes] = (),
) -> Plan:
    """Choose a kernel for each region and generate all sources; no compiler is run.

    `costs` are the analytical model's by default. Tables of symbolic sizes are chosen for the
    `traffic`.

    Raises:
        BoltgenError: the traffic does not fit the model.
        NoLegalConfigError: no configuration is legal for a region's workload.
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    asked = [tasks_over(region, traffic) for region in regions]
    found = iter(select(list(itertools.chain(*asked)), row, costs))
    decided = [tuple(itertools.islice(found, len(tasks))) for tasks in asked]
    tables = [
        table(region.workload, decisions, row)
        for region, decisions in zip(regions, decided, strict=True)
    ]
    specs: dict[KernelSpec, None] = {}

    def symbol_of(workload: Workload, config: Config) -> str:
        spec = kernel_spec(workload, config, arch)
        specs[spec] = None
        return kernel_symbol(spec)

    def move_symbol(transform: LayoutTransform) -> str:
        trial = _move_trial(transform, arch)
        return symbol_of(trial.workload, trial.config)

    launches = []
    for region, rows in zip(regions, tables, strict=True):
        choices = tuple(
            Choice(
                cell=each.cell,
                kernel=symbol_of(each.decision.workload, each.decision.config),
                launch=launch(each.cell, each.decision.config),
            )
            for each in rows
        )
        kernel_bytes = max(choice.launch.workspace_bytes for choice in choices)
        memory = call_memory(region, kernel_bytes, move_symbol)
        launches.append(RegionLaunch(region=region, choices=choices, memory=memory))
    return Plan(
        arch=arch,
        decisions=tuple(tuple(each.decision for each in rows) for rows in tables),
        launches=tuple(launches),
        kernels=tuple(render_kernel(spec) for spec in specs),
        adapter=render_adapter(launches, convention, planned=planned_workspaces),
        convention=convention,
        planned_workspaces=planned_workspaces,
        regrets=tuple(map(regret, decided, asked)),
    )


def _move_trial(transform: LayoutTransform, arch: str) -> Trial:
    workload = representative(Workload.of(transform))
    (config,) = candidates(workload, arch_named(arch))
    return Trial(workload=workload, config=config)


def build_regions(
    regions: Sequence[Region],
    arch: str,
    options: PipelineOptions | None = None,
    convention: Convention = Convention.RELAX,
) -> BuiltRegions:
    """Plan and compile the regions; without regions nothing is compiled.

    Raises:
        NoLegalConfigError: no configuration is legal for a region's workload.
        CompileError: a kernel does not compile.
        AuditError: a kernel must not ship, as ptxas reports, and no other can replace it.
        ToolchainError: a compiler is missing.
        CacheError: the cache folder cannot be used.
    """
    chosen = options or PipelineOptions()
    if not regions:
        return BuiltRegions(plan=plan_regions((), arch, convention), objects=(), symbols=())
    tools = chosen.toolchain or find_toolchain(chosen.settings)
    row = arch_named(arch)
    faults: dict[KernelSpec, str] = {}
    compiled: dict[KernelSpec, str] = {}
    open_costs = partial(stored_costs, row, tools, chosen.settings, chosen.device)
    voids = 0
    while True:
        with (
            chosen.phase("choose kernels and generate sources"),
            open_costs(compiled, only_compiled=voids >= _MOST_VOIDS) as costs,
        ):
            plan = plan_regions(
                regions,
                arch,
                convention,
                WithoutFaults(
                    chosen.excluded.out_of(costs, row),
                    chosen.excluded.out_of(ModelCosts(row), row),
                    arch,
                    faults,
                ),
                planned_workspaces=chosen.planned_workspaces,
                traffic=chosen.traffic,
            )
        with chosen.phase("compile kernels"):
            built = build_plan(plan, replace(chosen, toolchain=tools))
        if built.faults.keys() <= faults.keys() and not built.changed:
            built.require_no_faults()
            return built
        # Kernels are chosen again, without the ones that must not ship, and without measurements of
        # kernels that have changed since.
        faults |= built.faults
        if built.changed:
            for spec in built.changed:
                _log.warning(
                    "the records of kernel %s are void: it is compiled to another kernel than the "
                    "one that was measured; tune again to measure this one",
                    kernel_symbol(spec),
                )
            voids += 1
            compiled |= built.contents
            learn_contents(built.changed, tools, chosen.settings)


def build_plan(plan: Plan, options: PipelineOptions) -> BuiltRegions:
    """Compile the plan, in parallel, through the cache."""
    tools = options.toolchain or find_toolchain(options.settings)
    cache = options.cache or Cache(options.settings.cache_dir)
    units = [
        *(adapter_unit(name, text, tools) for name, text in plan.adapters),
        *(kernel_unit(kernel, tools) for kernel in plan.kernels),
    ]
    outcomes = compile_all(
        units,
        cache,
        jobs=options.jobs or options.settings.jobs,
        reporter=options.reporter,
        title="kernels",
    )
    objects = objects_or_raise(outcomes)
    measured = {spec for spec, _ in plan.measured}
    kernels = objects[len(plan.adapters) :] if plan.convention is Convention.RELAY else []
    return BuiltRegions(
        plan=plan,
        objects=tuple(compiled.path for compiled in objects),
        symbols=tuple(launch.region.symbol for launch in plan.launches),
        archives=tuple(archive(compiled, cache, tools) for compiled in kernels),
        usage={
            kernel.symbol: used
            for kernel, made in zip(plan.kernels, objects[len(plan.adapters) :], strict=True)
            if (used := usage_of(made.log, kernel.symbol))
        },
        contents={
            kernel.spec: stored_content(made.path, kernel.symbol, cache)
            for kernel, made in zip(plan.kernels, objects[len(plan.adapters) :], strict=True)
            if kernel.spec in measured
        },
    )
