"""Build the table of launches for a region of symbolic sizes, after `tuning.choice.select`.

Kernels are chosen for few sizes, because each choice considers all configurations. Between these
sizes, the best of the chosen kernels changes with every tile that is filled or begun. The table
therefore compares the chosen launches at small steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from boltgen.arch import Arch
from boltgen.families.family import Config
from boltgen.families.registry import predict, violations
from boltgen.ir.extent import Symbol
from boltgen.problems.cells import cells, joined, representative, steps
from boltgen.problems.region import Region
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Decision, Task
from boltgen.tuning.choice.traffic import Sizes, sizes_of_region


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The launch for all sizes in `cell`, decided for the greatest sizes."""

    cell: Workload
    decision: Decision


def tasks_over(region: Region, traffic: Sequence[Sizes] = ()) -> tuple[Task, ...]:
    """Return a region's tasks to time: its workload, or one task per cell of symbolic sizes.

    A cell is weighted by its share of `traffic`; without traffic all cells are equal.

    Raises:
        BoltgenError: the traffic lacks a dimension of the region, or one is out of its range.
    """
    if not region.workload.symbols:
        return (Task(workload=region.workload),)
    found = cells(region.workload)
    counts = dict.fromkeys(range(len(found)), 0)
    for sizes, count in sizes_of_region(region, traffic):
        counts[next(index for index, cell in enumerate(found) if _has(cell, sizes))] += count
    return tuple(
        Task(
            workload=representative(cell),
            cell=cell,
            one_of=region.symbol,
            share=counts[index] / sum(counts.values()) if traffic else 1.0 / len(found),
        )
        for index, cell in enumerate(found)
    )


def _has(cell: Workload, sizes: Mapping[Symbol, int]) -> bool:
    """Return whether sizes that are in no earlier cell are in this one."""
    by_name = {symbol.name: value for symbol, value in sizes.items()}
    return all(by_name[symbol.name] <= symbol.high for symbol in cell.symbols)


def regret(decisions: Sequence[Decision], tasks: Sequence[Task]) -> float:
    """Return the mean slowdown of the chosen kernels against each size's best.

    It is a geometric mean of ratios, weighted by the tasks' shares; 1 means no slowdown.
    """
    total = sum(task.share for task in tasks)
    logs = (
        task.share * math.log(each.time_us / each.least_us)
        for each, task in zip(decisions, tasks, strict=True)
    )
    return math.exp(sum(logs) / total)


def table(workload: Workload, decisions: Sequence[Decision], arch: Arch) -> tuple[Row, ...]:
    """Return the rows for a region's workload from the decisions of its tasks; sizes ascend.

    At sizes between the decided ones, the time of a launch is the analytical model's, scaled by the
    ratio of decided to modelled time at the launch's own size.
    """
    if not workload.symbols:
        return tuple(Row(cell=workload, decision=each) for each in decisions)
    if len({each.config for each in decisions}) == 1:
        return (_row(workload, decisions[-1]),)
    offers = list({each.config: each for each in decisions}.values())
    found = [Row(cell=step, decision=_best(step, offers, arch)) for step in steps(workload)]
    rows = found[:1]
    for row in found[1:]:
        whole = joined(rows[-1].cell, row.cell)
        if whole is not None and rows[-1].decision.config == row.decision.config:
            rows[-1] = _row(whole, row.decision)
        else:
            rows.append(row)
    return tuple(rows)


def _row(cell: Workload, last: Decision) -> Row:
    """Return the row of a cell by the decision for its last sizes.

    Its kernel is that of all sizes: the last ones alone may have a wider alignment.
    """
    return Row(cell=cell, decision=replace(last, workload=representative(cell)))


def _best(cell: Workload, offers: Sequence[Decision], arch: Arch) -> Decision:
    """Return the best of the launches that are legal in all of `cell`."""
    size = representative(cell)
    legal = [
        each
        for each in offers
        if not any(violations(corner, each.config, arch) for corner in cell.corners)
    ]

    def time_us(offer: Decision) -> float:
        measured = offer.time_us / _predicted_us(offer.workload, offer.config, arch)
        return measured * _predicted_us(size, offer.config, arch)

    best = min(legal, key=time_us)
    return replace(best, workload=size, time_us=time_us(best))


def _predicted_us(workload: Workload, config: Config, arch: Arch) -> float:
    return predict(workload, config, arch).time_us
