"""The convolutions of Bolt's table 3, unpadded and padded: times PREDICTED by the analytical model.

Nothing is timed: `benchmarks.gpu` has the measurements, for who has a GPU. Beside the predictions
stands what the virtual GPU counts when it executes the kernels at batch 1, in one configuration:
instructions of warps for each threadblock and step of K. A scheduler issues one a clock, so their
ratio is what padding gains where issue slots are what is scarce.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.families.cutlass2.model import predict
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d
from boltgen.runtime.device import activate
from boltgen.tuning.padding import PaddingTimes
from boltgen.tuning.select import ModelCosts
from tests.cases import TABLE_3, KernelCase, table_3_cases, table_3_problem
from tests.kernels.conftest import build_libraries
from tests.kernels.launch import Cuda, KernelLibrary, Launch, random_inputs

# The batches of the table. Source: Bolt, table 3.
BATCHES = (32, 32, 128, 288, 32, 32)


def predicted(arch: Arch) -> list[dict[str, Any]]:
    """Each convolution's times in microseconds."""
    costs = PaddingTimes(arch, DType.F32)
    rows = []
    for row, (n, (h, w, c, k, (r, s), _)) in enumerate(zip(BATCHES, TABLE_3, strict=True)):
        problems = [replace(table_3_problem(row, channels), n=n) for channels in (c, c + 2)]
        times = costs.kernels_us([(problem, Epilogue()) for problem in problems])
        unpadded, padded = times.times_us
        move = costs.move_us(n * h * w * (2 * c + 2) * DType.F16.size_bytes, launches=1)
        rows.append(
            {
                "problem": [n, h, w, c, k, r, s],
                "alignment 2, us": round(unpadded, 2),
                "alignment 8, A written padded, us": round(padded, 2),
                "alignment 8 and a move, us": round(padded + move, 2),
                "speed, A written padded": round(unpadded / padded, 2),
                "speed, with a move": round(unpadded / (padded + move), 2),
                "share of the move": round(move / (padded + move), 3),
                "bound by, both": [_bound(problem, arch) for problem in problems],
            }
        )
    return rows


def _bound(problem: Conv2d, arch: Arch) -> str:
    """What the model's fastest configuration is bound by."""
    costs = ModelCosts(arch).costs(problem, Epilogue()).by_config
    times = {config: cost for config, cost in costs.items() if isinstance(cost, float)}
    return predict(problem, Epilogue(), min(times, key=lambda c: times[c]), arch).bound_by


def counted() -> list[dict[str, Any]]:
    """The instructions of each convolution's kernels at alignment 2 and at 8."""
    device = activate("vgpu")
    if device.vgpu is None:
        raise AssertionError("this process uses the virtual GPU")
    cuda = Cuda(device.vgpu)
    cases = table_3_cases()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        kernels = build_libraries(list(dict.fromkeys(c.spec for c in cases)), Path(folder))
        for narrow, wide in zip(cases[::2], cases[1::2], strict=True):
            found = [_instructions(cuda, kernels[case.spec], case) for case in (narrow, wide)]
            rows.append(
                {
                    "problem": narrow.name,
                    "configuration": str(narrow.spec.config),
                    "warp instructions for a threadblock and step, alignment 2": found[0],
                    "the same, alignment 8": found[1],
                    "ratio": round(found[0] / found[1], 2),
                }
            )
    return rows


def _instructions(cuda: Cuda, library: KernelLibrary, case: KernelCase) -> float:
    if not isinstance(case.problem, Conv2d):
        raise AssertionError("the table has convolutions")
    inputs = random_inputs(case, np.random.default_rng(0))
    cuda.vgpu.clear_launches()
    cuda.vgpu.set_option("counters", "on")
    try:
        Launch(cuda, library, case).run(inputs)
    finally:
        cuda.vgpu.set_option("counters", "off")
    (launch,) = cuda.vgpu.counters()
    blocks: int = math.prod(launch["grid"])
    depth = -(-case.problem.c // case.spec.config.threadblock.k)
    steps = depth * case.problem.r * case.problem.s
    executed: int = sum(launch["instructions"].values())
    return round(executed / blocks / steps, 1)


def main() -> None:
    """Predict for the paper's GPU and an A100, count, and record."""
    figures: dict[str, Any] = {name: predicted(arch_named(name)) for name in ("sm_75", "sm_80")}
    target = "PREDICTED, not measured: at least 1.6 times the speed of alignment 2"
    write("padding_predicted", {"predicted": figures, "counted": counted()}, target)


if __name__ == "__main__":
    main()
