"""Costs that were measured: of this device, else of another one of its architecture."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.errors import DatabaseError
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.key import digest
from boltgen.ir.problem import Problem
from boltgen.space.legality import violations
from boltgen.tune.database import Database, Source
from boltgen.tune.outcome import DeviceIdentity, DeviceKind
from boltgen.tune.select import Costs, CostSource

_log = logging.getLogger(__name__)

# What was timed on a GPU is worth more than what was modelled.
_RANK = {DeviceKind.CUDA: 0, DeviceKind.RECORDED: 1, DeviceKind.VGPU: 2}
_HOW = {
    DeviceKind.CUDA: "measured on {name}",
    DeviceKind.RECORDED: "replayed from records of {name}",
    DeviceKind.VGPU: "modelled by the virtual GPU as {name}",
}


@dataclass(frozen=True, slots=True)
class _Known:
    """A device that some database has records of."""

    database: Database
    source: Source
    origin: str


class MeasuredCosts:
    """Costs from databases, in the order: `device`, other devices of `arch`, `fallback`.

    Only records by the same `toolchain` count: another one makes other kernels. Of several
    devices of the architecture, GPUs come before the virtual one, and those with more records
    first. A task's costs are all of one device.
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
        known = [
            _Known(database, source, _origin(source.device, device))
            for database in databases
            for source in _sources(database, arch, toolchain)
        ]
        self._known = sorted(
            known,
            key=lambda each: (
                each.source.device != device,
                _RANK[each.source.device.kind],
                -each.source.records,
            ),
        )

    @property
    def stamp(self) -> str:
        """A text that changes whenever there may be other costs."""
        stamps = (known.database.stamp(self._arch.name, self._toolchain) for known in self._known)
        return digest(tuple(stamps))

    def costs(self, problem: Problem, epilogue: Epilogue) -> Costs:
        """The newest times of the first device that has any for this task."""
        for known in self._known:
            try:
                times = known.database.times_us(
                    problem, epilogue, known.source.device, self._toolchain
                )
            except DatabaseError as error:
                _log.warning("measurements are not used: %s", error)
                continue
            # What was legal when it was measured may have been found not to be.
            legal = {c: t for c, t in times.items() if not violations(problem, c, self._arch)}
            if legal:
                return Costs(by_config=legal, origin=known.origin)
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
