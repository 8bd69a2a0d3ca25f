"""Regions called as TVM calls them: through the adapter, with TVM's tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, KernelCase
from benchmarks.harness.kernel_launch import Cuda, random_inputs
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit, kernel_unit
from boltgen.codegen.adapter import RegionLaunch, render_adapter
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.registry import kernel_spec
from boltgen.families.source import KernelSource, render_library
from boltgen.ir.dtypes import DType
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    Move,
    reference_move,
)
from boltgen.problems.problem import Problem
from boltgen.problems.region import LayerRoles, Operand, Region, Stored
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.codegen.region_launch import ARCH, kernels_of, region_launch

EPILOGUE = EPILOGUES["residual_before"]
CONFIG = CONFIGS["sm80_small"][1]


def _launch(
    name: str,
    problem: Problem,
    a_stored: Stored | None = None,
    d_stored: Stored | None = None,
    **changes: int,
) -> RegionLaunch:
    """A region whose parameters are weight, activation, bias, residual."""
    residual = Operand(parameter=3, batched=problem.batch > 1)
    region = Region(
        symbol=name,
        label=f'{name} "quoted" */ \n',
        workload=Workload.of(problem, EPILOGUE),
        parameter_count=4,
        a=1,
        layers=(LayerRoles(b=0, operands=(Operand(parameter=2), residual)),),
        a_stored=a_stored,
        d_stored=d_stored,
    )
    return region_launch(region, replace(CONFIG, **changes))


NCHW_F32 = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
_POINTWISE = Conv2d(n=2, h=9, w=7, c=72, k=136, r=1, s=1)
_CONV = Conv2d(n=1, h=9, w=7, c=72, k=136, r=3, s=3, padding=(1, 1, 1, 1))
LAUNCHES = {
    "pointwise": _launch("pointwise", _POINTWISE),
    "split": _launch("split", _CONV, swizzle=4, split_k=3),
    "batched": _launch("batched", Gemm(batch=3, m=70, n=72, k=40, a_batched=False)),
    "dense": _launch("dense", Gemm(m=70, n=72, k=40)),
    # A as TVM has it is cast, transposed and padded on the way in; D all of that on the way out.
    "moved": _launch(
        "moved",
        _CONV,
        split_k=3,
        a_stored=Stored(form=NCHW_F32, shape=(1, 70, 9, 7)),
        d_stored=Stored(form=NCHW_F32, shape=(1, 131, 9, 7)),
    ),
    "padded": _launch(
        "padded",
        Gemm(m=70, n=72, k=40),
        a_stored=Stored(form=NHWC_F16, shape=(70, 37)),
        d_stored=Stored(form=NHWC_F16, shape=(70, 67)),
    ),
}
# How a model has the tensors of a pointwise convolution: by parameter, its rows in more dimensions.
MODEL_SHAPES = {
    "pointwise": {
        0: _POINTWISE.b_shape,
        1: _POINTWISE.a_shape,
        3: _POINTWISE.d_shape,
        4: _POINTWISE.d_shape,
    }
}


@dataclass(frozen=True, slots=True)
class Regions:
    """The loaded functions, and TVM's way to make a tensor on a device."""

    module: Any
    tensor: Any
    gpu: Any
    cpu: Any

    def __call__(self, name: str, *tensors: Any) -> None:
        """Call a region, with a workspace of the size that it is planned with."""
        size = LAUNCHES[name].memory.workspace_bytes
        workspace = [self.tensor(np.full(size, 0xFF, np.uint8), self.gpu)] if size else []
        self.module[name](*tensors, *workspace)


