"""Every configuration that the enumerator offers, compiled and run against the oracle.

`make test` covers pairs of dimensions; this takes everything: what legality calls legal must
compile and be right. About a thousand kernels, half an hour on two cores; `--every 9` for a ninth.
Those of sm_90a's own family take a minute each:

    python -m tests.sweep_kernels --arch sm_80
    python -m tests.sweep_kernels --arch sm_90a --family cutlass3

Arguments of the launch take turns: each kernel is launched with one swizzle, and one of the rasters
and numbers of slices that it has.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.cases.kernels import EPILOGUES, KernelCase
from benchmarks.cases.wgmma import WgmmaKernel
from benchmarks.harness.kernel_launch import Cuda, Launch, random_inputs
from boltgen.arch import arch_named
from boltgen.device.choose import activate
from boltgen.families.cutlass2.candidates import kernel_configs
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass3.config import Cutlass3Config
from boltgen.families.mma_sync.candidates import SWIZZLES
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import FAMILIES, kernel_spec
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.reference import Agreement, compare, error_bound, run
from boltgen.problems.workload import Workload
from tests.sweeps import Libraries, findings

_KERNELS_AT_ONCE = 24
# More steps of K than stream-K leaves to one threadblock.
_DEEP_K = 648

# Two or more tiles of every configuration in each dimension, and a ragged edge.
PROBLEMS: dict[str, Problem] = {
    "gemm_column_8": Gemm(m=390, n=392, k=200, b_layout=Layout.COLUMN),
    "gemm_row_8": Gemm(m=390, n=392, k=200),
    "gemm_row_2": Gemm(m=390, n=390, k=202),
    "gemm_row_1": Gemm(m=390, n=391, k=201),
    "gemm_row_8_to_f32": Gemm(m=390, n=392, k=200, out_dtype=DType.F32),
    "gemm_column_4_in_f16": Gemm(m=390, n=388, k=204, b_layout=Layout.COLUMN, acc_dtype=DType.F16),
    "conv_8": Conv2d(n=2, h=14, w=15, c=24, k=392, r=3, s=3, padding=(1, 1, 1, 1)),
    "conv_8_in_f16": Conv2d(
        n=2, h=14, w=15, c=24, k=392, r=3, s=3, padding=(1, 1, 1, 1), acc_dtype=DType.F16
    ),
    "conv_1": Conv2d(n=2, h=29, w=30, c=3, k=390, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1)),
}


def cases(arch: str, family: str) -> Iterator[KernelCase]:
    """Every kernel of a family for `arch`, with an epilogue that loads rows and tensors."""
    return wgmma_cases(arch) if family == Cutlass3Config.family else mma_cases(arch)


def wgmma_cases(arch: str) -> Iterator[KernelCase]:
    """Every kernel of `cutlass3`, each with one of its swizzles, rasters and numbers of slices."""
    own, row = FAMILIES.named(Cutlass3Config.family), arch_named(arch)
    for name, each in PROBLEMS.items():
        problem = each.resized(_DEEP_K, each.gemm.n) if each.is_matrix else each
        workload = Workload.of(problem, EPILOGUES["residual_before"])
        if own.rejects(workload, row) is not None:
            continue
        by_kernel: dict[Cutlass3Config, list[Cutlass3Config]] = {}
        for config in own.space(workload, row).candidates:
            by_kernel.setdefault(config.kernel, []).append(config)
        for turn, launches in enumerate(by_kernel.values()):
            config = launches[turn % len(launches)]
            kernel = WgmmaKernel(config=config, epilogue=workload.single.epilogue, problem=problem)
            yield replace(kernel.case(workload), name=f"{name} {config}")


def mma_cases(arch: str) -> Iterator[KernelCase]:
    """Every kernel of `cutlass2`."""
    swizzles = itertools.cycle(SWIZZLES)
    for name, problem in PROBLEMS.items():
        for kernel in kernel_configs(kernel_traits(problem), arch_named(arch)):
            swizzle = next(swizzles)
            workload = Workload.of(problem, EPILOGUES["residual_before"])
            spec = kernel_spec(workload, kernel, arch)
            config = replace(kernel, swizzle=swizzle)
            yield KernelCase(name=f"{name} {config}", spec=spec, problem=problem, swizzle=swizzle)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_80")
    families = (Cutlass2Config.family, Cutlass3Config.family)
    parser.add_argument("--family", choices=families, default=Cutlass2Config.family)
    parser.add_argument("--every", type=int, default=1, help="only one kernel in so many")
    options = parser.parse_args()
    device = activate("vgpu")
    assert device.vgpu is not None
    cuda = Cuda(device.vgpu)

    def judge(case: KernelCase, libraries: Libraries) -> Agreement:
        inputs = random_inputs(case, np.random.default_rng(0))
        graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
        actual = Launch(cuda, libraries[case.spec], case).run(inputs)
        return compare(actual, run(*graph), error_bound(*graph))

    todo = list(cases(options.arch, options.family))[:: options.every]
    wrong = 0
    for start in range(0, len(todo), _KERNELS_AT_ONCE):
        with tempfile.TemporaryDirectory() as folder:
            chunk = todo[start : start + _KERNELS_AT_ONCE]
            for finding in findings(chunk, cuda, Path(folder), judge, lambda case: case.name):
                wrong += 1
                print("WRONG", finding, flush=True)
        print(f"{min(start + _KERNELS_AT_ONCE, len(todo))} of {len(todo)} kernels", flush=True)
    print(f"{options.arch}: {wrong} of {len(todo)} kernels are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
