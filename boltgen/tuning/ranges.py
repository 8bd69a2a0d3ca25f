"""The table of a symbolic region: which launch each size takes. Arrow: after `tuning.select`.

Kernels are chosen for few sizes, since each choice looks at all configurations. Between those sizes
the best of the kernels that were chosen changes with every tile that a size fills or begins. So the
table asks at small steps, of the chosen launches only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boltgen.arch import Arch
from boltgen.families.family import Config
from boltgen.families.registry import predict, violations
from boltgen.ir.cells import cells, joined, representative, steps
from boltgen.ir.workload import Workload
from boltgen.tuning.select import Decision, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The launch of all sizes in `cell`, decided for its greatest."""

    cell: Workload
    decision: Decision


def tasks_over(workload: Workload, name: str) -> tuple[Task, ...]:
    """What is to be timed for a workload of the region `name`: itself, or sizes in its ranges."""
    if not workload.symbols:
        return (Task(workload=workload),)
    return tuple(
        Task(workload=representative(cell), cell=cell, one_of=name) for cell in cells(workload)
    )


def table(workload: Workload, decisions: Sequence[Decision], arch: Arch) -> tuple[Row, ...]:
    """The rows for a workload, of whose `tasks_over` these are the decisions; sizes ascend.

    Between the sizes that were decided, a launch has the time that the analytical model says, times
    what the time of its decision is to the model's.
    """
    if not workload.symbols:
        return tuple(Row(cell=workload, decision=each) for each in decisions)
    found = [
        Row(cell=cell, decision=each) for cell, each in zip(cells(workload), decisions, strict=True)
    ]
    if len(workload.symbols) == 1:
        offers = list({each.config: each for each in decisions}.values())
        found = [Row(cell=step, decision=_best(step, offers, arch)) for step in steps(workload)]
    rows = found[:1]
    for row in found[1:]:
        whole = joined(rows[-1].cell, row.cell)
        if whole is not None and rows[-1].decision.config == row.decision.config:
            rows[-1] = replace(row, cell=whole)
        else:
            rows.append(row)
    return tuple(rows)


def _best(cell: Workload, offers: Sequence[Decision], arch: Arch) -> Decision:
    """The best of the launches that are legal in all of `cell`."""
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
