"""The report of a process on its trial of a model, for `run_module` in another process to read.

Each line that begins with `RESULT` has what is known so far as JSON, and the last one counts: when
the process dies, the line before it says how far it came.
"""

from __future__ import annotations

import json
from collections import Counter
from time import perf_counter
from typing import Any

from benchmarks.trials.process import MARK
from boltgen.artifact.coverage import coverage
from boltgen.passes.run import Partitioned
from boltgen.pipeline import Plan, plan_regions
from boltgen.problems.region import Placement


class Account:
    """The known results of the trial; it prints itself after every step."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._started = perf_counter()

    def add(self, step: str, **values: Any) -> None:
        """Note the seconds of `step`, which ends now, and `values`."""
        now = perf_counter()
        self.values |= {"reached": step, f"{step}_s": round(now - self._started, 2), **values}
        print(MARK + json.dumps(self.values), flush=True)
        self._started = perf_counter()

    def add_partition(self, partitioned: Partitioned) -> None:
        """Note the products of a partitioned module, and their share of FLOPs in regions."""
        placements = partitioned.placements
        found = coverage(placements)
        self.add(
            "partition",
            products=sum(placed.flops > 0 for placed in placements),
            flops=found.total_flops,
            of_flops=found.share,
            of_own_flops=coverage(each for each in placements if _is_own(each)).share,
            regions=len(partitioned.regions),
            verdict=found.verdict(),
        )

    def add_plan(self, partitioned: Partitioned, arch: str) -> None:
        """Note the kernels and launches of the regions on `arch`, and what has no region."""
        plan = plan_regions(partitioned.regions, arch)
        left = Counter(
            f"{placed.operator}: {placed.reason}"
            for placed in partitioned.placements
            if placed.region is None
        )
        self.add("plan", kernels=len(plan.kernels), launches=_launches(plan), left=dict(left))


def _is_own(placed: Placement) -> bool:
    """Whether a product is of a kind that has kernels: grouped and 1D convolutions have none."""
    return not placed.operator.startswith("conv1d") and "groups=" not in placed.reason


def _launches(plan: Plan) -> int:
    """Launches of boltgen's in an inference; a region in a loop counts once."""
    return len(plan.launches) + sum(len(launch.memory.moves) for launch in plan.launches)
