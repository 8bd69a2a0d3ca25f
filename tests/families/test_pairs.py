"""Pairs of products: who computes them, who refuses, and what one launch saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boltgen.arch import arch_named
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import FAMILIES, candidates, predict, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from tests.gated import gated

PAIR = Gemm(m=512, n=5632, k=2048, b_layout=Layout.COLUMN, paired=True)
GATE = gated(UnaryOp.SILU)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_cutlass2_alone_computes_a_pair(arch: str) -> None:
    pair, row = Workload.of(PAIR, GATE), arch_named(arch)
    taken = [family.name for family in FAMILIES if family.rejects(pair, row) is None]
    assert taken == ["cutlass2"]
    assert {config.family for config in candidates(pair, row)} == {"cutlass2"}


@pytest.mark.parametrize(("family", "arch"), [("cutlass3", "sm_90a"), ("skinny", "sm_80")])
def test_another_family_names_the_reason(family: str, arch: str) -> None:
    reason = FAMILIES.named(family).rejects(Workload.of(PAIR, GATE), arch_named(arch))
    assert reason is not None
    assert "two accumulators: kernels of cutlass2 alone combine them" in reason


def test_chains_refuse_a_layer_that_is_a_pair() -> None:
    small = replace(PAIR, n=64, k=64)
    after = Gemm(m=512, n=64, k=64, b_layout=Layout.COLUMN)
    chain = Workload(layers=(Layer(problem=small, epilogue=GATE), Layer(problem=after)))
    for family, arch in (("b2b", "sm_80"), ("b2b_sm90", "sm_90a")):
        reason = FAMILIES.named(family).rejects(chain, arch_named(arch))
        assert reason is not None
        assert reason.startswith("layer 0: two accumulators"), reason


def test_a_pair_stores_d_alone() -> None:
    b = ElementwiseBuilder()
    product = b.binary(BinaryOp.MULTIPLY, 0, b.second())
    b.store(product)
    b.store(0, dtype=PAIR.out_dtype)
    rejected = FAMILIES.named("cutlass2").rejects(Workload.of(PAIR, b.build()), arch_named("sm_80"))
    assert rejected is not None
    assert "a pair of products stores D alone" in rejected


def test_a_vector_has_a_run_of_each_product() -> None:
    # Two warps share rows of 96 FP16 numbers in vectors of four, which have a run of one product
    # alone. One warp has them in wider spans.
    def found(problem: Gemm, epilogue: ElementwiseGraph, warps: int) -> set[str]:
        tile = Cutlass2Config(
            threadblock=Shape(64, 96, 32),
            warp=Shape(64 // 2, 96 // warps, 32),
            instruction=Shape(16, 8, 16),
            stages=3,
        )
        one = Workload.of(problem, epilogue)
        return {each.name for each in violations(one, tile, arch_named("sm_80"))}

    whole = replace(PAIR.unpaired, n=PAIR.n)
    assert found(whole, ElementwiseGraph(), 2) == set()
    assert found(PAIR, GATE, 2) == {"epilogue_thread_map"}
    assert found(PAIR, GATE, 1) == set()


@pytest.mark.parametrize(("rows", "columns", "depth"), [(128, 2048, 768), (2048, 11008, 4096)])
def test_one_launch_is_predicted_to_be_faster_than_two(rows: int, columns: int, depth: int) -> None:
    """Of T5 1.1 base at 128 tokens, and of Llama 2 7B at 2048."""
    row = arch_named("sm_80")
    one = Gemm(m=rows, n=columns, k=depth, b_layout=Layout.COLUMN)
    before, behind = ElementwiseBuilder(), ElementwiseBuilder()
    before.unary(UnaryOp.SILU, 0)
    behind.binary(BinaryOp.MULTIPLY, 0, behind.load(LoadKind.TENSOR))

    def best_us(workload: Workload) -> float:
        return min(predict(workload, each, row).time_us for each in candidates(workload, row))

    together = best_us(Workload.of(replace(one, paired=True), GATE))
    apart = best_us(Workload.of(one, before.build())) + best_us(Workload.of(one, behind.build()))
    assert together < apart
