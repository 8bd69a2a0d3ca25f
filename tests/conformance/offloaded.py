"""What a frontend makes of the cases, as text: `-m tests.conformance.offloaded relax|relay`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from boltgen.device.choose import activate
from boltgen.ir.key import canonical
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.workload import Cut, Layer
from tests.conformance.cases import CASES


def offloaded(frontend: str) -> dict[str, Any]:
    """By case: the workload of each region, fused ones, and each rejected product."""
    activate("vgpu")
    make = getattr(import_module(f"tests.conformance.{frontend}_builder"), f"{frontend}_module")
    steps = import_module(f"boltgen.frontend.{frontend}.steps")
    found = {}
    for name, case in CASES.items():
        partitioned = steps.annotate(make(case))
        rejected = [
            (placed.operator, placed.reason)
            for placed in partitioned.placements
            if placed.region is None and placed.operator in {"conv2d", "matmul"}
        ]
        regions = partitioned.regions
        found[name] = {
            "fused": _fused(steps.annotate(make(case), passes=Passes(cut=_as_one))),
            "regions": sorted(canonical((r.workload, r.a_stored, r.d_stored)) for r in regions),
            "epilogues": sorted(r.workload.epilogues for r in regions),
            "rejected": sorted(rejected),
        }
    return found


def _as_one(layers: tuple[Layer, ...]) -> Cut:
    return Cut(counts=(len(layers),), reasons=("",) * (len(layers) - 1))


def _fused(partitioned: Partitioned) -> list[tuple[str, str]]:
    """Epilogues of each region's layers, and why it does not go on, where all that can is fused."""
    return sorted((region.workload.epilogues, region.note) for region in partitioned.regions)


if __name__ == "__main__":
    json.dump(offloaded(sys.argv[1]), sys.stdout)
