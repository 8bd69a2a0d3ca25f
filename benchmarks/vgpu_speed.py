"""Speed of the virtual GPU on each instruction set of the host: kernels of ours for sm_80.

An FP16 product of 1024^3 by the kernel 128x128x32 with three stages, and a 3x3 convolution of
56x56x64 to 64 channels, batch 4; one thread each, and two for the scaling. Seconds are the
kernel's, as the virtual GPU records them; results are checked against numpy first.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import summary, write
from benchmarks.vgpu_gemm import CONFIG, build_kernel
from boltgen.codegen.kernel import render_kernel
from boltgen.errors import VgpuError
from boltgen.ir.dtypes import Layout
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.ir.reference import error_bound, run
from boltgen.runtime.device import activate
from boltgen.runtime.vgpu import Vgpu
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.space.kernel import kernel_spec
from tests.cases import KernelCase
from tests.kernels.launch import Cuda, Inputs, Launch, random_inputs

GEMM = Gemm(m=1024, n=1024, k=1024, b_layout=Layout.COLUMN)
CONV = Conv2d(n=4, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
CONV_CONFIG = Cutlass2Config(
    threadblock=Shape(128, 64, 32),
    warp=Shape(64, 32, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
REPEATS = 5


def _check(case: KernelCase, inputs: Inputs, found: Any) -> None:
    wanted = run(case.problem, Epilogue(), inputs.a, inputs.b, [])
    bound = error_bound(case.problem, Epilogue(), inputs.a, inputs.b, [])
    if not (np.abs(found - wanted) <= bound).all():
        raise SystemExit("the kernel's result is wrong; no figure is recorded")


def _gflop_per_s(vgpu: Vgpu, launch: Launch, case: KernelCase, inputs: Inputs) -> list[float]:
    for _ in range(1 + REPEATS):  # the first one parses the PTX, and warms up
        launch.run(inputs)
    return [case.problem.flops / r.wall_s / 1e9 for r in vgpu.launches()[-REPEATS:]]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    cuda = Cuda(vgpu)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, problem, config in (("gemm", GEMM, CONFIG), ("conv2d", CONV, CONV_CONFIG)):
            case = KernelCase(
                name=name, spec=kernel_spec(problem, Epilogue(), config, "sm_80"), problem=problem
            )
            kernel = render_kernel(case.spec)
            own = Path(folder) / name  # a loaded library must not be overwritten
            own.mkdir()
            launch = Launch(cuda, build_kernel(kernel, own), case)
            inputs = random_inputs(case, np.random.default_rng(0))
            _check(case, inputs, launch.run(inputs))
            for isa in ("avx512", "avx2", "generic"):
                try:
                    vgpu.set_option("isa", isa)
                except VgpuError:
                    continue  # not an instruction set of this host
                speeds = {}
                for threads in (1, 2):
                    vgpu.set_option("threads", threads)
                    speeds[threads] = summary(_gflop_per_s(vgpu, launch, case, inputs))
                figures[f"{name}, {isa}"] = {
                    "gflop_per_s": speeds[1],
                    "two threads over one": speeds[2]["median"] / speeds[1]["median"],
                }
    write(
        "vgpu_speed",
        figures,
        target="GFLOP/s, one thread: GEMM 35 with AVX-512 and 15 with AVX2, convolution 20 and 8; "
        "two threads 1.9 times as fast",
    )


if __name__ == "__main__":
    main()
