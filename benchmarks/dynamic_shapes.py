"""Compare one library for all sizes with a library for each size: predicted, for BERT-base.

The five regions of a layer are given kernels for a batch of 1 to 64 and a sequence of 16 to 512,
as `boltgen compile` does it, and again for each of some sizes in that range, which lie between the
corners of the tables' cells as well as on them. Times are the analytical model's: nothing was
measured on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.families.registry import kernel_spec, predict
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import SOFTMAX
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.cells import localised
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.region import LayerRoles, Region
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.select import Task, select
from boltgen.tuning.choice.size_tables import Row, table, tasks_over

BATCH, LENGTH = Symbol("batch", 1, 64), Symbol("length", 16, 512)
BATCHES = (1, 2, 3, 5, 8, 13, 16, 27, 32, 48, 64)
LENGTHS = (16, 24, 31, 32, 64, 77, 128, 200, 256, 384, 500, 512)
HIDDEN, HEADS = 768, 12
ARCHES = ("sm_75", "sm_80", "sm_90a")


def layer() -> Iterator[Workload]:
    """The products of a layer, query, key and value as one, and its attention."""
    batch, length = symbolic(BATCH), symbolic(LENGTH)
    for n, k in (
        (3 * HIDDEN, HIDDEN),
        (HIDDEN, HIDDEN),
        (4 * HIDDEN, HIDDEN),
        (HIDDEN, 4 * HIDDEN),
    ):
        yield Workload.of(Gemm(m=batch * length, n=n, k=k))
    size = HIDDEN // HEADS
    scores = Gemm(
        batch=HEADS * batch,
        m=length,
        n=length,
        k=size,
        b_layout=Layout.COLUMN,
        out_dtype=DType.F32,
    )
    context = Gemm(batch=HEADS * batch, m=length, n=size, k=length)
    yield Workload(layers=(Layer(problem=scores), Layer(problem=context, prologue=SOFTMAX)))


class Open:
    """A region of open sizes and its table."""

    def __init__(self, workload: Workload, name: str) -> None:
        own, made = localised(workload)
        self.region = Region(
            symbol=name,
            label="",
            workload=own,
            parameter_count=1 + len(own.layers),
            a=0,
            layers=tuple(LayerRoles(b=1 + index) for index in range(len(own.layers))),
            origins=tuple((symbol.symbols[0], extent) for extent, symbol in made.items()),
        )
        self.tasks = tasks_over(self.region)
        self.rows: tuple[Row, ...] = ()

    def time_us(self, values: Mapping[Symbol, int], arch: Arch) -> float:
        """The predicted time of the launch that a call of these sizes makes."""
        sizes = {own: extent.of(values) for own, extent in self.region.origins}
        row = next(
            row
            for row in self.rows
            if all(
                sizes[whole] <= part.high
                for whole, part in zip(self.region.workload.symbols, row.cell.symbols, strict=True)
            )
        )
        return predict(self.region.workload.at(sizes), row.decision.config, arch).time_us


def figures(name: str) -> dict[str, Any]:
    """Ratios of the sums of a layer's times, and how many kernels there are."""
    arch = arch_named(name)
    regions = [Open(workload, str(index)) for index, workload in enumerate(layer())]
    decided = iter(select([task for region in regions for task in region.tasks], arch))
    for region in regions:
        region.rows = table(region.region.workload, [next(decided) for _ in region.tasks], arch)
    kernels = {
        kernel_spec(row.decision.workload, row.decision.config, name)
        for region in regions
        for row in region.rows
    }
    ratios: dict[tuple[int, int], float] = {}
    for batch, length in product(BATCHES, LENGTHS):
        values = {BATCH: batch, LENGTH: length}
        tasks = [Task(workload=workload.at(values)) for workload in layer()]
        alone = sum(decision.time_us for decision in select(tasks, arch))
        ratios[batch, length] = sum(each.time_us(values, arch) for each in regions) / alone
    worst = max(ratios, key=lambda size: ratios[size])
    return {
        "kernels": len(kernels),
        "rows": [len(region.rows) for region in regions],
        "sizes": len(ratios),
        "geometric_mean": round(statistics.geometric_mean(ratios.values()), 4),
        "worst": {"batch": worst[0], "length": worst[1], "ratio": round(ratios[worst], 3)},
    }


def main() -> None:
    """Compare, and record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    write("dynamic_shapes", {arch: figures(arch) for arch in ARCHES}, target="1.03x, predicted")


if __name__ == "__main__":
    main()
