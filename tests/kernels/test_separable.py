"""Depthwise separable convolutions on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cases.separable import CASES
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.registry import boundaries, launch, violations
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from tests.kernels.conftest import launched
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    every = [case.spec for case in CASES.values()]
    specs = launched(request, every, lambda parameters: CASES[parameters["name"]].spec)
    return build_libraries(specs, tmp_path_factory.mktemp("separable"))


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    case = CASES[name]
    row = arch_named(case.arch)
    assert not violations(case.workload, case.config, row)
    sizes = (case.workload, *boundaries(case.workload, case.config, row))
    assert len(sizes) == 3
    errors = judged_jobs(checking, kernels[case.spec], case.spec, case.config, sizes)
    assert max(errors) <= 1.0


def _of_layer(index: int, **values: int) -> Change:
    def change(args: Any) -> None:
        for name, value in values.items():
            setattr(args.layers[index], name, value)

    return change


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("plain", setting(s=5), INVALID, "s is 5; this kernel takes 3"),
        ("plain", setting(stride_w=2), INVALID, "stride_w is 2; this kernel takes 1"),
        ("plain", setting(q=0), INVALID, "q is 0; it must be at least 1"),
        ("plain", setting(n=2**24), INVALID, "rows of the output is .*; it must be at most"),
        ("plain", _of_layer(0, n=192), INVALID, "k is 192; this kernel takes 96"),
        ("plain", _of_layer(1, n=0), INVALID, r"layers\[1\].n is 0; it must be at least 1"),
        ("plain", _of_layer(1, n=20), MISALIGNED, r"layers\[1\].n is 20; .* multiple of 8"),
        ("plain", _of_layer(1, ldb=88), INVALID, r"layers\[1\].ldb is 88; it must be at least 96"),
        ("plain", _of_layer(1, b=8), MISALIGNED, r"layers\[1\].b"),
        ("doubled", _of_layer(0, n=20), INVALID, "k is 20; this kernel takes 40"),
    ],
)
def test_bad_arguments_are_refused(
    name: str,
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    case = CASES[name]
    given = launch(case.workload, case.config)
    args: Any = arguments(given.struct, given.sizes)
    args.a = args.d = ADDRESS
    for index, layer in enumerate(case.workload.layers):
        args.layers[index].b = ADDRESS
        for number in range(len(layer.loads) + len(layer.further)):
            operand = args.layers[index].operands[number]
            operand.pointer, operand.ld = ADDRESS, 2**20
    change(args)
    assert_refused(kernels[case.spec], case.spec, args, code, message)
