"""Every back-to-back kernel against the oracle, executed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase, all_chain_cases
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from boltgen.ir.kernel import KernelSpec

CASES = all_chain_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_chain_agrees_with_the_oracle(
    case: ChainCase,
    cuda: Cuda,
    chain_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    agreement = judge_chain(cuda, chain_kernels[case.spec], case, random_chain_inputs(case, rng))
    assert agreement.within, f"{case.chain.describe()}: {agreement}"


NAN_CASES = [
    case
    for case in CASES
    if case.name
    in ("rf-ragged", "smem-row", "smem-conv", "sm75_rf-row", "sm75_smem-ragged", "smem4-four")
]


@pytest.mark.parametrize("case", NAN_CASES, ids=[case.name for case in NAN_CASES])
def test_nan_and_infinity_reach_the_output_as_numpy_has_it(
    case: ChainCase,
    cuda: Cuda,
    chain_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    inputs = random_chain_inputs(case, rng)
    flat = inputs.a.reshape(-1)
    flat[rng.integers(flat.size, size=3)] = [np.nan, np.inf, -np.inf]
    # In an operand of an inner layer, in one column: the padding of others must stay zero.
    for operand in inputs.layers[0].operands[:1]:
        operand.reshape(-1)[-1] = np.inf
    agreement = judge_chain(cuda, chain_kernels[case.spec], case, inputs)
    assert agreement.within, f"{case.chain.describe()}: {agreement}"
