"""Convolutions in groups on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, in_bf16
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import boundaries, candidates, kernel_spec, launch, violations
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting

_SAME = (1, 1, 1, 1)


def _case(
    image: tuple[int, int, int, int],
    filters: int,
    groups: int,
    epilogue: ElementwiseGraph = EPILOGUES["identity"],
    **given: Any,
) -> Workload:
    n, h, w, c = image
    usual: dict[str, Any] = {"r": 3, "s": 3, "padding": _SAME}
    return Workload.of(
        Conv2d(n=n, h=h, w=w, c=c, k=filters, groups=groups, **usual | given), epilogue
    )


# Groups of fewer channels than a tile is deep, and of more columns than it is wide; each width of
# vectors; every operand that a group has its own columns of.
KERNELS: Mapping[str, tuple[Cutlass2Config, Workload, str]] = {
    "bias": (
        CONFIGS["sm80_small"][1],
        _case((2, 9, 11, 96), 144, 3, EPILOGUES["bias_relu"]),
        "sm_80",
    ),
    "many": (
        CONFIGS["sm80_sliced"][1],
        _case((1, 8, 8, 64), 64, 8, EPILOGUES["residual_before"]),
        "sm_80",
    ),
    "wide": (
        CONFIGS["sm80_square"][1],
        _case((1, 7, 9, 32), 320, 2, EPILOGUES["columns"], stride=(2, 1)),
        "sm_86",
    ),
    "pointwise": (
        CONFIGS["sm80_small"][1],
        _case((2, 6, 5, 48), 24, 4, EPILOGUES["bias_relu"], r=1, s=1, padding=(0, 0, 0, 0)),
        "sm_80",
    ),
    "turing": (
        CONFIGS["sm75_small"][1],
        _case((1, 10, 7, 24), 36, 6, EPILOGUES["residual_after"], dilation=(2, 1)),
        "sm_75",
    ),
    "bfloat16": (
        CONFIGS["sm80_two_stage"][1],
        _case(
            (2, 5, 6, 32),
            16,
            2,
            in_bf16(EPILOGUES["bias_silu"]),
            in_dtype=DType.BF16,
            out_dtype=DType.BF16,
        ),
        "sm_80",
    ),
}


def _spec(name: str) -> KernelSpec:
    config, workload, arch = KERNELS[name]
    return kernel_spec(workload, config, arch)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("groups"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload, arch = KERNELS[name]
    row = arch_named(arch)
    assert not violations(workload, config, row)
    sizes = (workload, *boundaries(workload, config, row))
    assert len(sizes) == 3
    assert max(judged_jobs(checking, kernels[_spec(name)], _spec(name), config, sizes)) <= 1.0


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(groups=5), MISALIGNED, "c \\(of all groups\\) is 96; .* multiple of 5"),
        (setting(groups=0), INVALID, "groups is 0; it must be at least 1"),
        (setting(split_k=2), INVALID, "split_k \\(in groups\\) is 2; it must be at most 1"),
        (setting(c=36), MISALIGNED, "c \\(of A\\) is 12; .* multiple of 8"),
    ],
)
def test_bad_arguments_are_refused(
    change: Change, code: int, message: str, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    spec, layer = _spec("bias"), KERNELS["bias"][1].single
    args: Any = arguments("boltgen_conv2d_args", launch(KERNELS["bias"][1], spec.config).sizes)
    args.a = args.b = args.d = ADDRESS
    for index in range(len(layer.loads)):
        args.operands[index].pointer, args.operands[index].ld = ADDRESS, 2**20
    change(args)
    assert_refused(kernels[spec], spec, args, code, message)


def test_the_oracle_is_pytorchs() -> None:
    problem = Conv2d(n=2, h=7, w=6, c=12, k=8, r=3, s=2, stride=(2, 1), padding=_SAME, groups=4)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(problem.a_shape), rng.standard_normal(problem.b_shape)
    wanted = torch.nn.functional.conv2d(
        torch.tensor(a.transpose(0, 3, 1, 2)),
        torch.tensor(b.transpose(0, 3, 1, 2)),
        stride=(2, 1),
        padding=1,
        groups=4,
    )
    assert wanted.shape == (2, 8, 4, 7)
    np.testing.assert_allclose(problem.product(a, b), wanted.numpy().transpose(0, 2, 3, 1))


def test_a_problem_in_groups_counts_its_own_channels_only() -> None:
    problem = Conv2d(n=2, h=8, w=8, c=64, k=96, r=3, s=3, padding=_SAME, groups=4)
    assert problem.flops == 2 * (2 * 64) * 96 * 9 * 16
    assert problem.b_shape == (96, 3, 3, 16)
    assert problem.b_bytes == 96 * 9 * 16 * 2
    assert (problem.group.c, problem.group.k, problem.group.groups) == (16, 24, 1)
    assert problem.group.in_groups(4) == problem
    assert problem.short == "conv 2x8x8x64 to 96, 3x3, 4 groups"
    pointwise = Conv2d(n=1, h=8, w=8, c=64, k=64, r=1, s=1, groups=2)
    assert pointwise.canonical is pointwise


def test_channels_that_are_no_whole_groups_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="c=10 channels and k=8 filters are no 4 groups"):
        Conv2d(n=1, h=4, w=4, c=10, k=8, r=1, s=1, groups=4)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_a_convolution_in_groups_has_kernels_of_mma_sync_alone(arch: str) -> None:
    workload = _case((8, 14, 14, 256), 256, 8, EPILOGUES["bias_relu"])
    assert {config.family for config in candidates(workload, arch_named(arch))} == {"cutlass2"}


def test_an_epilogue_with_more_results_has_no_kernel() -> None:
    builder = ElementwiseBuilder()
    total = builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.ROW))
    builder.store(builder.unary(UnaryOp.RELU, total))
    builder.store(total, dtype=DType.F16)
    further = builder.build()
    with pytest.raises(NoLegalConfigError, match="a convolution in groups stores D alone"):
        candidates(_case((1, 8, 8, 32), 32, 4, further), arch_named("sm_80"))
