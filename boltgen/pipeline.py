"""Arrow: regions to objects; everything between a frontend and the linker.

    regions --tune.select--> decisions --codegen--> sources --build--> objects

`plan_regions` is pure and needs no compiler; `build_regions` runs one on what was planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from boltgen.arch import Arch, arch_named
from boltgen.build.archive import archive
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import DeviceCode, adapter_unit, kernel_unit
from boltgen.codegen.adapter import AdapterLaunch, AnyAdapterLaunch, render_adapter
from boltgen.codegen.adapter_chain import ChainAdapterLaunch
from boltgen.codegen.kernel import KernelSource, render_kernel
from boltgen.codegen.move import MoveSource, move_symbol, render_moves
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import ChainLayer, Cut, Cutter, separate
from boltgen.ir.dtypes import DType
from boltgen.ir.padding import PaddingCosts
from boltgen.ir.problem import Problem
from boltgen.ir.region import AnyRegion, ChainRegion, Convention, Region
from boltgen.settings import Settings, settings_from
from boltgen.space.b2b_kernel import chain_kernel_spec
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.kernel import execution_problem, kernel_spec
from boltgen.stored import own_compilers, stored_costs, stored_measurements
from boltgen.tune.chains import (
    ChainDecision,
    candidate_chains,
    cut_chain,
    decide_chain,
    fused_chains,
)
from boltgen.tune.excluded import Excluded
from boltgen.tune.outcome import DeviceIdentity
from boltgen.tune.padding import OpenMeasurements, PaddingTimes
from boltgen.tune.select import ChainTask, CostSource, Decision, Task, select


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
class PipelineOptions:
    """How regions are built.

    `settings`, `toolchain` and `cache` default to what the environment says. `accumulate` is the
    type in which products are summed, `device` the one whose measurements come before those of
    others of its architecture. With `pad`, tensors have the channels with which the model is
    fastest, by what is known. With `planned_workspaces`, TVM passes each region its workspace.
    What is `excluded` is not chosen.
    """

    settings: Settings = field(default_factory=settings_from)
    jobs: int | None = None
    reporter: Reporter = field(default_factory=Silent)
    device_code: DeviceCode = DeviceCode.SASS_AND_PTX
    phases: Phases = field(default_factory=Phases)
    toolchain: Toolchain | None = None
    cache: Cache | None = None
    accumulate: DType = DType.F32
    fuse: bool = True
    pad: bool = True
    device: DeviceIdentity | None = None
    planned_workspaces: bool = True
    excluded: Excluded = field(default_factory=Excluded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be compiled: one launch per region, one source per distinct kernel and move."""

    arch: str
    decisions: tuple[Decision | ChainDecision, ...]
    launches: tuple[AnyAdapterLaunch, ...]
    kernels: tuple[KernelSource, ...]
    moves: tuple[MoveSource, ...]
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

    def _adapter_of(self, launch: AnyAdapterLaunch) -> str:
        return render_adapter([launch], self.convention, planned=self.planned_workspaces)

    @property
    def workspaces(self) -> dict[str, int]:
        """Bytes of the workspace that TVM is to pass, for each region's symbol that needs one."""
        sizes = {launch.region.symbol: launch.memory.workspace_bytes for launch in self.launches}
        return {symbol: size for symbol, size in sizes.items() if size and self.planned_workspaces}

    def moves_of(self, launch: AnyAdapterLaunch) -> tuple[MoveSource, ...]:
        """The moves in a call of `launch`."""
        symbols = {move_symbol(planned.move) for planned in launch.memory.moves}
        return tuple(move for move in self.moves if set(move.symbols) & symbols)

    def kernel_of(self, launch: AnyAdapterLaunch) -> KernelSource:
        """The kernel that `launch` runs."""
        return next(kernel for kernel in self.kernels if kernel.spec == launch.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRegions:
    """Objects to link, the adapters' first; `symbols` are the TVM functions that they export.

    For Relay there is an archive for each of the plan's kernels, then for each of its moves: see
    `frontend.relay.codegen`.
    """

    plan: Plan
    objects: tuple[Path, ...]
    symbols: tuple[str, ...]
    archives: tuple[Path, ...] = ()

    @property
    def adapters(self) -> tuple[Path, ...]:
        """The adapters among the objects."""
        return self.objects[: len(self.plan.adapters)]

    @property
    def kernel_objects(self) -> dict[str, Path]:
        """The object of each kernel and layout transform, by its symbol."""
        moves = (move.symbols for move in self.plan.moves)
        symbols = (*((kernel.symbol,) for kernel in self.plan.kernels), *moves)
        objects = self.objects[len(self.plan.adapters) :]
        return {
            symbol: path for names, path in zip(symbols, objects, strict=True) for symbol in names
        }


def tasks_of(regions: Sequence[AnyRegion], accumulate: DType) -> tuple[Task, ...]:
    """What is to be tuned for `regions` of one product each: a task each, as it runs.

    What could be one kernel is told by `Survey`.
    """
    return tuple(_task(region.accumulating_in(accumulate)) for region in _singles(regions))


def _singles(regions: Sequence[AnyRegion]) -> list[Region]:
    return [region for region in regions if isinstance(region, Region)]


def _task(region: Region) -> Task:
    return Task(problem=execution_problem(region.problem), epilogue=region.epilogue)


def plan_regions(
    regions: Sequence[AnyRegion],
    arch: str,
    convention: Convention = Convention.RELAX,
    costs: CostSource | None = None,
    *,
    planned_workspaces: bool = True,
) -> Plan:
    """Choose a kernel for each region and generate all sources; no compiler is run.

    `costs` are the analytical model's by default.

    Raises:
        NoLegalConfigError: no configuration is legal for a region's problem.
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    chosen = iter(select([_task(region) for region in _singles(regions)], row, costs))
    decisions: list[Decision | ChainDecision] = []
    launches: list[AnyAdapterLaunch] = []
    for region in regions:
        if isinstance(region, ChainRegion):
            measurements = costs.measurements if costs else ()
            decisions.append(fused := decide_chain(region.chain, row, measurements))
            launches.append(_chain_launch(region, fused, arch))
        else:
            decisions.append(single := next(chosen))
            launches.append(_launch(region, single, arch))
    specs = dict.fromkeys(launch.spec for launch in launches)
    moves = dict.fromkeys(planned.move for launch in launches for planned in launch.memory.moves)
    return Plan(
        arch=arch,
        decisions=tuple(decisions),
        launches=tuple(launches),
        kernels=tuple(render_kernel(spec) for spec in specs),
        moves=tuple(render_moves([move], arch) for move in moves),
        adapter=render_adapter(launches, convention, planned=planned_workspaces),
        convention=convention,
        planned_workspaces=planned_workspaces,
    )


def _launch(region: Region, decision: Decision, arch: str) -> AdapterLaunch:
    return AdapterLaunch(
        region=region,
        problem=decision.problem,
        spec=kernel_spec(decision.problem, region.epilogue, decision.config, arch),
        swizzle=decision.config.swizzle,
        split_k=decision.config.split_k,
    )


def _chain_launch(region: ChainRegion, decision: ChainDecision, arch: str) -> ChainAdapterLaunch:
    spec = chain_kernel_spec(decision.chain, decision.config, arch)
    return ChainAdapterLaunch(region=region, chain=decision.chain, spec=spec)


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

    def cut(layers: tuple[ChainLayer, ...]) -> Cut:
        with measurements() as known:
            found = cut_chain(layers, row, options.accumulate, known)
        parts = fused_chains(layers, found, options.accumulate)
        given_up = any(options.excluded.gives_up(chain) for chain in parts)
        return separate(layers) if given_up else found

    return cut


def rejecter(arch: str, options: PipelineOptions) -> Callable[[Problem], str | None]:
    """What tells a frontend why no kernel computes a problem on `arch`: None where one does.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)

    def rejects(problem: Problem) -> str | None:
        executed = execution_problem(replace(problem, acc_dtype=options.accumulate))
        try:
            enumerate_configs(executed, row)
        except NoLegalConfigError as error:
            return str(error)
        return options.excluded.gives_up(executed)

    return rejects


