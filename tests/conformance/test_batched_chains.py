"""Random batched products in sequence, through the Relax frontend and executed: one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.device.choose import activate
from tests.conformance.batched_chains import SEEDS, batched_chain

# What the virtual GPU runs; a third of the compile time.


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batched_chain_is_one_kernel_and_right(seed: int, rng: np.random.Generator) -> None:
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    import tvm
    from tvm import relax

    import boltgen.relax
    from tests.conformance.relax_builder import relax_module

    sample = batched_chain(seed)
    module = boltgen.relax.partition(relax_module(sample.case))
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cuda(0))
    inputs = sample.inputs(rng)
    vgpu.clear_launches()
    arrays = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in inputs.values()]
    output = machine["main"](*arrays).numpy()
    assert [launch.kernel[:16] for launch in vgpu.launches()] == ["boltgen_b2b_gemm"]
    agreement = sample.judge(inputs, output)
    assert agreement.within, f"{sample}: {agreement}"


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
