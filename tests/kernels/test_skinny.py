"""Kernels for few rows on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.kernels import EPILOGUES, KernelCase
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.registry import FAMILIES, boundaries, kernel_spec, launch, violations
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems import reference
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.counting import counted_of
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    Change,
    assert_refused,
    setting,
)

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32


def _tile(rows: int, columns: int, warps: int, steps: int) -> SkinnyConfig:
    return SkinnyConfig(rows=rows, columns=columns, warps=warps, steps=steps)


# Every value of a configuration, both layouts and instructions, every alignment of each operand,
# and operands of every kind.
KERNELS: Mapping[str, tuple[str, SkinnyConfig, Gemm, str]] = {
    "columns": (
        "sm_80",
        _tile(8, 16, 8, 2),
        Gemm(m=1, n=136, k=1032, b_layout=Layout.COLUMN),
        "bias_gelu_erf",
    ),
    "rows": (
        "sm_80",
        _tile(16, 64, 4, 4),
        Gemm(m=13, n=200, k=1032),
        "residual_before",
    ),
    "batched": (
        "sm_80",
        _tile(8, 32, 2, 1),
        Gemm(batch=3, m=5, n=68, k=100, b_layout=Layout.COLUMN),
        "columns",
    ),
    "unaligned": (
        "sm_80",
        _tile(16, 32, 16, 1),
        Gemm(m=16, n=137, k=101),
        "two_tensors",
    ),
    "pairs": (
        "sm_80",
        _tile(16, 16, 4, 2),
        Gemm(m=9, n=70, k=202, out_dtype=F32),
        "per_channel",
    ),
    "single": (
        "sm_75",
        _tile(8, 64, 4, 1),
        Gemm(m=7, n=137, k=101, b_layout=Layout.COLUMN),
        "identity",
    ),
    "sm75_rows": (
        "sm_75",
        _tile(16, 32, 8, 2),
        Gemm(m=12, n=104, k=520),
        "bias_silu",
    ),
    "bf16": (
        "sm_90a",
        _tile(8, 32, 8, 4),
        Gemm(m=3, n=96, k=776, in_dtype=BF16, out_dtype=BF16, b_layout=Layout.COLUMN),
        "relu",
    ),
}


def _workload(name: str) -> Workload:
    _, _, problem, epilogue = KERNELS[name]
    return Workload.of(problem, EPILOGUES[epilogue])


def _spec(name: str) -> KernelSpec:
    arch, config, _, _ = KERNELS[name]
    return kernel_spec(_workload(name), config, arch)


def _case(name: str, workload: Workload) -> KernelCase:
    problem = workload.single.problem
    return KernelCase(name=name, spec=_spec(name), problem=problem)


@pytest.fixture(scope="module")
def skinny_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("skinny"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str,
    checking: Cuda,
    skinny_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    arch, config, _, _ = KERNELS[name]
    workload = _workload(name)
    assert not violations(workload, config, arch_named(arch))
    edges = boundaries(workload, config, arch_named(arch))
    assert len(edges) == 2
    for sized in (workload, *edges):
        case = _case(name, sized)
        inputs = random_inputs(case, rng)
        actual = Launch(checking, skinny_kernels[case.spec], case).run(inputs)
        graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
        agreement = reference.compare(actual, reference.run(*graph), reference.error_bound(*graph))
        assert agreement.within, f"{sized.short}: {agreement}"
    assert not checking.vgpu.findings()


@pytest.mark.parametrize("name", KERNELS)
def test_it_issues_the_products_that_its_family_says(
    name: str,
    cuda: Cuda,
    skinny_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    arch, config, _, _ = KERNELS[name]
    workload = _workload(name)
    found = FAMILIES.of(config).instructions(workload, config, arch_named(arch))
    case = _case(name, workload)
    launched, inputs = Launch(cuda, skinny_kernels[case.spec], case), random_inputs(case, rng)
    counted = counted_of(cuda, lambda: launched.run(inputs))
    assert np.prod(counted["grid"]) == found.threadblocks
    warps = found.threadblocks * config.warps
    assert counted["instructions"]["mma"] == warps * found.products


def test_nan_and_infinity_reach_their_row_or_column_alone(
    checking: Cuda, skinny_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("rows", _workload("rows"))
    inputs = random_inputs(case, rng)
    inputs.a[3, 1031], inputs.b[1031, 199] = np.nan, np.inf
    actual = Launch(checking, skinny_kernels[case.spec], case).run(inputs)
    graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    assert reference.compare(actual, reference.run(*graph), reference.error_bound(*graph)).within
    undefined = ~np.isfinite(actual)
    assert undefined[3].all()
    assert not np.delete(undefined, 3, axis=0)[:, :-1].any()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(split_k=2), INVALID, "split_k is 2; it must be at most 1"),
        (setting(k=1031), MISALIGNED, "is 1031; this kernel needs a multiple of 8"),
        (setting(m=2**20), INVALID, "blocks along M is 131072; it must be at most 65535"),
    ],
    ids=["slices", "depth", "rows"],
)
def test_bad_arguments_are_refused(
    change: Change,
    code: int,
    message: str,
    skinny_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("columns"), launch(_workload("columns"), KERNELS["columns"][1]).sizes
    args: Any = arguments("boltgen_gemm_args", sizes)
    args.a = args.b = args.d = args.operands[0].pointer = ADDRESS
    change(args)
    assert_refused(skinny_kernels[spec], spec, args, code, message)