class Survey:
    """A cutter that cuts everything, and remembers the sequences that it was asked about."""

    def __init__(self) -> None:
        self.sequences: list[tuple[ChainLayer, ...]] = []

    def __call__(self, layers: tuple[ChainLayer, ...]) -> Cut:
        """A kernel for each layer."""
        self.sequences.append(layers)
        return separate(layers)

    def tasks(self, arch: str, accumulate: DType) -> tuple[ChainTask, ...]:
        """A task for each part of a sequence that is worth timing as one kernel."""
        row = arch_named(arch)
        return tuple(
            ChainTask(chain=chain)
            for layers in self.sequences
            for chain in candidate_chains(layers, row, accumulate)
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
    return PaddingTimes(row, options.accumulate, _measurements(row, options))


def _measurements(arch: Arch, options: PipelineOptions) -> OpenMeasurements:
    """Opens what was measured with the compilers that `options` mean."""
    tools = options.toolchain or own_compilers(options.settings)
    return partial(stored_measurements, arch, tools, options.settings, options.device)


def build_regions(
    regions: Sequence[AnyRegion],
    arch: str,
    options: PipelineOptions | None = None,
    convention: Convention = Convention.RELAX,
) -> BuiltRegions:
    """Plan and compile the regions; nothing is compiled where there are none.

    Raises:
        NoLegalConfigError: no configuration is legal for a region's problem.
        CompileError: a kernel does not compile.
        ToolchainError: a compiler is missing.
        CacheError: the cache folder cannot be used.
    """
    chosen = options or PipelineOptions()
    if not regions:
        return BuiltRegions(plan=plan_regions((), arch, convention), objects=(), symbols=())
    with chosen.phases.phase("choose kernels and generate sources"):
        summed = [region.accumulating_in(chosen.accumulate) for region in regions]
        tools = chosen.toolchain or find_toolchain(chosen.settings)
        with stored_costs(arch_named(arch), tools, chosen.settings, chosen.device) as costs:
            plan = plan_regions(
                summed,
                arch,
                convention,
                chosen.excluded.out_of(costs, arch_named(arch)),
                planned_workspaces=chosen.planned_workspaces,
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
        *(kernel_unit(move, tools, options.device_code) for move in plan.moves),
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
