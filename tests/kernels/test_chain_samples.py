"""Random chains in random configs: if legality says yes, the kernel is right.

`python -m tests.sweep_chains --seed N` runs as many more as there is time for.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.ir.kernel import KernelSpec
from tests.chain_samples import sampled_cases, sampled_sm90_cases

# A library for each arch: six kernels each of two, and three by wgmma, which nvcc takes long for.
CASES = [
    case
    for seed, arch in enumerate(("sm_75", "sm_80"))
    for case in sampled_cases(random.Random(seed), (arch,), 6)
] + sampled_sm90_cases(random.Random(0), 3)


@pytest.fixture(scope="module")
def sampled_kernels(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    folder: Path = tmp_path_factory.mktemp("samples")
    return build_libraries(list(dict.fromkeys(case.spec for case in CASES)), folder)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_legality_allows_is_right(
    case: ChainCase,
    cuda: Cuda,
    sampled_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    inputs = random_chain_inputs(case, rng)
    agreement = judge_chain(cuda, sampled_kernels[case.spec], case, inputs)
    assert agreement.within, f"{case.chain.describe()}: {agreement}"
