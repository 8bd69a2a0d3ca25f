"""Kernels for packed weights on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.kernels import EPILOGUES, KernelCase
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import ARCHES, arch_named
from boltgen.families.registry import boundaries, kernel_spec, launch, predict, spaces, violations
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems import reference
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    Change,
    assert_refused,
    setting,
)


def _tile(rows: int, columns: int, warps: int, steps: int) -> SkinnyConfig:
    return SkinnyConfig(rows=rows, columns=columns, warps=warps, steps=steps)


def _form(bits: int, group: int, *, zeros: bool = False) -> PackedWeights:
    return PackedWeights(bits=bits, group=group, has_zeros=zeros)


# Each number of bits and rows, groups of less and more than a step of K, zero points, ragged N and
# K, every alignment of A and D, both instructions.
KERNELS: Mapping[str, tuple[str, SkinnyConfig, Gemm, str]] = {
    name: (arch, tile, Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, weights=form), epilogue)
    for name, arch, tile, (m, n, k), form, epilogue in (
        ("int4_32", "sm_80", _tile(8, 16, 8, 2), (1, 136, 1024), _form(4, 32), "bias_gelu_erf"),
        ("int4_128_zeros", "sm_80", _tile(8, 32, 4, 1), (7, 137, 1032), _form(4, 128, zeros=True),
         "identity"),
        ("int8_32_zeros", "sm_80", _tile(16, 32, 4, 2), (16, 70, 520), _form(8, 32, zeros=True),
         "residual_before"),
        ("int8_128", "sm_86", _tile(16, 64, 2, 1), (33, 200, 300), _form(8, 128), "bias_silu"),
        ("int4_16_zeros", "sm_75", _tile(8, 16, 4, 1), (7, 33, 101), _form(4, 16, zeros=True),
         "identity"),
        ("int8_256", "sm_75", _tile(16, 16, 2, 2), (9, 40, 600), _form(8, 256), "relu"),
        ("int4_64", "sm_90a", _tile(16, 32, 16, 1), (33, 96, 2056), _form(4, 64), "two_tensors"),
    )
}  # fmt: skip


def _workload(name: str) -> Workload:
    _, _, problem, epilogue = KERNELS[name]
    return Workload.of(problem, EPILOGUES[epilogue])


def _spec(name: str) -> KernelSpec:
    arch, config, _, _ = KERNELS[name]
    return kernel_spec(_workload(name), config, arch)


@pytest.fixture(scope="module")
def packed_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("packed"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_unpacks_what_it_is_made_for_and_its_boundaries(
    name: str,
    checking: Cuda,
    packed_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    arch, config, problem, _ = KERNELS[name]
    workload = _workload(name)
    assert not violations(workload, config, arch_named(arch))
    edges = boundaries(workload, config, arch_named(arch))
    assert len(edges) == 2
    more_rows = (Workload.of(_rows(problem, m), workload.single.epilogue) for m in (1, 7, 16, 33))
    for sized in dict.fromkeys((workload, *edges, *more_rows)):
        case = KernelCase(name=name, spec=_spec(name), problem=sized.single.problem)
        inputs = random_inputs(case, rng)
        actual = Launch(checking, packed_kernels[case.spec], case).run(inputs)
        graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
        agreement = reference.compare(actual, reference.run(*graph), reference.error_bound(*graph))
        assert agreement.within, f"{sized.short}: {agreement}"
    assert not checking.vgpu.findings()


def _rows(problem: Gemm, m: int) -> Gemm:
    return Gemm(m=m, n=problem.n, k=problem.k, b_layout=problem.b_layout, weights=problem.weights)


def test_one_product_multiplies_the_rounded_weights_exactly(
    checking: Cuda, packed_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    # A row of A with a single one picks a column of weights: nothing is rounded after them.
    name, k = "int4_128_zeros", 1032
    form = _form(4, 128, zeros=True)
    problem = Gemm(m=7, n=137, k=k, b_layout=Layout.COLUMN, weights=form)
    case = KernelCase(name=name, spec=_spec(name), problem=problem)
    inputs = random_inputs(case, rng)
    picked = rng.integers(0, k, 7)
    inputs.a[...] = 0
    inputs.a[np.arange(7), picked] = 1
    actual = Launch(checking, packed_kernels[case.spec], case).run(inputs)
    assert np.array_equal(actual, form.unpacked(inputs.b, k)[:, picked].T)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(split_k=2), INVALID, "split_k is 2; it must be at most 1"),
        (setting(batch=2), INVALID, "batch is 2; it must be at most 1"),
        (setting(ldb=560), INVALID, "ldb is 560; it must be at least 576"),
        (setting(ldb=584), MISALIGNED, "ldb is 584; this kernel needs a multiple of 16"),
        (setting(m=2**20), INVALID, "blocks along M is 131072; it must be at most 65535"),
    ],
    ids=["slices", "batch", "short_rows", "unaligned_rows", "rows"],
)
def test_bad_arguments_are_refused(
    change: Change,
    code: int,
    message: str,
    packed_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("int4_32"), launch(_workload("int4_32"), KERNELS["int4_32"][1]).sizes
    args: Any = arguments("boltgen_gemm_args", sizes)
    args.a = args.b = args.d = args.operands[0].pointer = ADDRESS
    change(args)
    assert_refused(packed_kernels[spec], spec, args, code, message)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("m", [1, 33, 4096])
def test_nothing_but_skinny_computes_packed_weights_and_it_does_with_any_rows(
    arch: str, m: int
) -> None:
    problem = Gemm(m=m, n=512, k=512, b_layout=Layout.COLUMN, weights=_form(4, 32))
    found = spaces(Workload.of(problem), arch_named(arch))
    assert [space.family for space in found] == ["skinny"]
    for config in found[0].listed():
        assert not violations(Workload.of(problem), config, arch_named(arch))


def test_packed_weights_are_predicted_to_take_less_time_than_whole_ones() -> None:

    arch, config = arch_named("sm_90a"), _tile(8, 32, 8, 2)
    whole = Gemm(m=1, n=16384, k=16384, b_layout=Layout.COLUMN)
    forms = _form(4, 128), _form(8, 128), None
    workloads = (Workload.of(replace(whole, weights=form)) for form in forms)
    times = [predict(workload, config, arch).time_us for workload in workloads]
    assert times == sorted(times)
    assert times[0] < times[2] / 2
