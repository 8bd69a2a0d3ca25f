"""Kernels of the family `b2b_sm90` against the oracle, executed with every check on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase, conv_chain, gemm_chain
from benchmarks.cases.chains_sm90 import BIAS_RELU, CONV, KERNELS
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelError, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.families.b2b_sm90 import FAMILY
from boltgen.families.chain.traits import Residence
from boltgen.families.family import CHECKED_SMS
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.kernels.refusals import INVALID, MISALIGNED

OF_RF = ("bias_relu", "residual_before")


@pytest.fixture(scope="module")
def hopper_chains(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [_case(name, 0).spec for name in KERNELS]
    return build_libraries(specs, tmp_path_factory.mktemp("sm90"))


def _case(name: str, index: int) -> ChainCase:
    kernel = KERNELS[name]
    return kernel.case(name, kernel.boundary(index))


@pytest.fixture
def small_device(checking: Cuda) -> Iterator[Cuda]:
    """The one that kernels are checked on before they ship, with every check on."""
    checking.vgpu.set_option("sms", CHECKED_SMS)
    yield checking
    checking.vgpu.set_option("sms", 0)


@pytest.mark.parametrize("index", range(3), ids=["ragged", "small", "persistent"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_agrees_with_the_oracle(
    name: str,
    index: int,
    small_device: Cuda,
    hopper_chains: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = _case(name, index)
    inputs = random_chain_inputs(case, rng)
    agreement = judge_chain(small_device, hopper_chains[case.spec], case, inputs)
    assert agreement.within, f"{case.chain.describe()}: {agreement}"
    assert [finding.message for finding in small_device.vgpu.findings()] == []


@pytest.mark.parametrize("name", ["rf-three", "smem", "conv-rf"])
def test_nan_and_infinity_reach_the_output_as_numpy_has_it(
    name: str,
    small_device: Cuda,
    hopper_chains: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = _case(name, 0)
    inputs = random_chain_inputs(case, rng)
    flat = inputs.a.reshape(-1)
    flat[rng.integers(flat.size, size=3)] = [np.nan, np.inf, -np.inf]
    # In an operand of an inner layer, in one column: the padding of others must stay zero.
    inputs.layers[0].operands[0].reshape(-1)[-1] = np.inf
    agreement = judge_chain(small_device, hopper_chains[case.spec], case, inputs)
    assert agreement.within, f"{case.chain.describe()}: {agreement}"


@pytest.mark.parametrize("name", KERNELS)
def test_shared_memory_is_what_legality_says_and_free_of_bank_conflicts(
    name: str,
    cuda: Cuda,
    hopper_chains: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    kernel, case = KERNELS[name], _case(name, 1)
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    try:
        judge_chain(cuda, hopper_chains[case.spec], case, random_chain_inputs(case, rng))
        (launched,), (counted,) = cuda.vgpu.launches(), cuda.vgpu.counters()
    finally:
        cuda.vgpu.set_option("counters", "off")
    footprint = FAMILY.footprint(kernel.workload, kernel.config)
    assert launched.dynamic_shared_bytes == footprint.shared_memory_bytes
    is_staged = kernel.config.residence is Residence.SHARED_MEMORY
    assert (counted["shared"]["requests"] > 0) == is_staged
    assert counted["shared"]["bank_conflicts"] == 0


def test_ptxas_neither_serialises_wgmma_nor_spills(
    hopper_chains: dict[KernelSpec, KernelLibrary], tmp_path: Path
) -> None:
    ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
    for path in {library.path for library in hopper_chains.values()}:
        for ptx in embedded_ptx(path.read_bytes()):
            (tmp_path / "kernels.ptx").write_text(ptx)
            command = [ptxas, "-arch=sm_90a", "-v", "kernels.ptx", "-o", "kernels.cubin"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            said = done.stdout + done.stderr
            assert said.count("Used ") == ptx.count(".entry ") > 0
            assert said.count(" 0 bytes spill stores, 0 bytes spill loads") == said.count("Used ")
            assert "serialized" not in said


Refusal = Callable[[str, Workload], KernelError]


@pytest.fixture
def refusal(cuda: Cuda, hopper_chains: dict[KernelSpec, KernelLibrary]) -> Refusal:
    """What a named kernel says of a workload that it does not compute."""

    def said(name: str, workload: Workload) -> KernelError:
        case = KERNELS[name].case(name, workload)
        inputs = random_chain_inputs(case, np.random.default_rng(0))
        with pytest.raises(KernelError) as caught:
            judge_chain(cuda, hopper_chains[case.spec], case, inputs)
        return caught.value

    return said


@pytest.mark.parametrize(
    ("name", "workload", "code", "message"),
    [
        ("rf", gemm_chain(9, 76, (64, 40), OF_RF), MISALIGNED, "k (rows of A) is 76"),
        ("rf", gemm_chain(9, 72, (72, 40), OF_RF), INVALID, "layers[0].n is 72; it must be at mo"),
        ("rf", gemm_chain(9, 72, (60, 40), OF_RF), MISALIGNED, "k (columns of B) is 60"),
        (
            "rf",
            gemm_chain(9, 72, (64, 40), OF_RF, batch=2, b_batched=(True, False)),
            INVALID,
            "layers[1].batch_stride_b is 0; it must be at least 1",
        ),
        (
            "conv-rf",
            conv_chain(replace(CONV, c=12), (32,), BIAS_RELU),
            MISALIGNED,
            "c (of A and layers[0].b) is 12",
        ),
        (
            "conv-rf",
            conv_chain(replace(CONV, h=40, c=8, stride=(9, 1)), (32,), BIAS_RELU),
            INVALID,
            "stride_h is 9; it must be at most 8",
        ),
    ],
    ids=["k", "columns", "inner-k", "shared", "channels", "stride"],
)
def test_what_tma_cannot_load_and_the_tile_not_hold_is_refused_by_the_kernel_too(
    name: str, workload: Workload, code: int, message: str, refusal: Refusal
) -> None:
    error = refusal(name, workload)
    assert message in str(error)
    assert error.code == code