@pytest.fixture(scope="module")
def regions(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    import tvm

    cuda.become("sm_80")
    chosen = settings_from()
    tools = find_toolchain(chosen)
    cache = Cache(chosen.cache_dir)
    launches = list(LAUNCHES.values())
    specs = kernels_of(launches, CONFIG)
    source = KernelSource(
        spec=specs[0], symbol="adapted", workspace_symbol="", text=render_library(specs)
    )
    units = [kernel_unit(source, tools, DeviceCode.PTX)]
    kernels = [kernel.path for kernel in objects_or_raise(compile_all(units, cache, jobs=1))]
    adapter = compile_unit(adapter_unit("test", render_adapter(launches), tools), cache)
    assert isinstance(adapter, CompiledObject), adapter.message
    path = tmp_path_factory.mktemp("regions") / "libregions.so"
    link_shared([adapter.path, *kernels], path, tools)
    return Regions(tvm.runtime.load_module(str(path)), tvm.runtime.tensor, tvm.cuda(0), tvm.cpu(0))


def _problem(launch: RegionLaunch) -> Problem:
    return launch.region.workload.single.problem


def _case(launch: RegionLaunch) -> KernelCase:
    spec = kernel_spec(launch.region.workload, CONFIG, ARCH)
    return KernelCase(name=launch.region.symbol, spec=spec, problem=_problem(launch))


def _arguments(launch: RegionLaunch, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Arrays in the order of the region's parameters, then the output."""
    inputs = random_inputs(_case(launch), rng)
    bias, residual = inputs.operands
    shape = _problem(launch).d_shape
    if launch.region.layers[0].operands[1].batched:
        residual = rng.uniform(-1, 1, shape).astype(np.float16)
    arrays = [inputs.b, inputs.a, bias, residual, np.full(shape, np.nan, np.float16)]
    for index, as_model in MODEL_SHAPES.get(launch.region.symbol, {}).items():
        arrays[index] = arrays[index].reshape(as_model)
    return arrays


def stored_arguments(launch: RegionLaunch, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """The same, A and D as TVM has them."""
    arrays = _arguments(launch, rng)
    for index, stored in ((1, launch.region.a_stored), (4, launch.region.d_stored)):
        if stored is not None:
            values = rng.uniform(-1, 1, stored.shape)
            arrays[index] = values.astype(stored.form.dtype.value)
    return arrays


@pytest.mark.parametrize("name", ["pointwise", "split", "batched", "dense"])
def test_region_agrees_with_the_oracle(
    name: str, regions: Regions, rng: np.random.Generator
) -> None:
    launch = LAUNCHES[name]
    arrays = _arguments(launch, rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    regions(name, *tensors)
    weight, activation, *operands, _ = arrays
    problem = _problem(launch)
    a, b = activation.reshape(problem.a_shape), weight.reshape(problem.b_shape)
    bias, residual = operands
    graph = (problem, EPILOGUE, a, b, [bias, residual.reshape(problem.d_shape)])
    agreement = reference.compare(
        tensors[-1].numpy().reshape(problem.d_shape),
        reference.run(*graph),
        reference.error_bound(*graph),
    )
    assert agreement.within, str(agreement)


@pytest.mark.parametrize("name", ["moved", "padded"])
def test_a_region_moves_what_it_reads_and_writes(
    name: str, regions: Regions, cuda: Cuda, rng: np.random.Generator
) -> None:
    launch = LAUNCHES[name]
    before, after = (move.transform for move in launch.memory.moves)
    weight, activation, *operands = _arguments(launch, rng)[:-1]
    rows = (before.images, before.pixels, 1) if name == "padded" else (1, 9, 7)
    stored = activation.reshape(*rows, -1)[..., : before.source_channels]
    if before.move.source == NCHW_F32:
        stored = np.ascontiguousarray(stored.transpose(0, 3, 1, 2)).astype(np.float32)
    computed = reference_move(before.move, stored, before.target_channels)
    graph = (
        _problem(launch),
        EPILOGUE,
        computed.reshape(activation.shape),
        weight,
        operands,
    )
    wanted = reference.run(*graph).astype(np.float16)
    back = Move(source=NHWC_F16, target=after.move.target)
    shape = (*rows, after.source_channels)
    expected = reference_move(back, wanted.reshape(shape), after.target_channels)
    arrays = [weight, np.ascontiguousarray(stored.reshape(_shape(name, stored))), *operands]
    made = regions.tensor(
        np.full(expected.reshape(_shape(name, expected)).shape, np.nan, expected.dtype), regions.gpu
    )
    regions(name, *(regions.tensor(array, regions.gpu) for array in arrays), made)
    found = made.numpy().reshape(expected.shape)
    # Both round to FP16; sums in another order may fall to the other side of a tie.
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=2**-9)


def _shape(name: str, array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return (-1, array.shape[-1])[:2] if name == "padded" else array.shape


@pytest.mark.parametrize("name", ["split", "moved"])
def test_a_call_allocates_nothing(
    name: str, regions: Regions, cuda: Cuda, rng: np.random.Generator
) -> None:
    arrays = stored_arguments(LAUNCHES[name], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    size = LAUNCHES[name].memory.workspace_bytes
    before = regions.tensor(np.zeros(size, np.uint8), regions.gpu)
    for _ in range(3):
        regions.module[name](*tensors, before)
    after = regions.tensor(np.zeros(1, np.uint8), regions.gpu)
    numbers = {one.address: one.number for one in cuda.vgpu.leaks()}
    # Every allocation has a number of its own, stream-ordered ones and those freed included.
    assert numbers[after.data_ptr()] == numbers[before.data_ptr()] + 1


@pytest.mark.parametrize("index", [0, 1, 2, 3, 4])
def test_a_tensor_that_begins_between_two_vectors_is_refused(
    index: int, regions: Regions, rng: np.random.Generator
) -> None:
    arrays = _arguments(LAUNCHES["dense"], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    longer = np.append(arrays[index].reshape(-1), np.zeros(8, np.float16))
    memory = regions.tensor(longer, regions.gpu)
    tensors[index] = memory._create_view(arrays[index].shape, relative_byte_offset=2)
    with pytest.raises(Exception, match=r"boltgen region dense .* needs 16-byte alignment"):
        regions("dense", *tensors)


def test_a_slice_that_begins_at_a_vector_is_read_from_there(
    regions: Regions, rng: np.random.Generator
) -> None:
    arrays = _arguments(LAUNCHES["dense"], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    regions("dense", *tensors)
    expected = tensors[-1].numpy()
    for index, array in enumerate(arrays[:-1]):
        shifted = np.append(np.full(8, np.nan, np.float16), array.reshape(-1))
        memory = regions.tensor(shifted, regions.gpu)
        view = memory._create_view(array.shape, relative_byte_offset=16)
        moved = [*tensors[:index], view, *tensors[index + 1 :]]
        regions("dense", *moved)
        np.testing.assert_array_equal(moved[-1].numpy(), expected)


@pytest.mark.parametrize("name", ["moved", "padded"])
@pytest.mark.parametrize("offset", [16, 2])
@pytest.mark.parametrize("index", [1, 4], ids=["A", "D"])
def test_what_is_moved_may_begin_at_a_vector_and_nowhere_else(
    name: str, offset: int, index: int, regions: Regions, rng: np.random.Generator
) -> None:
    arrays = stored_arguments(LAUNCHES[name], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    regions(name, *tensors)
    expected = tensors[4].numpy()
    array = arrays[index]
    before = np.full(offset, 0xFF, np.uint8)
    memory = regions.tensor(np.append(before, array.view(np.uint8).reshape(-1)), regions.gpu)
    view = memory._create_view(array.shape, str(array.dtype), relative_byte_offset=offset)
    tensors[index] = view
    if offset == 2:
        role = "source" if index == 1 else "target"
        with pytest.raises(
            Exception, match=rf"boltgen region {name} .*: {role} is at .* needs 16-byte alignment"
        ):
            regions(name, *tensors)
        return
    regions(name, *tensors)
    np.testing.assert_array_equal(tensors[4].numpy(), expected)


def test_the_planned_workspace_is_what_the_kernel_asks_for(
    regions: Regions, rng: np.random.Generator
) -> None:
    size = LAUNCHES["split"].memory.workspace_bytes
    tensors = [regions.tensor(a, regions.gpu) for a in _arguments(LAUNCHES["split"], rng)]
    small = regions.tensor(np.zeros(size - 1, np.uint8), regions.gpu)
    with pytest.raises(
        Exception, match=rf"its workspace has {size - 1} bytes, and it needs {size}"
    ):
        regions.module["split"](*tensors, small)


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
    regions("dense", *tensors)
    assert not np.isnan(tensors[-1].numpy()).any()


@pytest.mark.parametrize(
    ("name", "index", "change", "message"),
    [
        ("split", 1, lambda x: x.astype(np.float32), r"1 \(A\): expected float16, got float32"),
        ("split", 0, lambda x: x.astype(np.int8), r"parameter 0 \(B\): expected float16, got int8"),
        (
            "split",
            1,
            lambda x: x[:, :-1],
            r"parameter 1 \(A\): expected shape \(1, 9, 7, 72\), got shape \(1, 8, 7, 72\)",
        ),
        ("split", 1, lambda x: x[0], r"expected shape \(1, 9, 7, 72\), got shape \(9, 7, 72\)"),
        (
            "pointwise",
            1,
            lambda x: x[:, :-1],
            r"parameter 1 \(A\): expected the elements of \(126, 72\) with that last dimension, "
            r"got shape \(2, 8, 7, 72\)",
        ),
        (
            "pointwise",
            2,
            lambda x: x[:-1],
            r"parameter 2 \(epilogue operand row0\): expected the elements of \(136\), got "
            r"shape \(135\)",
        ),
        (
            "pointwise",
            3,
            lambda x: x.reshape(-1, 68),
            r"parameter 3 \(epilogue operand tensor0\): expected the elements of \(126, 136\) with "
            r"that last dimension, got shape \(252, 68\)",
        ),
        ("split", 4, lambda x: x[:, :1], r"parameter 4 \(D\): .* elements of \(1, 9, 7, 136\)"),
        ("pointwise", 4, lambda x: x[:1], r"parameter 4 \(D\): .* elements of \(126, 136\)"),
    ],
)
def test_a_wrong_tensor_is_named(
    *,
    name: str,
    index: int,
    change: Any,
    message: str,
    regions: Regions,
    rng: np.random.Generator,
) -> None:
    arrays = _arguments(LAUNCHES[name], rng)
    arrays[index] = np.ascontiguousarray(change(arrays[index]))
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    with pytest.raises(Exception, match=rf'boltgen region {name} \({name} "quoted"') as caught:
        regions(name, *tensors)
    assert caught.match(message)


def test_a_tensor_in_host_memory_is_named(regions: Regions, rng: np.random.Generator) -> None:
    arrays = _arguments(LAUNCHES["pointwise"], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    tensors[2] = regions.tensor(arrays[2], regions.cpu)
    with pytest.raises(Exception, match=r"parameter 2 .*expected a CUDA tensor, got device type 1"):
        regions("pointwise", *tensors)


def test_a_call_with_other_arguments_is_refused(regions: Regions, rng: np.random.Generator) -> None:
    arrays = _arguments(LAUNCHES["pointwise"], rng)
    tensors = [regions.tensor(array, regions.gpu) for array in arrays]
    with pytest.raises(TypeError, match="pointwise takes 5 tensors, not 4"):
        regions("pointwise", *tensors[:-1])
    with pytest.raises(TypeError, match="argument 2 of pointwise is no tensor"):
        regions("pointwise", *tensors[:2], 7, *tensors[3:])
