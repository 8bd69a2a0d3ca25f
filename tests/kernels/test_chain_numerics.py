"""Every back-to-back kernel against the oracle, executed."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.space.b2b_kernel import ChainKernelSpec
from tests.chain_cases import ChainCase, all_chain_cases
from tests.kernels.launch import Cuda, KernelLibrary
from tests.kernels.launch_chain import judge_chain, random_chain_inputs

CASES = all_chain_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_chain_agrees_with_the_oracle(
    case: ChainCase,
    cuda: Cuda,
    chain_kernels: dict[ChainKernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    agreement = judge_chain(cuda, chain_kernels[case.spec], case, random_chain_inputs(case, rng))
    assert agreement.within, f"{case.chain}: {agreement}"
