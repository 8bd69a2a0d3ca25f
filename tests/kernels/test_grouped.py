"""Kernels for rows in groups on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boltgen.arch import arch_named
from boltgen.families.grouped.config import GroupedConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.oracle import LayerInputs, enclose
from boltgen.ir.problem import GroupedGemm
from boltgen.ir.reference import Agreement, compare
from boltgen.ir.workload import Workload
from boltgen.measure.abi import arguments
from boltgen.measure.tensors import drawn, input_tensors
from tests.cases import CONFIGS, EPILOGUES
from tests.kernels.conftest import build_libraries
from tests.kernels.launch import Cuda, KernelLibrary, Operand, padded, poison, unpadded
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting

Array = np.ndarray[Any, Any]


# Both layouts, both types of ends, both generations of mainloops, narrow vectors, a swizzle, and
# operands of every kind.
KERNELS: Mapping[str, tuple[str, GroupedGemm, str]] = {
    "rows": ("sm80_small", GroupedGemm(groups=5, m=270, n=136, k=104), "residual_before"),
    "columns": (
        "sm80_square",
        GroupedGemm(
            groups=40,
            m=150,
            n=264,
            k=100,
            b_layout=Layout.COLUMN,
            ends_dtype=IndexType.INT64,
            out_dtype=DType.F32,
        ),
        "columns",
    ),
    "unaligned": ("sm75_small", GroupedGemm(groups=3, m=70, n=73, k=33), "bias_relu"),
}


def _workload(name: str) -> Workload:
    _, problem, epilogue = KERNELS[name]
    return Workload.of(problem, EPILOGUES[epilogue])


def _config(name: str) -> GroupedConfig:
    return GroupedConfig(gemm=CONFIGS[KERNELS[name][0]][1])


def _arch(name: str) -> str:
    return CONFIGS[KERNELS[name][0]][0]


def _spec(name: str) -> KernelSpec:
    return kernel_spec(_workload(name), _config(name), _arch(name))


@pytest.fixture(scope="module")
def grouped_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("grouped"))


def _problem(workload: Workload) -> GroupedGemm:
    problem = workload.single.problem
    assert isinstance(problem, GroupedGemm)
    return problem


def _drawn(workload: Workload, rng: np.random.Generator) -> tuple[Array, LayerInputs]:
    """A, and the rest, with ends as those that kernels are checked and measured with."""
    layer, problem = workload.single, _problem(workload)
    (m, n), groups = problem.matrix, (problem.groups,)
    of_load = {LoadKind.TENSOR: (m, n), LoadKind.ROW: (n,), LoadKind.COLUMN: (m,)}
    shapes = (problem.a_shape, problem.b_shape, groups, *(of_load[x.kind] for x in layer.loads))
    pairs = zip(input_tensors(layer), shapes, strict=True)
    a, b, ends, *operands = (drawn(tensor, shape, rng) for tensor, shape in pairs)
    return a, LayerInputs(b=b, operands=tuple(operands), ends=ends)


def _judged(
    cuda: Cuda,
    kernels: Mapping[KernelSpec, KernelLibrary],
    name: str,
    case: tuple[Workload, Array, LayerInputs],
) -> tuple[Array, Agreement]:
    """What the kernel of that name computes, and how it compares with the oracle."""
    workload, a, inputs = case
    actual = _run(cuda, kernels[_spec(name)], name, case)
    expected = enclose(workload, a, [inputs])
    return actual, compare(actual, expected.exact, expected.bound)


def _run(
    cuda: Cuda, library: KernelLibrary, name: str, case: tuple[Workload, Array, LayerInputs]
) -> Array:
    workload, a, inputs = case
    problem, spec = _problem(workload), _spec(name)
    a, b = padded(a), padded(inputs.b)
    d = padded(poison(problem.d_shape, problem.out_dtype.numpy))
    cuda.become(spec.arch)
    try:
        args: Any = arguments("boltgen_grouped_gemm_args", launch(workload, _config(name)).sizes)
        args.a, args.b, args.d = cuda.upload(a), cuda.upload(b), cuda.upload(d)
        args.ends = cuda.upload(inputs.ends)
        args.lda, args.ldb, args.ldd = a.shape[-1], b.shape[-1], d.shape[-1]
        args.batch_stride_b = b[0].size
        for index, (load, array) in enumerate(
            zip(workload.single.loads, inputs.operands, strict=True)
        ):
            spread = padded(array) if load.kind is LoadKind.TENSOR else array
            args.operands[index] = Operand(cuda.upload(spread), spread.shape[-1], 0)
        library.launch(kernel_symbol(spec), args)
        cuda.synchronise()
        return unpadded(cuda.download(args.d, d), d, problem.n)
    finally:
        cuda.free_all()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str,
    checking: Cuda,
    grouped_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    workload, config, arch = _workload(name), _config(name), arch_named(_arch(name))
    assert not violations(workload, config, arch)
    edges = boundaries(workload, config, arch)
    assert len(edges) == 2
    for sized in (workload, *edges):
        a, inputs = _drawn(sized, rng)
        _, agreement = _judged(checking, grouped_kernels, name, (sized, a, inputs))
        assert agreement.within, f"{sized.short}: {agreement}"
    assert not checking.vgpu.findings()


@pytest.mark.parametrize(
    "ends",
    [
        [64, 128, 192, 256, 270],  # whole tiles
        [0, 0, 270, 270, 270],  # one group has all
        [65, 65, 66, 130, 200],  # the last rows are of none
        [0, 0, 0, 0, 0],  # all rows are of none
        [100, 40, 2**31 - 1, -7, 3],  # no ends of any rows: nothing is read or written beside
    ],
    ids=["whole", "one", "rest", "none", "wild"],
)
def test_rows_are_of_the_group_that_ends_behind_them(
    ends: list[int],
    checking: Cuda,
    grouped_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    workload = _workload("rows")
    a, inputs = _drawn(workload, rng)
    inputs = replace(inputs, ends=np.array(ends, np.int32))
    _, agreement = _judged(checking, grouped_kernels, "rows", (workload, a, inputs))
    assert agreement.within, agreement
    assert not checking.vgpu.findings()


def test_nan_reaches_its_group_alone(
    checking: Cuda, grouped_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    workload = _workload("rows")
    a, inputs = _drawn(workload, rng)
    inputs = replace(inputs, ends=np.array([60, 130, 130, 200, 260], np.int32))
    inputs.b[1] = np.nan
    actual, agreement = _judged(checking, grouped_kernels, "rows", (workload, a, inputs))
    assert agreement.within, agreement
    undefined = np.isnan(actual)
    assert undefined[60:130].all()
    assert not np.delete(undefined, slice(60, 130), axis=0).any()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(groups=0), INVALID, "groups is 0; it must be at least 1"),
        (setting(ends=None), INVALID, "ends is a null pointer"),
        (setting(ends=ADDRESS + 2), MISALIGNED, "ends is at address"),
        (setting(batch_stride_b=4), MISALIGNED, "batch_stride_b is 4; this kernel needs a mul"),
    ],
    ids=["groups", "ends", "aligned", "stride"],
)
def test_bad_arguments_are_refused(
    change: Change,
    code: int,
    message: str,
    grouped_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("rows"), launch(_workload("rows"), _config("rows")).sizes
    args: Any = arguments("boltgen_grouped_gemm_args", sizes)
    args.a = args.b = args.d = args.ends = ADDRESS
    args.operands[0].pointer, args.operands[0].ld = ADDRESS, sizes["ldd"]
    change(args)
    assert_refused(grouped_kernels[spec], spec, args, code, message)
