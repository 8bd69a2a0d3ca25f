"""Regions called as TVM calls them: through the adapter, with TVM's tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, DeviceCode, adapter_unit, kernel_unit
from boltgen.codegen.adapter import AdapterLaunch, render_adapter
from boltgen.codegen.kernel import KernelSource
from boltgen.codegen.library import render_library
from boltgen.ir import reference
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.ir.region import Operand, Region
from boltgen.settings import settings_from
from boltgen.space.kernel import kernel_spec
from tests.cases import CONFIGS, EPILOGUES, KernelCase
from tests.kernels.launch import Cuda, random_inputs

EPILOGUE = EPILOGUES["residual_before"]


def _launch(name: str, problem: Problem, executed: Problem, **changes: Any) -> AdapterLaunch:
    """A region whose parameters are weight, activation, bias, residual."""
    batched = isinstance(problem, BatchedGemm)
    region = Region(
        symbol=name,
        label=f'{name} "quoted" */ \n',
        problem=problem,
        epilogue=EPILOGUE,
        parameter_count=4,
        a=1,
        b=0,
        operands=(Operand(parameter=2), Operand(parameter=3, batched=batched)),
    )
    spec = kernel_spec(executed, EPILOGUE, CONFIGS["sm80_small"][1], "sm_80")
    return AdapterLaunch(region=region, problem=executed, spec=spec, **changes)


_POINTWISE = Conv2d(n=2, h=9, w=7, c=72, k=136, r=1, s=1)
_CONV = Conv2d(n=1, h=9, w=7, c=72, k=136, r=3, s=3, padding=(1, 1, 1, 1))
_BATCHED = BatchedGemm(batch=3, m=70, n=72, k=40, b_batched=False)
LAUNCHES = {
    "pointwise": _launch(
        "pointwise", _POINTWISE, replace(_POINTWISE.implicit_gemm, b_layout=Layout.COLUMN)
    ),
    "split": _launch("split", _CONV, _CONV, split_k=3),
    "batched": _launch("batched", _BATCHED, _BATCHED),
    "dense": _launch("dense", Gemm(m=70, n=72, k=40), Gemm(m=70, n=72, k=40)),
}


@dataclass(frozen=True, slots=True)
class Regions:
    """The loaded functions, and TVM's way to make a tensor on a device."""

    module: Any
    tensor: Any
    gpu: Any
    cpu: Any


@pytest.fixture(scope="module")
def regions(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    import tvm

    cuda.become("sm_80")
    chosen = settings_from()
    tools = find_toolchain(chosen)
    cache = Cache(chosen.cache_dir)
    launches = list(LAUNCHES.values())
    specs = [launch.spec for launch in launches]
    source = KernelSource(
        spec=specs[0], symbol="adapted", workspace_symbol="", text=render_library(specs)
    )
    kernel = objects_or_raise(
        compile_all([kernel_unit(source, tools, DeviceCode.PTX)], cache, jobs=1)
    )[0]
    adapter = compile_unit(adapter_unit("test", render_adapter(launches), tools), cache)
    assert isinstance(adapter, CompiledObject), adapter.message
    path = tmp_path_factory.mktemp("regions") / "libregions.so"
    link_shared([adapter.path, kernel.path], path, tools)
    return Regions(tvm.runtime.load_module(str(path)), tvm.runtime.tensor, tvm.cuda(0), tvm.cpu(0))


def _case(launch: AdapterLaunch) -> KernelCase:
    return KernelCase(name=launch.region.symbol, spec=launch.spec, problem=launch.region.problem)


def _arguments(launch: AdapterLaunch, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Arrays in the order of the region's parameters, then the output."""
    inputs = random_inputs(_case(launch), rng)
    bias, residual = inputs.operands
    if launch.region.operands[1].batched:
        shape = reference.output_shape(launch.region.problem)
        residual = rng.uniform(-1, 1, shape).astype(np.float16)
    output = np.full(reference.output_shape(launch.region.problem), np.nan, np.float16)
    return [inputs.b, inputs.a, bias, residual, output]


@pytest.mark.parametrize("name", LAUNCHES)
def test_region_agrees_with_the_oracle(
    name: str, regions: Regions, rng: np.random.Generator
) -> None:
    launch = LAUNCHES[name]
    arrays = _arguments(launch, rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    regions.module[name](*tensors)
    weight, activation, *operands, _ = arrays
    graph = (launch.region.problem, EPILOGUE, activation, weight, operands)
    agreement = reference.compare(
        tensors[-1].numpy(), reference.run(*graph), reference.error_bound(*graph)
    )
    assert agreement.within, str(agreement)


def test_leading_dimensions_of_a_product_are_free(
    regions: Regions, rng: np.random.Generator
) -> None:
    weight, activation, bias, residual, output = _arguments(LAUNCHES["dense"], rng)
    shaped = [
        weight,
        activation.reshape(7, 10, 40),
        bias.reshape(1, 1, 72),
        residual.reshape(7, 10, 72),
        output.reshape(7, 10, 72),
    ]
    tensors = [regions.tensor(array, regions.gpu) for array in shaped]
    regions.module["dense"](*tensors)
    assert not np.isnan(tensors[-1].numpy()).any()


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (1, lambda x: x.astype(np.float32), r"parameter 1 \(A\): expected float16, got float32"),
        (0, lambda x: x.astype(np.int8), r"parameter 0 \(B\): expected float16, got int8"),
        (
            1,
            lambda x: x[:, :-1],
            r"parameter 1 \(A\): expected shape \(2, 9, 7, 72\), got shape \(2, 8, 7, 72\)",
        ),
        (1, lambda x: x[0], r"expected shape \(2, 9, 7, 72\), got shape \(9, 7, 72\)"),
        (
            2,
            lambda x: x[:-1],
            r"parameter 2 \(epilogue operand row0\): expected the elements of \(136\), got "
            r"shape \(135\)",
        ),
        (
            3,
            lambda x: x.reshape(-1, 68),
            r"parameter 3 \(epilogue operand tensor0\): expected the elements of \(126, 136\) with "
            r"that last dimension, got shape \(252, 68\)",
        ),
        (4, lambda x: x[:1], r"parameter 4 \(D\): expected shape \(2, 9, 7, 136\)"),
    ],
)
def test_a_wrong_tensor_is_named(
    index: int, change: Any, message: str, regions: Regions, rng: np.random.Generator
) -> None:
    arrays = _arguments(LAUNCHES["pointwise"], rng)
    arrays[index] = np.ascontiguousarray(change(arrays[index]))
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    with pytest.raises(Exception, match=r'boltgen region pointwise \(pointwise "quoted"') as caught:
        regions.module["pointwise"](*tensors)
    assert caught.match(message)


def test_a_tensor_in_host_memory_is_named(regions: Regions, rng: np.random.Generator) -> None:
    arrays = _arguments(LAUNCHES["pointwise"], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    tensors[2] = regions.tensor(arrays[2], regions.cpu)
    with pytest.raises(Exception, match=r"parameter 2 .*expected a CUDA tensor, got device type 1"):
        regions.module["pointwise"](*tensors)
