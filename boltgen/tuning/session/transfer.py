"""Find configurations that were fast elsewhere, to measure them first.

Elsewhere means on other devices, with other drivers or toolchains, or for neighbouring problems.
Arrow: from the database to the order of a search. Times from elsewhere do not count as measured: a
session times each configuration itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from boltgen.families.family import Config
from boltgen.families.registry import order
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Outcome
from boltgen.problems.workload import Workload
from boltgen.tuning.database.database import Database, Source

# The configurations that come before all others, and the neighbouring problems that may give them.
# Choices: more of them cost more trials if they are not fast here.
MOST = 4
_NEIGHBOURS = 2
# Each size of a neighbouring problem is within a factor of two: one doubling. A choice.
_FARTHEST = 1.0


class Elsewhere:
    """The records of a database, except the records of `device` with `toolchain`."""

    def __init__(self, database: Database, device: DeviceIdentity, toolchain: str) -> None:
        self._database = database
        self._device = device
        self._toolchain = toolchain

    def first(self, workload: Workload, candidates: Collection[Config]) -> tuple[Config, ...]:
        """Return the candidates fastest elsewhere, for the workload or else its neighbours.

        Raises:
            DatabaseError: the database cannot be read.
        """
        own = (
            self._times(workload, source) for source in self._sources if not self._is_own(source)
        )
        found = fastest(own, candidates)
        if found:
            return found
        near = neighbours(workload, self._workloads)
        return fastest((self._times(each, s) for each in near for s in self._sources), candidates)

    def here(self, workload: Workload) -> dict[Workload, dict[Config, Outcome]]:
        """Return the outcomes of this device and toolchain for neighbouring problems.

        Raises:
            DatabaseError: the database cannot be read.
        """
        return {
            each: self._database.outcomes(each, self._device, self._toolchain)
            for each in neighbours(workload, self._workloads)
        }

    def _times(self, workload: Workload, source: Source) -> dict[Config, float]:
        known = self._database.times(workload, source.device, source.toolchain)
        return {config: timed.median_us for config, timed in known.items()}

    def _is_own(self, source: Source) -> bool:
        return (source.device, source.toolchain) == (self._device, self._toolchain)

    @cached_property
    def _sources(self) -> list[Source]:
        """Sources by closeness: this device, its name, its architecture, GPUs, then all others."""

        def distance(source: Source) -> tuple[bool, ...]:
            device = source.device
            return (
                not self._is_own(source),
                device.name != self._device.name,
                device.arch != self._device.arch,
                device.kind is not DeviceKind.CUDA,
            )

        return sorted(self._database.sources(), key=distance)

    @cached_property
    def _workloads(self) -> tuple[Workload, ...]:
        return self._database.workloads()


def fastest(
    tables: Iterable[Mapping[Config, float]], candidates: Collection[Config]
) -> tuple[Config, ...]:
    """Return at most `MOST` candidates: the fastest `MOST // 2` of each table, in order."""
    allowed = frozenset(candidates)
    found: dict[Config, None] = {}
    for times_us in tables:
        ranked = sorted(allowed & times_us.keys(), key=lambda each: (times_us[each], order(each)))
        found.update(dict.fromkeys(ranked[: MOST // 2]))
        if len(found) >= MOST:
            break
    return tuple(found)[:MOST]


def neighbours(workload: Workload, others: Iterable[Workload]) -> list[Workload]:
    """Return the nearest workloads that differ only in sizes, each at most by a factor of two."""
    near = []
    for other in others:
        distance = _distance(workload, other)
        if other != workload and distance is not None:
            near.append((distance, str(other), other))
    return [other for _, _, other in sorted(near, key=lambda each: each[:2])[:_NEIGHBOURS]]


def _distance(one: Workload, other: Workload) -> float | None:
    """Return the distance of two problems' sizes in doublings; None if they are no neighbours."""
    if len(one.layers) != len(other.layers):
        return None
    total = 0.0
    for mine, others in zip(one.layers, other.layers, strict=True):
        a, b = mine.problem, others.problem
        is_like = mine.epilogue == others.epilogue and a.kind == b.kind
        if not is_like or a.in_dtype is not b.in_dtype or a.extents.keys() != b.extents.keys():
            return None
        for name, size in a.extents.items():
            apart = abs(math.log2((1 + size) / (1 + b.extents[name])))
            if apart > _FARTHEST:
                return None
            total += apart
    return total
