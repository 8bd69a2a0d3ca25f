"""Chains called as TVM calls them: through the adapter, with TVM's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase
from benchmarks.harness.chain_launch import random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit, kernel_unit
from boltgen.codegen.adapter import render_adapter
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.registry import kernel_spec
from boltgen.families.source import KernelSource, render_library
from boltgen.problems.oracle import enclose
from boltgen.problems.reference import compare
from boltgen.settings import settings_from
from tests.codegen.region_launch import ARCH, kernels_of
from tests.codegen.test_adapter_fused import CHAINS, CONFIG, all_launches

LAUNCHES = {launch.region.symbol: launch for launch in all_launches()}


@pytest.fixture(scope="module")
def module(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import tvm

    cuda.become("sm_80")
    chosen = settings_from()
    tools = find_toolchain(chosen)
    cache = Cache(chosen.cache_dir)
    specs = kernels_of(LAUNCHES.values(), CONFIG)
    source = KernelSource(
        spec=specs[0], symbol="chains", workspace_symbol="", text=render_library(specs)
    )
    units = [kernel_unit(source, tools, DeviceCode.PTX)]
    kernel = objects_or_raise(compile_all(units, cache, jobs=1))[0]
    adapter = compile_unit(adapter_unit("test", render_adapter(all_launches()), tools), cache)
    assert isinstance(adapter, CompiledObject), adapter.message
    path = tmp_path_factory.mktemp("chains") / "libchains.so"
    link_shared([adapter.path, kernel.path], path, tools)
    return tvm.runtime.load_module(str(path))


@pytest.mark.parametrize("name", CHAINS)
def test_a_chains_region_agrees_with_the_oracle(
    name: str, module: Any, rng: np.random.Generator
) -> None:
    import tvm

    chain = CHAINS[name]
    spec = kernel_spec(chain, CONFIG, ARCH)
    case = ChainCase(name=name, spec=spec, chain=chain, batched_operands=name == "batched")
    inputs = random_chain_inputs(case, rng)
    first, second = inputs.layers
    bias, residual = first.operands
    if name == "batched":  # the region's bias is one for all products
        bias = bias[0]
        second = type(second)(second.b, (second.operands[0][0],))
    output = np.full(chain.last.problem.d_shape, np.nan, np.float16)
    arrays = [first.b, inputs.a, bias, residual, second.b, *second.operands, output]
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
    module[name](*tensors)
    layers = [type(first)(first.b, (bias, residual)), second]
    expected = enclose(chain, inputs.a, layers)
    agreement = compare(tensors[-1].numpy(), expected.exact, expected.bound)
    assert agreement.within, str(agreement)


def test_a_wrong_tensor_of_a_layer_is_named(module: Any) -> None:
    import tvm

    # A 1x1 convolution's filter is a matrix, whatever the dimensions of its rows.
    shapes = [(40, 3, 3, 24), (1, 9, 7, 24), (40,), (1, 9, 7, 40), (56, 1, 1, 39), (56,)]
    arrays = [np.zeros(shape, np.float16) for shape in (*shapes, (1, 9, 7, 56))]
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
    message = r"boltgen region conv .*4 \(layer 1 B\): .* \(56, 40\) .*, got shape \(56, 1, 1, 39\)"
    with pytest.raises(Exception, match=message):
        module["conv"](*tensors)
