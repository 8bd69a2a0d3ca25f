"""Choose a configuration for every task of a model, and few kernels for all of them.

Arrow: `tune.select`, from tasks to decisions. A `CostSource` gives the costs: the analytical model
here, or measurements in `tuning.choice.measured_costs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.cost.model import ANALYTICAL, CostModel
from boltgen.errors import NoLegalConfigError
from boltgen.families.family import Config
from boltgen.families.registry import FAMILIES, candidates, compiled, kernel_spec, order, violations
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import Failure, Fault, Outcome
from boltgen.problems.workload import Workload

# To compile a kernel takes about ten seconds; by default it must save this share of the model's
# predicted time. A choice, not a measurement.
DEFAULT_PRICE_FRACTION = 0.01
# A lower price for kernels of ranges of sizes, because few sizes share the best kernel. A choice,
# by `benchmarks.dynamic_shapes`.
RANGE_PRICE_FRACTION = 0.001
# The weight of all cells outside the traffic, as a share of a region's calls. A choice.
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload, and the number of times that the model runs it.

    An alternative is a workload that the model would run with other padding or fusion; it is timed,
    but not counted in the model's time. A `cell` has all sizes that the task's kernel will run, and
    the kernel must be legal for each of them. Cells with the same `one_of`, a region, are weighted
    by `share`, their part of the region's calls, independent of their times.
    """

    workload: Workload
    occurrences: int = 1
    is_alternative: bool = False
    cell: Workload | None = None
    one_of: str = ""
    share: float = 1.0


