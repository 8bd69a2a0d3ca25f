"""Back-to-back kernels under the virtual GPU's checks and counters."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase, all_chain_cases
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from boltgen.ir.kernel import KernelSpec

CASES = {case.name: case for case in all_chain_cases()}
# Both residences and both ways of copying, a convolution, operands in inner layers, four layers.
CHECKED = [
    "rf-ragged",
    "smem-row",
    "smem-conv",
    "sm75_smem-ragged",
    "sm75_rf-row",
    "smem-batch",
    "smem4-four",
    "rf3-two_tensors-per_channel-bias_silu",
    "paper-sm_80-shared_memory-gemm-2464x1x4x4",
]


@pytest.mark.parametrize("name", CHECKED)
def test_no_check_finds_anything(
    name: str,
    checking: Cuda,
    chain_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = CASES[name]
    inputs = random_chain_inputs(case, rng)
    for seed in ("0", "7"):
        checking.vgpu.set_option("seed", seed)
        assert judge_chain(checking, chain_kernels[case.spec], case, inputs).within
    checking.vgpu.set_option("seed", "0")
    assert [finding.message for finding in checking.vgpu.findings()] == []


# Kernels whose first layer and last epilogue, which are CUTLASS's, have no conflicts either.
STAGED = [
    case
    for name, case in CASES.items()
    if name in ("rf-row", "rf-conv", "smem-row", "smem-conv", "smem-batch")
    or (
        name.startswith("paper-sm_80")
        and any(chain in name for chain in ("32768", "conv-112", "conv-56"))
    )
]


@pytest.mark.parametrize("case", STAGED, ids=[case.name for case in STAGED])
def test_no_access_to_shared_memory_has_bank_conflicts(
    case: ChainCase,
    cuda: Cuda,
    chain_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    try:
        judge_chain(cuda, chain_kernels[case.spec], case, random_chain_inputs(case, rng))
        (counted,) = cuda.vgpu.counters()
    finally:
        cuda.vgpu.set_option("counters", "off")
    assert counted["shared"]["requests"] > 0
    assert counted["shared"]["bank_conflicts"] == 0
