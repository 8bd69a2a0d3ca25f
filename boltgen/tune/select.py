"""Chooses a configuration for every task of a model, and few kernels for all of them.

Arrow: `tune.select`, from tasks to decisions. Where the costs come from is the `CostSource`'s
affair: the analytical model here, measurements in `tune.measured`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import AnyProblem, Chain
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Problem, describe
from boltgen.space.config import AnyConfig, Cutlass2Config, Shape
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.kernel import KernelSpec, kernel_spec
from boltgen.tune.cost_model import predict
from boltgen.tune.outcome import Failure, Outcome

# A kernel takes a compiler about ten seconds; by default it has to save this share of the model's
# predicted time. A choice, not a measurement.
DEFAULT_PRICE_FRACTION = 0.01

MODEL_ORIGIN = "predicted by the analytical model"

# Stands for any configuration where kernels are grouped by the rest of their identity.
SAME_CONFIG = Cutlass2Config(
    threadblock=Shape(64, 64, 32), warp=Shape(32, 32, 32), instruction=Shape(16, 8, 8), stages=2
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem and its epilogue, and how often the model runs it.

    An alternative is what the model would run instead of another task, were its tensors padded
    otherwise: it is timed, and no part of the model's time.
    """

    problem: Problem
    epilogue: ElementwiseGraph
    occurrences: int = 1
    is_alternative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTask:
    """A chain that could be one kernel, and how often the model could run it as such."""

    chain: Chain
    occurrences: int = 1

    @property
    def problem(self) -> Chain:
        """What to compute."""
        return self.chain

    @property
    def epilogue(self) -> ElementwiseGraph:
        """The identity: a chain's layers have its epilogues."""
        return ElementwiseGraph()


AnyTask: TypeAlias = Task | ChainTask
_Task = TypeVar("_Task", bound=AnyTask)


def is_run(task: AnyTask) -> bool:
    """Whether a task is a product that the model runs by itself, as it is now."""
    return isinstance(task, Task) and not task.is_alternative


