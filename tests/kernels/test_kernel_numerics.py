"""Every kernel against the oracle, executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.kernels import KernelCase, all_cases
from benchmarks.harness.kernel_launch import (
    Cuda,
    Inputs,
    KernelError,
    KernelLibrary,
    Launch,
    random_inputs,
)
from boltgen.ir.kernel import KernelSpec
from boltgen.problems import reference

CASES = all_cases()
CUDA_ERROR = 4  # BOLTGEN_CUDA_ERROR in boltgen/abi.h


def _judge(
    cuda: Cuda, kernels: dict[KernelSpec, KernelLibrary], case: KernelCase, inputs: Inputs
) -> reference.Agreement:
    actual = Launch(cuda, kernels[case.spec], case).run(inputs)
    graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    return reference.compare(actual, reference.run(*graph), reference.error_bound(*graph))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_kernel_agrees_with_the_oracle(
    case: KernelCase,
    cuda: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    agreement = _judge(cuda, kernels, case, random_inputs(case, rng))
    assert agreement.within, f"{case.epilogue.describe()}: {agreement}"


NAN_CASES = [
    case
    for case in CASES
    if case.name.startswith(
        ("split-gemm3", "split-conv2", "batch-ab", "sm_86", "tiny-129x129", "first")
    )
]


@pytest.mark.parametrize("case", NAN_CASES, ids=[case.name for case in NAN_CASES])
def test_nan_and_infinity_reach_the_output_as_numpy_has_it(
    case: KernelCase,
    cuda: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    inputs = random_inputs(case, rng)
    flat = inputs.a.reshape(-1)
    flat[rng.integers(flat.size, size=3)] = [np.nan, np.inf, -np.inf]
    for operand in inputs.operands:
        flat = operand.reshape(-1)
        flat[rng.integers(flat.size)] = np.nan
    agreement = _judge(cuda, kernels, case, inputs)
    assert agreement.within, f"{case.epilogue.describe()}: {agreement}"


def test_a_failed_launch_is_reported_once_and_blames_no_later_one(
    cuda: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    # 80 KiB of shared memory, of which a block on sm_75 has 64.
    large = next(case for case in CASES if case.name == "split-gemm_sliced")
    elsewhere = Launch(cuda, kernels[large.spec].copied(tmp_path), large, arch="sm_75")
    with pytest.raises(KernelError, match="cannot reserve 81920 bytes of shared memory") as caught:
        elsewhere.run(random_inputs(large, rng))
    assert caught.value.code == CUDA_ERROR
    small = next(case for case in CASES if case.name == "split-gemm_sm75")
    assert _judge(cuda, kernels, small, random_inputs(small, rng)).within
