"""Time from a Relay module to all generated sources: ResNet-50, batch 32, for sm_80.

Importing the model is not measured, nor is nvcc. In the environment with Relay:

    .venv-relay/bin/python -m benchmarks.relay_sources
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

from benchmarks.record import summary, write
from boltgen.device.choose import activate
from boltgen.model_passes import passes_for
from boltgen.pipeline import PipelineOptions, Plan, plan_regions
from boltgen.problems.region import Convention
from models.registry import build

TARGET_S = 20.0
REPEATS = 5


def main() -> int:
    """Measure, keep the figures, and end with status 1 where the target is missed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    activate("vgpu")
    from tvm import relay  # noqa: PLC0415

    from boltgen.frontend.relay import steps  # noqa: PLC0415

    module, params = relay.frontend.from_onnx(build("resnet50", batch=32))

    def generate() -> tuple[float, Plan]:
        passes = passes_for("sm_80", PipelineOptions())
        regions = steps.annotate(module, params, passes).regions
        partitioned = perf_counter()
        plan = plan_regions(regions, "sm_80", Convention.RELAY)
        assert len(plan.adapters) == len(regions)  # rendered here
        return partitioned, plan

    totals, partitions = [], []
    for _ in range(REPEATS):
        started = perf_counter()
        partitioned, plan = generate()
        totals.append(perf_counter() - started)
        partitions.append(partitioned - started)
    seconds = summary(totals)
    figures = {
        "seconds": seconds,
        "of_which_normalise_and_partition_s": summary(partitions),
        "regions": len(plan.launches),
        "kernels": len(plan.kernels),
    }
    write("relay_sources", figures, f"at most {TARGET_S:.0f} s")
    return 0 if seconds["median"] <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
