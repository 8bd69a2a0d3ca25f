"""What a frontend makes of the cases, as text: `-m tests.conformance.offloaded relax|relay`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from boltgen.ir.key import canonical
from boltgen.runtime.device import activate
from tests.conformance.cases import CASES


def offloaded(frontend: str) -> dict[str, Any]:
    """By case: problem and epilogue of each region, and each rejected product with its reason."""
    activate("vgpu")
    make = getattr(import_module(f"tests.conformance.{frontend}_builder"), f"{frontend}_module")
    steps = import_module(f"boltgen.frontend.{frontend}.steps")
    patterns = import_module(f"boltgen.frontend.{frontend}.patterns")
    found = {}
    for name, case in CASES.items():
        annotated = steps.annotate(make(case))
        rejected = [
            (placed.operator, placed.reason)
            for placed in patterns.placements(annotated)
            if placed.region is None and placed.operator in {"conv2d", "matmul"}
        ]
        regions = patterns.regions(annotated)
        found[name] = {
            "regions": sorted(canonical((r.problem, r.epilogue)) for r in regions),
            "epilogues": sorted(r.epilogue.describe() for r in regions),
            "rejected": sorted(rejected),
        }
    return found


if __name__ == "__main__":
    json.dump(offloaded(sys.argv[1]), sys.stdout)
