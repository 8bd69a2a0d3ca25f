"""Kernels for rows in groups on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Operand, padded, poison, unpadded
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.grouped.config import GroupedConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.operands import drawn, input_tensors
from boltgen.problems.oracle import enclose
from boltgen.problems.reference import Agreement, compare
from boltgen.problems.workload import Workload
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting

Array = np.ndarray[Any, Any]


# Both layouts, both types of ends, both generations of mainloops, narrow vectors, a swizzle,
# operands of every kind, and rows of A in order and taken.
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
    "taken": (
        "sm80_small",
        GroupedGemm(groups=5, m=270, n=136, k=104, a_rows=90, rows_dtype=IndexType.INT64),
        "residual_before",
    ),
    "taken_narrow": (
        "sm80_square",
        GroupedGemm(
            groups=40,
            m=150,
            n=264,
            k=100,
            b_layout=Layout.COLUMN,
            in_dtype=DType.BF16,
            out_dtype=DType.F32,
            a_rows=333,
            rows_dtype=IndexType.INT32,
        ),
        "columns",
    ),
    "taken_unaligned": (
        "sm75_small",
        GroupedGemm(
            groups=3,
            m=70,
            n=73,
            k=33,
            ends_dtype=IndexType.INT64,
            a_rows=200,
            rows_dtype=IndexType.INT32,
        ),
        "bias_relu",
    ),
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
    taken = [] if problem.a_rows is None else [(m,)]
    loaded = (of_load[x.kind] for x in layer.loads)
    shapes = (problem.a_shape, problem.b_shape, groups, *taken, *loaded)
    pairs = zip(input_tensors(layer), shapes, strict=True)
    a, b, ends, *operands = (drawn(tensor, shape, rng) for tensor, shape in pairs)
    rows = operands.pop(0) if taken else np.zeros(0)
    return a, LayerInputs(b=b, operands=tuple(operands), ends=ends, rows=rows)


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
        if problem.a_rows is not None:
            args.taken = cuda.upload(inputs.rows)
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


def _rows(name: str, rng: np.random.Generator) -> Array:
    """Numbers of rows of a tensor with 90 rows, for 270."""
    extreme = [-(2**63), -1, 0, 89, 90, 2**31, 2**32 + 1, 2**63 - 1]
    made: Mapping[str, Array] = {
        "twice": np.sort(rng.integers(0, 90, 270)),
        "backwards": np.arange(270)[::-1] // 3,
        "one": np.full(270, 71),
        "wild": np.resize(np.array(extreme), 270),
    }
    return made[name].astype(np.int64)


@pytest.mark.parametrize("name", ["twice", "backwards", "one", "wild"])
def test_rows_are_taken_in_any_order_and_never_beside_a(
    name: str,
    checking: Cuda,
    grouped_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Groups of ragged numbers of rows, one of none; what no integer takes is NaN in A."""
    workload = _workload("taken")
    a, inputs = _drawn(workload, rng)
    rows, ends = _rows(name, rng), np.array([65, 65, 66, 130, 251], np.int32)
    sane = np.clip(rows, 0, 89)
    a[np.setdiff1d(np.arange(90), sane)] = np.nan
    inputs = replace(inputs, rows=rows, ends=ends)
    actual, agreement = _judged(checking, grouped_kernels, "taken", (workload, a, inputs))
    assert agreement.within, agreement
    assert not np.isnan(actual).any()
    assert not checking.vgpu.findings()
    # The same of the rows in order.
    plain = _workload("rows")
    in_order, _ = _judged(checking, grouped_kernels, "rows", (plain, a[sane], inputs))
    assert np.array_equal(actual, in_order)


def test_rows_that_are_taken_of_none_are_refused(
    grouped_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("taken"), launch(_workload("taken"), _config("taken")).sizes
    assert sizes["a_rows"] == 90

    def refused(pointer: int | None, count: int, code: int, message: str) -> None:
        args: Any = arguments("boltgen_grouped_gemm_args", sizes)
        args.a = args.b = args.d = args.ends = ADDRESS
        for each in range(2):
            args.operands[each].pointer, args.operands[each].ld = ADDRESS, sizes["ldd"]
        args.taken, args.a_rows = pointer, count
        assert_refused(grouped_kernels[spec], spec, args, code, message)

    refused(None, 90, INVALID, "taken is a null pointer")
    refused(ADDRESS + 4, 90, MISALIGNED, "taken is at address")
    refused(ADDRESS, 0, INVALID, "a_rows is 0; it must be at least 1")


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
