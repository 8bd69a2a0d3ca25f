"""Kernels under the virtual GPU's checks, where tiles reach beyond the edge of a problem."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.kernels import all_cases
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from boltgen.ir.kernel import KernelSpec

CASES = {case.name: case for case in all_cases()}
# Epilogues that branch on their values, or convert those of two columns at once. K has more steps
# than the mainloop's prologue copies, so a stage is first written in the loop itself; the rest are
# of the other alignments, layouts and ways through shared memory.
CHECKED = [
    "sm80_small-batched-relu-a21-f32_f16",
    "sm80_square-gemm_row-columns-a88-f32_f16",
    "sm80_square-batched-scalars-a41-f32_f16",
    "sm80_small-gemm_column-square_root-a24-f16_f16",
    "sm80_square-batched-square_root-a42-f32_f32",
    "sm80_small-gemm_column-tanh_erf-a24-f16_f16",
    "sm80_square-batched-tanh_erf-a42-f32_f32",
]


@pytest.mark.parametrize("name", CHECKED)
def test_no_check_finds_anything(
    name: str,
    checking: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = CASES[name]
    Launch(checking, kernels[case.spec], case).run(random_inputs(case, rng))
    assert [finding.message for finding in checking.vgpu.findings()] == []
