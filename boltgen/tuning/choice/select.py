"""Choose a configuration for every task of a model, and few kernels for all of them.

Arrow: `tune.select`, from tasks to decisions. A `CostSource` gives the costs: the analytical model
here, measurements in `tuning.choice.measured_costs`.
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

# A kernel takes a compiler about ten seconds; by default it has to save this share of the model's
# predicted time. A choice, not a measurement.
DEFAULT_PRICE_FRACTION = 0.01
# One for a range of sizes is worth it sooner: few of them have the same best kernel. A choice, by
# `benchmarks.dynamic_shapes`.
RANGE_PRICE_FRACTION = 0.001
# The weight of all cells that no traffic names together, as a share of a region's calls. A choice.
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload, and how often the model runs it.

    An alternative is what the model could run instead of other tasks, were its tensors padded
    otherwise or several layers one kernel: it is timed, and no part of the model's time. A `cell`
    is all the sizes that the task's kernel will run, where they are several: it has to be legal for
    each. Cells that are `one_of` a region's count by their `share` of its calls, whatever their
    times.
    """

    workload: Workload
    occurrences: int = 1
    is_alternative: bool = False
    cell: Workload | None = None
    one_of: str = ""
    share: float = 1.0


def distinct(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The distinct tasks, each as often as all that equal it together.

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
    the time of the best kernel that may run the workload.
    """

    workload: Workload
    config: Config
    time_us: float
    origin: str
    kernel: str | None = None
    least_us: float = 0.0


# One kernel's offer to a task: the best time, and the configuration that has it.
Offer: TypeAlias = tuple[float, Config]
Menu: TypeAlias = dict[Config, Offer]
Cost: TypeAlias = float | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The times of a workload's legal configurations in microseconds, or why one has no time.

    All come from one `origin`: times of two devices, or of a device and a model, do not compare.
    `kernels` are the contents of the measured kernels.
    """

    by_config: Mapping[Config, Cost]
    origin: str
    is_predicted: bool = False
    kernels: Mapping[Config, str] = field(default_factory=dict)


class Measurements(Protocol):
    """The measurements of one device."""

    @property
    def origin(self) -> str:
        """The source of the times, in words: "measured on ...", with the device's name."""
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
        """The costs of a workload.

        Raises:
            NoLegalConfigError: it has no legal configuration.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Costs by a cost model, the analytical one by default: needs no GPU and never fails."""

    arch: Arch
    model: CostModel = ANALYTICAL

    @property
    def origin(self) -> str:
        """The text that the times are predicted, and by which model."""
        return f"predicted by the {self.model.name} model"

    def costs(self, workload: Workload) -> Costs:
        """The predicted times of all configurations worth considering."""
        configs = candidates(workload, self.arch)
        times = self.model.predict_us(workload, configs, self.arch)
        by_config = dict(zip(configs, times, strict=True))
        return Costs(by_config=by_config, origin=self.origin, is_predicted=True)

    @property
    def measurements(self) -> tuple[Measurements, ...]:
        """Always empty."""
        return ()


def launches_of(
    kernels: Collection[KernelSpec], workload: Workload, costs: Costs, arch: str
) -> set[Config]:
    """The configurations among the `costs` of a workload that launch one of `kernels`."""
    configs = {spec.config for spec in kernels}
    return {
        config
        for config in costs.by_config
        if compiled(config) in configs and kernel_spec(workload, config, arch) in kernels
    }


@dataclass(frozen=True, slots=True)
class WithoutFaults:
    """The costs of `source`, except of kernels that ptxas compiled with `faults`.

    Their costs become failures, whether predicted or measured: no model knows of spills, and a
    measurement of one slow kernel says nothing of the others. Where `source` knows only such
    kernels, the costs are of `model`; where that knows no other either, they stay, and the kernel
    fails the audit.
    """

    source: CostSource
    model: CostSource
    arch: str
    faults: Mapping[KernelSpec, str]

    def costs(self, workload: Workload) -> Costs:
        """The costs of a workload."""
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
        """The measurements of `source`."""
        return self.source.measurements


def select(
    tasks: Sequence[Task],
    arch: Arch,
    source: CostSource | None = None,
    *,
    kernel_price_us: float | None = None,
) -> tuple[Decision, ...]:
    """Return one decision per task, in their order.

    Tasks that can share a kernel do so unless kernels of their own save more than their price.
    This is facility location, solved greedily: open the kernel that serves all tasks best, then
    the one that saves most, as long as it saves more than the price.

    Args:
        tasks: what will run.
        arch: for which to choose.
        source: of costs; the analytical model by default.
        kernel_price_us: time per inference that one more kernel must save. By default a fraction
            of the sum of the best times, a smaller one of what serves a range of sizes; 0 chooses
            the best configuration for every task.

    Raises:
        NoLegalConfigError: a task has no legal configuration, or none that has a cost.
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
    """Return each task's weight: how often it runs.

    The cells of a region count as if each took the mean time of all, in logarithms, and by their
    share of its calls. Cells that no traffic names also get a kernel, with a small share.
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
    """Return the best cost and launch per kernel: per compiled part of a configuration."""
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
    """Group the indices of tasks that can run the same kernels: their compiled parts are equal."""
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
    """Greedy facility location among tasks that can share kernels."""
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
    """Columns (kernels) to open for the rows (tasks) of `cost_us`; ties go to the first."""
    opened: list[int] = []
    current = np.full(cost_us.shape[0], np.inf)
    while True:
        if np.isinf(current).any():
            # First serve as many unserved tasks as possible, then as cheaply as possible.
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