def distinct(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the distinct tasks, each with the sum of the occurrences of equal tasks.

    A workload that the model runs is never an alternative.
    """
    merged: dict[Workload, Task] = {}
    for task in sorted(tasks, key=lambda task: task.is_alternative):
        known = merged.get(task.workload)
        if known is None:
            merged[task.workload] = task
        elif known.is_alternative or not task.is_alternative:
            more = known.occurrences + task.occurrences
            merged[task.workload] = replace(known, occurrences=more)
    return tuple(merged.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The configuration chosen for a workload, its time, and the time's source in words.

    `kernel` is the content of the measured kernel, or None if the time is predicted. `least_us` is
    the time of the best legal kernel for the workload.
    """

    workload: Workload
    config: Config
    time_us: float
    origin: str
    kernel: str | None = None
    least_us: float = 0.0


# A kernel's offer to a task: its best time, and the configuration with this time.
Offer: TypeAlias = tuple[float, Config]
Menu: TypeAlias = dict[Config, Offer]
Cost: TypeAlias = float | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The time of each legal configuration of a workload in microseconds, or its failure.

    All times come from one `origin`: times of two devices, or of a device and a model, are not
    comparable. `kernels` has the contents of the measured kernels.
    """

    by_config: Mapping[Config, Cost]
    origin: str
    is_predicted: bool = False
    kernels: Mapping[Config, str] = field(default_factory=dict)


class Measurements(Protocol):
    """The measurements of one device."""

    @property
    def origin(self) -> str:
        """The source of the times in words: "measured on ...", with the device's name."""
        ...

    def outcomes(self, workload: Workload) -> Mapping[Config, Outcome]:
        """Return the newest outcomes of a workload's legal launches; empty if none is known."""
        ...


class CostSource(Protocol):
    """A source of costs."""

    @property
    def measurements(self) -> Sequence[Measurements]:
        """The devices with measurements, in descending preference."""
        ...

    def costs(self, workload: Workload) -> Costs:
        """Return the costs of a workload.

        Raises:
            NoLegalConfigError: the workload has no legal configuration.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Costs by a cost model, by default the analytical one, which needs no GPU and never fails."""

    arch: Arch
    model: CostModel = ANALYTICAL

    @property
    def origin(self) -> str:
        """The statement that the times are predicted, with the model's name."""
        return f"predicted by the {self.model.name} model"

    def costs(self, workload: Workload) -> Costs:
        """Return the predicted times of all configurations worth considering."""
        configs = candidates(workload, self.arch)
        times = self.model.predict_us(workload, configs, self.arch)
        by_config = dict(zip(configs, times, strict=True))
        return Costs(by_config=by_config, origin=self.origin, is_predicted=True)

    @property
    def measurements(self) -> tuple[Measurements, ...]:
        """Return (): a model has no measurements."""
        return ()


def launches_of(
    kernels: Collection[KernelSpec], workload: Workload, costs: Costs, arch: str
) -> set[Config]:
    """Return the configurations among a workload's `costs` that launch one of `kernels`."""
    configs = {spec.config for spec in kernels}
    return {
        config
        for config in costs.by_config
        if compiled(config) in configs and kernel_spec(workload, config, arch) in kernels
    }


@dataclass(frozen=True, slots=True)
class WithoutFaults:
    """The costs of `source`, except of kernels for which ptxas reports `faults`.

    These costs become failures, whether predicted or measured: no model knows about spills, and one
    measured slow kernel tells nothing about others. If `source` has only such kernels, the costs of
    `model` are used. If all of these have faults, too, they stay, and the chosen kernel fails the
    audit.
    """

    source: CostSource
    model: CostSource
    arch: str
    faults: Mapping[KernelSpec, str]

    def costs(self, workload: Workload) -> Costs:
        """Return the costs of a workload without kernels that have faults."""
        costs = self.source.costs(workload)
        if not self.faults:
            return costs
        for source in (self.source, self.model):
            found = self._without(workload, source.costs(workload))
            if any(not isinstance(cost, Failure) for cost in found.by_config.values()):
                return found
        return costs

    def _without(self, workload: Workload, costs: Costs) -> Costs:
        reasons = {
            config: self.faults[kernel_spec(workload, config, self.arch)]
            for config in launches_of(self.faults, workload, costs, self.arch)
        }
        failures = {
            config: Failure(fault=Fault.COMPILE, reason=reason)
            for config, reason in reasons.items()
        }
        return replace(costs, by_config={**costs.by_config, **failures}) if failures else costs

    @property
    def measurements(self) -> Sequence[Measurements]:
        """Return the measurements of `source`."""
        return self.source.measurements


def select(
    tasks: Sequence[Task],
    arch: Arch,
    source: CostSource | None = None,
    *,
    kernel_price_us: float | None = None,
) -> tuple[Decision, ...]:
    """Return one decision per task, in their order.

    Tasks that can share a kernel do so, unless further kernels save more than their price. This is
    facility location, solved greedily: open the kernel that serves all tasks best, then repeatedly
    the kernel that saves most, while it saves more than the price.

    Args:
        tasks: the workloads to run.
        arch: the architecture of the kernels.
        source: the costs; by default the analytical model's.
        kernel_price_us: the time per inference that a further kernel must save. By default it is a
            fraction of the sum of the best times, smaller for kernels of ranges of sizes. 0 chooses
            the best configuration for every task.

    Raises:
        NoLegalConfigError: a task has no legal configuration, or all of them failed.
    """
    source = source or ModelCosts(arch)
    costs: dict[Workload, Costs] = {}
    menus: dict[tuple[Workload, Workload | None], Menu] = {}
    for task in tasks:
        if task.workload not in costs:
            costs[task.workload] = source.costs(task.workload)
        if (task.workload, task.cell) not in menus:
            menus[task.workload, task.cell] = _menu(task, arch, costs[task.workload])
    offers = [menus[task.workload, task.cell] for task in tasks]
    weights = _weights(tasks, offers)
    total = sum(w * _best(menu) for w, menu in zip(weights, offers, strict=True))
    chosen: dict[int, Offer] = {}
    for members in _sharing(tasks, arch):
        price_us = kernel_price_us
        if price_us is None:
            is_range = any(tasks[index].one_of for index in members)
            price_us = total * (RANGE_PRICE_FRACTION if is_range else DEFAULT_PRICE_FRACTION)
        chosen.update(_assign(members, weights, offers, price_us))
    return tuple(
        Decision(
            workload=task.workload,
            config=chosen[index][1],
            time_us=chosen[index][0],
            origin=costs[task.workload].origin,
            kernel=costs[task.workload].kernels.get(chosen[index][1]),
            least_us=_best(offers[index]),
        )
        for index, task in enumerate(tasks)
    )


def _best(menu: Menu) -> float:
    return min(us for us, _ in menu.values())


def _weights(tasks: Sequence[Task], menus: Sequence[Menu]) -> list[float]:
    """Return each task's weight: its number of runs.

    A region's cells count as if each took their geometric mean time, weighted by their share of the
    region's calls. Cells outside the traffic also get a kernel, by a small share.
    """
    weights = [float(task.occurrences) for task in tasks]
    regions: dict[str, list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        if task.one_of:
            regions[task.one_of].append(index)
    for members in regions.values():
        times = np.array([_best(menus[index]) for index in members])
        mean = float(np.exp(np.log(times).mean()))
        for index, time in zip(members, times, strict=True):
            share = max(tasks[index].share, _LEAST_SHARE / len(members))
            weights[index] *= share * mean / time
    return weights


def _menu(task: Task, arch: Arch, costs: Costs) -> Menu:
    """Return the best cost and configuration per kernel, the compiled part of a configuration."""
    workload = task.workload
    sizes = task.cell.corners if task.cell is not None else ()
    menu: Menu = {}
    failures: list[str] = []
    for config, cost in costs.by_config.items():
        if isinstance(cost, Failure):
            failures.append(cost.reason)
            continue
        broken = [rule for each in sizes for rule in violations(each, config, arch)]
        if broken:
            failures.append(broken[0].message)
            continue
        kernel = compiled(config)
        offer = menu.get(kernel)
        if offer is None or (cost, order(config)) < (offer[0], order(offer[1])):
            menu[kernel] = (cost, config)
    if not menu:
        raise NoLegalConfigError(
            f"none of the {len(failures)} legal configurations for {workload.describe()} on "
            f"{arch.name} has a cost; the first failed with: {failures[0]}"
        )
    return menu


def _sharing(tasks: Sequence[Task], arch: Arch) -> list[list[int]]:
    """Group the indices of tasks whose compiled parts are equal, so that kernels serve all."""
    groups: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        groups[_compiled_of(task.workload, arch)].append(index)
    return list(groups.values())


def _compiled_of(workload: Workload, arch: Arch) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (family.name, family.traits(workload))
        for family in FAMILIES
        if family.rejects(workload, arch) is None
    )


def _assign(
    members: list[int], weights: Sequence[float], menus: Sequence[Menu], price_us: float
) -> dict[int, Offer]:
    """Choose kernels for tasks that can share them, by greedy facility location."""
    offers = [menus[index] for index in members]
    kernels = sorted({kernel for menu in offers for kernel in menu}, key=order)
    counts = np.array([weights[index] for index in members])
    cost_us = np.array([[menu[k][0] if k in menu else np.inf for k in kernels] for menu in offers])
    opened = _open(cost_us * counts[:, None], price_us)
    result = {}
    for row, index in enumerate(members):
        kernel = kernels[min(opened, key=lambda column: (cost_us[row, column], column))]
        result[index] = offers[row][kernel]
    return result


def _open(cost_us: NDArray[np.float64], price_us: float) -> list[int]:
    """Return the columns (kernels) to open for the rows (tasks) of `cost_us`; ties: the first."""
    opened: list[int] = []
    current = np.full(cost_us.shape[0], np.inf)
    while True:
        if np.isinf(current).any():
            # First serve as many unserved tasks as possible, at the least total cost.
            unserved = np.isinf(current)
            served = np.isfinite(cost_us[unserved]).sum(axis=0)
            total = np.where(
                served == served.max(),
                np.where(np.isfinite(cost_us), np.minimum(cost_us, current[:, None]), 0.0).sum(0),
                np.inf,
            )
            column = int(np.argmin(total))
        else:
            saved = np.maximum(current[:, None] - cost_us, 0.0).sum(axis=0)
            column = int(np.argmax(saved))
            if saved[column] <= price_us:
                return opened
        opened.append(column)
        current = np.minimum(current, cost_us[:, column])
