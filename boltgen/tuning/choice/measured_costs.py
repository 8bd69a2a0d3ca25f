"""Costs that were measured on this device, or else on another one of its architecture."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from boltgen.arch import Arch
from boltgen.errors import DatabaseError, NoLegalConfigError
from boltgen.families.family import Config
from boltgen.families.registry import kernel_spec, violations
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Failure, Fault, Outcome
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Costs, CostSource
from boltgen.tuning.database.database import Database, Source, TimedKernel

_log = logging.getLogger(__name__)

_Known = TypeVar("_Known")

# Times from a GPU are preferred to modelled times.
_RANK = {DeviceKind.CUDA: 0, DeviceKind.RECORDED: 1, DeviceKind.VGPU: 2}
_HOW = {
    DeviceKind.CUDA: "measured on {name}",
    DeviceKind.RECORDED: "replayed from records of {name}",
    DeviceKind.VGPU: "modelled by the virtual GPU as {name}",
}


@dataclass(frozen=True, slots=True)
class DeviceRecords:
    """The records of one device in a database, for kernels of one toolchain."""

    database: Database
    source: Source
    arch: Arch
    origin: str
    # The newest contents of kernels, which the database may not know.
    contents: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    # Warnings that were given, because an unreadable database is queried for every workload.
    told: set[str] = field(default_factory=set, compare=False, repr=False)

    def outcomes(self, workload: Workload) -> dict[Config, Outcome]:
        """Return the newest outcomes of a workload's legal launches; empty if none is known."""
        return self._legal(workload, self.database.outcomes)

    def times(self, workload: Workload) -> dict[Config, TimedKernel]:
        """Return the median times among the outcomes, with their kernels."""
        return self._legal(workload, self.database.times)

    def _legal(
        self,
        workload: Workload,
        ask: Callable[[Workload, DeviceIdentity, str, Mapping[str, str]], dict[Config, _Known]],
    ) -> dict[Config, _Known]:
        try:
            found = ask(workload, self.source.device, self.source.toolchain, self.contents)
        except DatabaseError as error:
            if str(error) not in self.told:
                self.told.add(str(error))
                _log.warning("measurements are not used: %s", error)
            return {}
        # A rule that was found after a measurement may have made its configuration illegal.
        return {c: known for c, known in found.items() if not violations(workload, c, self.arch)}


class MeasuredCosts:
    """Costs from databases, in this order: `device`, other devices of `arch`, `fallback`.

    Only records of the same `toolchain` count, because another one makes other kernels.
    `measurements` lists the devices of the architecture: GPUs before the virtual GPU, then by the
    number of records. All costs of a workload come from one device. A record counts only if its
    kernel has the newest content according to `contents`, or else to its database. With `confirmed`
    contents, only times of kernels with these contents count.
    """

    def __init__(  # noqa: PLR0917 (in the order in which they count)
        self,
        databases: Sequence[Database],
        arch: Arch,
        toolchain: str,
        device: DeviceIdentity | None,
        fallback: CostSource,
        contents: Mapping[str, str] | None = None,
        *,
        confirmed: Mapping[KernelSpec, str] | None = None,
    ) -> None:
        self._arch = arch
        self._toolchain = toolchain
        self._fallback = fallback
        self._contents = contents or {}
        self._confirmed = confirmed
        told: set[str] = set()
        known = [
            DeviceRecords(
                database, source, arch, _origin(source.device, device), self._contents, told
            )
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
        """A text that changes whenever the costs may change."""
        databases = (known.database for known in self.measurements)
        stamps = tuple(each.stamp(self._arch.name, self._toolchain) for each in databases)
        return digest(stamps, tuple(sorted(self._contents.items())))

    def costs(self, workload: Workload) -> Costs:
        """Return the newest times of the first device that has any for this workload.

        Without such a device, return the fallback's costs, except of configurations that failed in
        a measurement.
        """
        failed: set[Config] = set()
        for known in self.measurements:
            timed = known.times(workload)
            if self._confirmed is not None:
                timed = {c: each for c, each in timed.items() if self._counts(workload, c, each)}
            if timed:
                return Costs(
                    by_config={config: each.median_us for config, each in timed.items()},
                    origin=known.origin,
                    kernels={config: each.kernel for config, each in timed.items()},
                )
            failed.update(c for c, found in known.outcomes(workload).items() if _is_blamed(found))
        costs = self._fallback.costs(workload)
        left = {config: cost for config, cost in costs.by_config.items() if config not in failed}
        if not left:
            raise NoLegalConfigError(
                f"all legal configurations for {workload.describe()} on {self._arch.name} failed "
                "when they were measured"
            )
        return replace(costs, by_config=left)

    def _counts(self, workload: Workload, config: Config, timed: TimedKernel) -> bool:
        spec = kernel_spec(workload, config, self._arch.name)
        return self._confirmed is None or self._confirmed.get(spec) == timed.kernel


def _is_blamed(outcome: Outcome) -> bool:
    """Return whether the kernel is at fault; a timeout or lack of memory may be the device's."""
    return isinstance(outcome, Failure) and outcome.fault not in {
        Fault.TIMEOUT,
        Fault.OUT_OF_MEMORY,
    }


def _sources(database: Database, arch: Arch, toolchain: str) -> tuple[Source, ...]:
    try:
        return database.sources(arch.name, toolchain)
    except DatabaseError as error:
        _log.warning("measurements are not used: %s", error)
        return ()


def _origin(found: DeviceIdentity, device: DeviceIdentity | None) -> str:
    how = _HOW[found.kind].format(name=found.name)
    return f"{how}, this device" if found == device else f"{how}, of the same {found.arch}"
