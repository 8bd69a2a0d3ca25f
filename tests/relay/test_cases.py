"""Cases of the conformance suite, run: boltgen's kernels in FP16 against TVM's in FP32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boltgen.relay
from boltgen.device.choose import activate

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

from tests.conformance.batched_chains import SEEDS, batched_chain
from tests.conformance.cases import CASES
from tests.conformance.relay_builder import relay_module

# What the virtual GPU runs; a third of the compile time.
LAUNCHES = {
    "dense_bias_gelu_erf": 1,
    "batch_matmul_broadcast_b": 1,
    "conv2d_residual_multiply_relu": 1,
    "conv2d_bias_silu": 1,
    "output_used_twice": 3,
    "tuple_outputs": 1,
    "dense_bias_branched_softplus": 1,
    "cyclic_dependency": 1,
    "chain_of_dense": 1,
    "chain_of_convolutions": 1,
}
# How many layers of rounding lie one behind the other: two, or those of a chain.
LAYERS = {"chain_of_dense": 3}


def run(module: tvm.IRModule, target: Any, device: Any, inputs: dict[str, np.ndarray], path: Path):
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=target)
    loaded = tvm.runtime.load_module(str(boltgen.relay.export_library(built, path)))
    executor = graph_executor.GraphModule(loaded["default"](device))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


@pytest.mark.parametrize("name", LAUNCHES)
def test_case(name: str, tmp_path: Path) -> None:
    module = relay_module(CASES[name])
    rng = np.random.default_rng(7)
    inputs = {
        param.name_hint: rng.standard_normal(
            [int(extent) for extent in param.type_annotation.shape]
        ).astype(param.type_annotation.dtype)
        for param in module["main"].params
    }
    expected = run(module, "llvm", tvm.cpu(0), inputs, tmp_path / "reference.so")
    partitioned = boltgen.relay.partition(module)
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
    found = run(partitioned, target, tvm.cuda(0), inputs, tmp_path / "model.so")
    launched = [launch.kernel for launch in vgpu.launches()]
    assert sum(kernel.startswith("boltgen_") for kernel in launched) == LAUNCHES[name]
    assert len(found) == len(expected)
    for output, reference in zip(found, expected, strict=True):
        # Operands rounded to FP16, 2**-11 each of their value: two of them, over a sum of K terms
        # whose errors are independent, then the result's own rounding, so many layers deep.
        bound = LAYERS.get(name, 2) * 4 * 2.0**-11 * np.abs(reference).max()
        np.testing.assert_allclose(output, reference, atol=bound, rtol=0)


@pytest.mark.parametrize("seed", SEEDS[1:3])
def test_a_batched_chain_is_one_kernel_and_right(seed: int, tmp_path: Path) -> None:
    sample = batched_chain(seed)
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    partitioned = boltgen.relay.partition(relay_module(sample.case))
    inputs = sample.inputs(np.random.default_rng(seed))
    vgpu.clear_launches()
    target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
    (found,) = run(partitioned, target, tvm.cuda(0), inputs, tmp_path / "model.so")
    assert [launch.kernel[:16] for launch in vgpu.launches()] == ["boltgen_b2b_gemm"]
    agreement = sample.judge(inputs, found)
    assert agreement.within, f"{sample}: {agreement}"
