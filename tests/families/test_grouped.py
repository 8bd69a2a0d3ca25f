"""The family of rows in groups: what it computes, and what it says of times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.kernels import CONFIGS
from boltgen.arch import arch_named
from boltgen.families.constants import model_constants
from boltgen.families.grouped import FAMILY
from boltgen.families.grouped.config import GroupedConfig, even, repeated_bytes
from boltgen.families.registry import predict
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import (
    SOFTMAX,
    Accumulator,
    BinaryOp,
    ElementwiseGraph,
    LoadKind,
    Reduction,
    Store,
)
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.workload import Layer, Workload

SM80 = arch_named("sm_80")
PROBLEM = GroupedGemm(groups=8, m=2048, n=1024, k=512, b_layout=Layout.COLUMN)
SQUARE = CONFIGS["sm80_square"][1]
TAKEN = replace(PROBLEM, a_rows=256, rows_dtype=IndexType.INT32)
SUMS = ElementwiseGraph(
    (Accumulator(),),
    (Store(0), Store(0, LoadKind.COLUMN, DType.F32, Reduction.SUM)),
)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (Layer(problem=Gemm(m=64, n=64, k=64)), "products of rows in groups, not a Gemm"),
        (Layer(problem=PROBLEM, prologue=SOFTMAX), "it multiplies A as it is, not softmax"),
        (Layer(problem=PROBLEM, epilogue=SUMS), "it stores full tensors"),
    ],
    ids=["gemm", "prologue", "sums"],
)
def test_what_it_does_not_compute_is_rejected_with_the_reason(layer: Layer, said: str) -> None:
    reason = FAMILY.rejects(Workload(layers=(layer,)), SM80)
    assert reason is not None
    assert said in reason


def test_k_is_not_divided() -> None:
    workload, tiles = Workload.of(PROBLEM), CONFIGS["sm80_square"][1]
    assert not FAMILY.violations(workload, GroupedConfig(gemm=tiles), SM80)
    divided = GroupedConfig(gemm=replace(tiles, split_k=2))
    assert [each.name for each in FAMILY.violations(workload, divided, SM80)] == ["split_k_grouped"]
    of_one = Workload.of(replace(PROBLEM, groups=1))
    configs = FAMILY.space(of_one, SM80).candidates
    assert configs
    assert all(config.gemm.split_k == 1 for config in configs)


def test_it_is_predicted_as_groups_of_as_many_rows() -> None:
    assert even(replace(PROBLEM, m=2047)) == Gemm(
        batch=8, m=256, n=1024, k=512, b_layout=Layout.COLUMN
    )
    few = even(replace(PROBLEM, m=5))
    assert (few.batch, few.m) == (5, 1)
    config = GroupedConfig(gemm=CONFIGS["sm80_square"][1])
    # The same rows with more weights take longer.
    times = [
        predict(Workload.of(replace(PROBLEM, groups=groups)), config, SM80).time_us
        for groups in (8, 32, 128)
    ]
    assert times == sorted(set(times))


def test_few_rows_of_each_group_have_small_tiles() -> None:
    """Of 64 tokens of 64 experts most have one: tiles are of the fewest rows that there are."""
    configs = FAMILY.space(Workload.of(replace(PROBLEM, groups=64, m=64)), SM80).candidates
    assert {config.gemm.threadblock.m for config in configs} == {16, 32}


def _of_operands(count: int) -> ElementwiseGraph:
    """So many operands, D, and a further result."""
    kinds = [LoadKind.TENSOR] * 2 + [LoadKind.ROW] * 4
    builder = ElementwiseBuilder()
    total = 0
    for kind in kinds[:count]:
        total = builder.binary(BinaryOp.ADD, total, builder.load(kind))
    builder.store(total)
    builder.store(0, dtype=DType.F32)
    return builder.build()


def test_a_launch_says_how_many_rows_there_are_to_take() -> None:
    full = Workload.of(TAKEN, _of_operands(6))
    assert FAMILY.rejects(full, SM80) is None
    assert FAMILY.launch(full, GroupedConfig(gemm=SQUARE)).sizes["a_rows"] == 256
    plain = FAMILY.launch(Workload.of(PROBLEM), GroupedConfig(gemm=SQUARE))
    assert "a_rows" not in plain.sizes


def test_rows_that_are_taken_take_shared_memory_too() -> None:
    config = GroupedConfig(gemm=SQUARE)
    bytes_of = {
        each: FAMILY.footprint(Workload.of(each), config).shared_memory_bytes
        for each in (PROBLEM, TAKEN)
    }
    assert bytes_of[TAKEN] == bytes_of[PROBLEM] + 4 * SQUARE.threadblock.m
    tight = replace(SM80, shared_memory_per_cta_bytes=bytes_of[PROBLEM])
    assert not FAMILY.violations(Workload.of(PROBLEM), config, tight)
    (found,) = FAMILY.violations(Workload.of(TAKEN), config, tight)
    assert found.name == "shared_memory_of_rows"
    assert found.slack is not None
    assert found.slack < 0


def test_a_row_that_is_taken_again_is_in_l2() -> None:
    """Of 256 tokens eight experts each: DRAM reads each once, and the integers."""
    kept = model_constants(SM80).l2_kept_fraction * SM80.l2_bytes
    moved = {
        each.a_rows: -repeated_bytes(each, kept)
        for each in (PROBLEM, TAKEN, replace(TAKEN, a_rows=100000))
    }
    integers, row_bytes = 2048 * 4, 512 * 2
    assert moved[None] - moved[256] == (2048 - 256) * row_bytes - integers
    assert moved[100000] == moved[None] + integers


def test_boundaries_take_rows_of_fewer_and_of_more() -> None:
    workload = Workload.of(TAKEN)
    found = FAMILY.boundaries(workload, GroupedConfig(gemm=SQUARE), SM80)
    counts = [(each.single.problem.a_shape[0], each.single.problem.d_shape[0]) for each in found]
    assert counts == [(131, 517), (68, 29)]
