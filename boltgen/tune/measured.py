"""Costs that were measured: of this device, else of another one of its architecture."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from boltgen.arch import Arch
from boltgen.errors import DatabaseError
from boltgen.ir.chain import AnyProblem, Conv2dChain, GemmChain
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.key import digest
from boltgen.ir.problem import Problem
from boltgen.space.b2b_legality import chain_violations
from boltgen.space.config import AnyConfig, B2bConfig, Cutlass2Config
from boltgen.space.legality import violations
from boltgen.tune.database import Database, Source
from boltgen.tune.outcome import DeviceIdentity, DeviceKind, Outcome
from boltgen.tune.select import Costs, CostSource

_log = logging.getLogger(__name__)

_Known = TypeVar("_Known")

# What was timed on a GPU is worth more than what was modelled.
_RANK = {DeviceKind.CUDA: 0, DeviceKind.RECORDED: 1, DeviceKind.VGPU: 2}
_HOW = {
    DeviceKind.CUDA: "measured on {name}",
    DeviceKind.RECORDED: "replayed from records of {name}",
    DeviceKind.VGPU: "modelled by the virtual GPU as {name}",
}


@dataclass(frozen=True, slots=True)
class DeviceRecords:
    """What a database knows of one device, for kernels by one toolchain."""

    database: Database
    source: Source
    arch: Arch
    origin: str
    # Warnings that were given: a database that cannot be read is asked for every task.
    told: set[str] = field(default_factory=set, compare=False, repr=False)

    def outcomes(self, problem: AnyProblem, epilogue: ElementwiseGraph) -> dict[AnyConfig, Outcome]:
        """The newest outcomes of a problem's launches that are legal; none where none is known."""
        return self._legal(problem, epilogue, self.database.outcomes)

    def times_us(self, problem: AnyProblem, epilogue: ElementwiseGraph) -> dict[AnyConfig, float]:
        """The median times among them."""
        return self._legal(problem, epilogue, self.database.times_us)

    def _legal(
        self,
        problem: AnyProblem,
        epilogue: ElementwiseGraph,
        ask: Callable[[AnyProblem, ElementwiseGraph, DeviceIdentity, str], dict[AnyConfig, _Known]],
    ) -> dict[AnyConfig, _Known]:
        try:
            found = ask(problem, epilogue, self.source.device, self.source.toolchain)
        except DatabaseError as error:
            if str(error) not in self.told:
                self.told.add(str(error))
                _log.warning("measurements are not used: %s", error)
            return {}
        # What was legal when it was measured may have been found not to be.
        return {c: known for c, known in found.items() if _is_legal(problem, c, self.arch)}


def _is_legal(problem: AnyProblem, config: AnyConfig, arch: Arch) -> bool:
    if isinstance(problem, (GemmChain, Conv2dChain)):
        return isinstance(config, B2bConfig) and not chain_violations(problem, config, arch)
    return isinstance(config, Cutlass2Config) and not violations(problem, config, arch)


class MeasuredCosts:
    """Costs from databases, in the order: `device`, other devices of `arch`, `fallback`.

    Only records by the same `toolchain` count: another one makes other kernels. Of several
    devices of the architecture, GPUs come before the virtual one, and those with more records
    first: `measurements` has them in that order. A task's costs are all of one device.
    """

    def __init__(
        self,
        databases: Sequence[Database],
        arch: Arch,
        toolchain: str,
        device: DeviceIdentity | None,
        fallback: CostSource,
    ) -> None:
        self._arch = arch
        self._toolchain = toolchain
        self._fallback = fallback
        told: set[str] = set()
        known = [
            DeviceRecords(database, source, arch, _origin(source.device, device), told)
            for database in databases
            for source in _sources(database, arch, toolchain)
        ]
        self.measurements = tuple(
            sorted(
                known,
                key=lambda each: (
                    each.source.device != device,
                    _RANK[each.source.device.kind],
                    -each.source.records,
                ),
            )
        )

    @property
    def stamp(self) -> str:
        """A text that changes whenever there may be other costs."""
        databases = (known.database for known in self.measurements)
        return digest(tuple(each.stamp(self._arch.name, self._toolchain) for each in databases))

    def costs(self, problem: Problem, epilogue: ElementwiseGraph) -> Costs:
        """The newest times of the first device that has any for this task."""
        for known in self.measurements:
            times = {
                config: time_us
                for config, time_us in known.times_us(problem, epilogue).items()
                if isinstance(config, Cutlass2Config)
            }
            if times:
                return Costs(by_config=times, origin=known.origin)
        return self._fallback.costs(problem, epilogue)


def _sources(database: Database, arch: Arch, toolchain: str) -> tuple[Source, ...]:
    try:
        return database.sources(arch.name, toolchain)
    except DatabaseError as error:
        _log.warning("measurements are not used: %s", error)
        return ()


def _origin(found: DeviceIdentity, device: DeviceIdentity | None) -> str:
    how = _HOW[found.kind].format(name=found.name)
    return f"{how}, this device" if found == device else f"{how}, of the same {found.arch}"