def distinct(tasks: Sequence[_Task]) -> tuple[_Task, ...]:
    """The distinct tasks, each as often as all that equal it together.

    What the model runs is no alternative to anything.
    """
    merged: dict[tuple[AnyProblem, ElementwiseGraph], _Task] = {}
    for task in sorted(tasks, key=lambda task: isinstance(task, Task) and task.is_alternative):
        key = (task.problem, task.epilogue)
        known = merged.get(key)
        if known is None:
            merged[key] = task
        elif not is_run(known) or is_run(task):
            merged[key] = replace(known, occurrences=known.occurrences + task.occurrences)
    return tuple(merged.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The configuration chosen for a task, its time, and where that comes from, in words."""

    problem: Problem
    epilogue: ElementwiseGraph
    config: Cutlass2Config
    time_us: float
    origin: str


# What one kernel offers a task: the best time, and the launch (swizzle, split-K) that has it.
Menu: TypeAlias = dict[Cutlass2Config, tuple[float, Cutlass2Config]]
Cost: TypeAlias = float | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a task's legal configurations cost, in microseconds, or why one has no time.

    All come from one `origin`: times of two devices, or of a device and a model, do not compare.
    """

    by_config: Mapping[Cutlass2Config, Cost]
    origin: str


class Measurements(Protocol):
    """What is known of one device."""

    @property
    def origin(self) -> str:
        """Where its times are from, in words: "measured on ...", with its name."""
        ...

    def outcomes(
        self, problem: AnyProblem, epilogue: ElementwiseGraph
    ) -> Mapping[AnyConfig, Outcome]:
        """The newest outcomes of a problem's launches that are legal; none where none is known."""
        ...


class CostSource(Protocol):
    """Where costs come from."""

    @property
    def measurements(self) -> Sequence[Measurements]:
        """The devices that anything is known of, those that count most first."""
        ...

    def costs(self, problem: Problem, epilogue: ElementwiseGraph) -> Costs:
        """The costs of a task.

        Raises:
            NoLegalConfigError: it has no legal configuration.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Costs by the analytical model: needs no GPU and never fails."""

    arch: Arch

    def costs(self, problem: Problem, epilogue: ElementwiseGraph) -> Costs:
        """The predicted times of all configurations worth considering."""
        times = {
            config: predict(problem, epilogue, config, self.arch).time_us
            for config in enumerate_configs(problem, self.arch)
        }
        return Costs(by_config=times, origin=MODEL_ORIGIN)

    @property
    def measurements(self) -> tuple[Measurements, ...]:
        """None."""
        return ()


def select(
    tasks: Sequence[Task],
    arch: Arch,
    source: CostSource | None = None,
    *,
    kernel_price_us: float | None = None,
) -> tuple[Decision, ...]:
    """One decision per task, in their order.

    Tasks that can share a kernel do so unless kernels of their own save more than their price.
    This is facility location, solved greedily: open the kernel that serves all tasks best, then
    the one that saves most, as long as it saves more than the price.

    Args:
        tasks: problems as they will run (see `space.kernel.execution_problem`).
        arch: for which to choose.
        source: of costs; the analytical model by default.
        kernel_price_us: time per inference that one more kernel must save. By default a fraction
            of the sum of the best times; 0 chooses the best configuration for every task.

    Raises:
        NoLegalConfigError: a task has no legal configuration, or none that has a cost.
    """
    source = source or ModelCosts(arch)
    groups: dict[KernelSpec, list[int]] = defaultdict(list)
    menus: list[Menu] = []
    costs: dict[tuple[Problem, ElementwiseGraph], Costs] = {}
    priced: dict[tuple[Problem, ElementwiseGraph], Menu] = {}
    for index, task in enumerate(tasks):
        key = (task.problem, task.epilogue)
        if key not in priced:
            costs[key] = source.costs(task.problem, task.epilogue)
            priced[key] = _menu(task, arch, costs[key])
        menus.append(priced[key])
        groups[kernel_spec(task.problem, task.epilogue, SAME_CONFIG, arch.name)].append(index)

    if kernel_price_us is None:
        best = (min(menu.values())[0] * t.occurrences for menu, t in zip(menus, tasks, strict=True))
        kernel_price_us = DEFAULT_PRICE_FRACTION * sum(best)
    chosen: dict[int, tuple[float, Cutlass2Config]] = {}
    for members in groups.values():
        chosen.update(_assign(members, tasks, menus, kernel_price_us))
    return tuple(
        Decision(
            problem=task.problem,
            epilogue=task.epilogue,
            config=chosen[index][1],
            time_us=chosen[index][0],
            origin=costs[task.problem, task.epilogue].origin,
        )
        for index, task in enumerate(tasks)
    )


def _menu(task: Task, arch: Arch, costs: Costs) -> Menu:
    """Per kernel: the best cost and launch for the task."""
    menu: Menu = {}
    failures: list[str] = []
    for config, cost in costs.by_config.items():
        if isinstance(cost, Failure):
            failures.append(cost.reason)
            continue
        kernel, offer = config.kernel, (cost, config)
        menu[kernel] = min(menu.get(kernel, offer), offer)
    if not menu:
        raise NoLegalConfigError(
            f"none of the {len(failures)} legal configurations for {describe(task.problem)} on "
            f"{arch.name} has a cost; the first failed with: {failures[0]}"
        )
    return menu


def _assign(
    members: list[int],
    tasks: Sequence[Task],
    menus: list[Menu],
    price_us: float,
) -> dict[int, tuple[float, Cutlass2Config]]:
    """Greedy facility location among tasks that can share kernels."""
    kernels = sorted({kernel for index in members for kernel in menus[index]})
    weights = np.array([tasks[index].occurrences for index in members], dtype=np.float64)
    cost_us = np.array(
        [[menus[i][k][0] if k in menus[i] else np.inf for k in kernels] for i in members]
    )
    opened = _open(cost_us * weights[:, None], price_us)
    result = {}
    for row, index in enumerate(members):
        kernel = kernels[min(opened, key=lambda column: (cost_us[row, column], column))]
        result[index] = menus[index][kernel]
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
