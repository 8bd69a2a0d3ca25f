"""Costs that were measured: of this device, else of another one of its architecture."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from boltgen.arch import Arch
from boltgen.errors import DatabaseError, NoLegalConfigError
from boltgen.families.family import Config
from boltgen.families.registry import violations
from boltgen.ir.key import digest
from boltgen.ir.workload import Workload
from boltgen.tuning.database import Database, Source
from boltgen.tuning.outcome import DeviceIdentity, DeviceKind, Outcome
from boltgen.tuning.select import Costs, CostSource

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

    def outcomes(self, workload: Workload) -> dict[Config, Outcome]:
        """The newest outcomes of a workload's launches that are legal; none where none is known."""
        return self._legal(workload, self.database.outcomes)

    def times_us(self, workload: Workload) -> dict[Config, float]:
        """The median times among them."""
        return self._legal(workload, self.database.times_us)

    def _legal(
        self,
        workload: Workload,
        ask: Callable[[Workload, DeviceIdentity, str], dict[Config, _Known]],
    ) -> dict[Config, _Known]:
        try:
            found = ask(workload, self.source.device, self.source.toolchain)
        except DatabaseError as error:
            if str(error) not in self.told:
                self.told.add(str(error))
                _log.warning("measurements are not used: %s", error)
            return {}
        # What was legal when it was measured may have been found not to be.
        return {c: known for c, known in found.items() if not violations(workload, c, self.arch)}


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

    def costs(self, workload: Workload) -> Costs:
        """The newest times of the first device that has any for this workload.

        Where there is none, the fallback's, without what failed when it was measured.
        """
        failed: set[Config] = set()
        for known in self.measurements:
            times = known.times_us(workload)
            if times:
                return Costs(by_config=times, origin=known.origin)
            failed.update(known.outcomes(workload))
        costs = self._fallback.costs(workload)
        left = {config: cost for config, cost in costs.by_config.items() if config not in failed}
        if not left:
            raise NoLegalConfigError(
                f"all legal configurations for {workload.describe()} on {self._arch.name} failed "
                "when they were measured"
            )
        return Costs(by_config=left, origin=costs.origin)


def _sources(database: Database, arch: Arch, toolchain: str) -> tuple[Source, ...]:
    try:
        return database.sources(arch.name, toolchain)
    except DatabaseError as error:
        _log.warning("measurements are not used: %s", error)
        return ()


def _origin(found: DeviceIdentity, device: DeviceIdentity | None) -> str:
    how = _HOW[found.kind].format(name=found.name)
    return f"{how}, this device" if found == device else f"{how}, of the same {found.arch}"
