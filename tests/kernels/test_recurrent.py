"""Recurrent layers on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES, graph_of
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from boltgen.arch import arch_named
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.recurrence import Cell
from boltgen.measure.abi import arguments
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload
from tests.kernels.conftest import build_libraries, launched
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    WORKSPACE,
    Change,
    assert_refused,
    setting,
)

BF16, F32 = DType.BF16, DType.F32
ALL = {"has_states": True, "has_lengths": True, "keeps_last": True}
RESIDENT, STREAMED = True, False


def _gated(b: ElementwiseBuilder) -> None:
    """A residual, and the hidden states as a result of their own."""
    total = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.TENSOR))
    b.store(b.unary(UnaryOp.SILU, total))
    b.store(0, dtype=F32)


def _case(
    arch: str,
    cell: Cell,
    extents: tuple[int, int, int],
    config: tuple[int, bool] | tuple[int, bool, int, int],
    epilogue: ElementwiseGraph = EPILOGUES["identity"],
    **given: Any,
) -> tuple[RecurrentConfig, Workload, str]:
    steps, rows, hidden = extents
    problem = Recurrent(cell=cell, steps=steps, batch_rows=rows, hidden=hidden, **given)
    names = ("groups", "resident", "units", "slices")
    made = RecurrentConfig(**dict(zip(names, config, strict=False)))
    return made, Workload.of(problem, epilogue), arch


# Every cell, both instructions and both places of the weights; each number of groups, ragged
# batches and hidden units, odd ones, one direction and both, and all that a launch may leave out.
# The cases `shared` have threadblocks that share the hidden units, and warps that share K.
KERNELS: Mapping[str, tuple[RecurrentConfig, Workload, str]] = {
    "gru": _case("sm_80", Cell.GRU, (5, 20, 64), (1, RESIDENT), has_bias=True),
    "lstm": _case("sm_80", Cell.LSTM, (4, 3, 128), (2, RESIDENT), directions=2, **ALL),
    "gru_reset_first": _case("sm_75", Cell.GRU_RESET_FIRST, (3, 17, 40), (2, RESIDENT), **ALL),
    "rnn_tanh": _case("sm_75", Cell.RNN_TANH, (6, 2, 27), (4, RESIDENT), directions=2),
    "rnn_relu": _case("sm_90a", Cell.RNN_RELU, (3, 33, 50), (1, RESIDENT), backwards=True),
    "streamed": _case("sm_80", Cell.LSTM, (3, 5, 200), (2, STREAMED), has_states=True),
    "streamed_gru": _case("sm_75", Cell.GRU, (3, 18, 96), (1, STREAMED), has_bias=True, **ALL),
    "streamed_reset": _case("sm_80", Cell.GRU_RESET_FIRST, (3, 2, 72), (4, STREAMED)),
    "bfloat16": _case(
        "sm_80", Cell.GRU, (4, 16, 32), (1, RESIDENT), in_dtype=BF16, out_dtype=BF16, **ALL
    ),
    "wide": _case("sm_86", Cell.LSTM, (3, 4, 24), (1, RESIDENT), out_dtype=F32, keeps_last=True),
    "gated": _case("sm_80", Cell.LSTM, (3, 18, 64), (1, RESIDENT), graph_of(_gated)),
    "odd_columns": _case(
        "sm_80", Cell.GRU, (3, 3, 33), (2, RESIDENT), EPILOGUES["columns"], directions=2
    ),
    "shared": _case("sm_80", Cell.LSTM, (4, 20, 64), (1, RESIDENT, 16, 2), directions=2, **ALL),
    "shared_streamed": _case(
        "sm_80", Cell.GRU, (3, 18, 200), (1, STREAMED, 32, 4), graph_of(_gated), has_bias=True
    ),
    "shared_reset": _case("sm_75", Cell.GRU_RESET_FIRST, (3, 17, 40), (1, RESIDENT, 8, 1), **ALL),
    "shared_reset_slices": _case(
        "sm_80", Cell.GRU_RESET_FIRST, (3, 2, 72), (1, STREAMED, 16, 8), backwards=True
    ),
    "shared_odd": _case("sm_90a", Cell.RNN_TANH, (3, 3, 75), (1, RESIDENT, 64, 2), directions=2),
    "shared_520": _case(
        "sm_80", Cell.LSTM, (2, 2, 520), (1, RESIDENT, 16, 4), in_dtype=BF16, out_dtype=BF16
    ),
}

# No device of sm_75 runs as many threadblocks at once.
CROWDED = _case("sm_75", Cell.RNN_RELU, (2, 1, 1024), (1, STREAMED, 8, 8))


def _spec(name: str) -> KernelSpec:
    config, workload, arch = CROWDED if name == "crowded" else KERNELS[name]
    return kernel_spec(workload, config, arch)


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = launched(
        request, list(map(_spec, KERNELS)), lambda parameters: _spec(parameters["name"])
    )
    return build_libraries(specs, tmp_path_factory.mktemp("recurrent"))


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


@pytest.mark.parametrize("name", ["shared_reset"])
def test_a_team_takes_further_rows(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    """Five threadblocks of 32 threads share 40 hidden units; sm_75 runs 640 threadblocks."""
    config, _, arch = KERNELS[name]
    teams = 40 * 16 // 5
    problem = Recurrent(
        cell=Cell.GRU_RESET_FIRST, steps=2, batch_rows=16 * teams + 1, hidden=40, keeps_last=True
    )
    workload = Workload.of(problem)
    spec = kernel_spec(workload, config, arch)
    assert spec == _spec(name)
    assert max(judged_jobs(checking, kernels[spec], spec, config, [workload])) <= 1.0


@pytest.mark.parametrize("name", ["crowded"])
def test_threadblocks_that_do_not_all_run_are_refused(
    name: str, cuda: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload, arch = CROWDED
    assert [each.name for each in violations(workload, config, arch_named(arch))] == [
        "resident_threadblocks"
    ]
    spec, sizes = _spec(name), launch(workload, config)
    args: Any = arguments("boltgen_recurrent_args", sizes.sizes)
    args.a = args.weights = args.d = args.workspace = ADDRESS
    args.workspace_bytes = sizes.workspace_bytes
    cuda.become(spec.arch)
    message = "128 threadblocks share the hidden units; this device runs [0-9]+ of them at once"
    assert_refused(kernels[spec], spec, args, INVALID, message)
    args.workspace_bytes -= 1
    assert_refused(kernels[spec], spec, args, WORKSPACE, "workspace has [0-9]+ bytes; these sizes")


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("gru", setting(steps=0), INVALID, "steps is 0; it must be at least 1"),
        ("gru", setting(hidden=72), INVALID, "hidden is 72; it must be at most 64"),
        ("gru", setting(hidden=60), MISALIGNED, "hidden is 60; .* multiple of 8"),
        ("gru", setting(directions=3), INVALID, "directions is 3; it must be at most 2"),
        ("gru", setting(last_states=2), INVALID, "last_states is 2; it must be at most 1"),
        ("lstm", setting(backwards=1), INVALID, "backwards is 1; it must be at most 0"),
        ("lstm", setting(last_states=1), INVALID, "last_states is 1; it must be at least 2"),
        ("lstm", setting(bias=ADDRESS), INVALID, "cell without a bias is 1"),
        ("lstm", setting(weights=ADDRESS + 2), MISALIGNED, "weights is at address"),
    ],
)
def test_bad_arguments_are_refused(
    name: str,
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec = _spec(name)
    sizes = launch(KERNELS[name][1], spec.config).sizes
    args: Any = arguments("boltgen_recurrent_args", sizes)
    args.a = args.weights = args.d = ADDRESS
    change(args)
    assert_refused(kernels[spec], spec, args, code, message)
