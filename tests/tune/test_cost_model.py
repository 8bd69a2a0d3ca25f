"""The cost model behaves: more work costs more, and each mechanism shows in the prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.arch import ARCHES, arch_named
from boltgen.ir.dtypes import Layout
from boltgen.ir.epilogue import Epilogue, EpilogueBuilder, UnaryOp
from boltgen.ir.problem import Gemm
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.space.enumerate import enumerate_configs
from boltgen.tune.cost_model import predict
from tests.tune.resnet50_layers import biased

SM80 = arch_named("sm_80")
CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)


def time_us(m=1024, n=1024, k=1024, config=CONFIG, *, epilogue=None):
    problem = Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN)
    return predict(problem, epilogue or Epilogue(), config, SM80).time_us


@settings(deadline=None)
@given(st.integers(1, 8000), st.integers(1, 8000), st.integers(0, 2000))
def test_more_rows_or_depth_never_cost_less(m, k, more):
    # Multiples of 8 keep the alignment, which has a cost of its own.
    assert time_us(m=8 * m) <= time_us(m=8 * (m + more))
    assert time_us(k=8 * k) <= time_us(k=8 * (k + more))


def test_one_threadblock_more_than_a_wave_costs_a_wave():
    resident = predict(Gemm(m=128, n=128, k=4096), Epilogue(), CONFIG, SM80).resident_threadblocks
    wave = SM80.sm_count * resident
    full, over = time_us(m=128 * wave, n=128), time_us(m=128 * wave + 8, n=128)
    assert over > full * 1.1
    half = time_us(m=64 * wave, n=128)
    assert half < full


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_no_prediction_beats_the_hardware(m, n, k):
    problem = Gemm(m=m, n=n, k=k)
    for name in ARCHES:
        arch = arch_named(name)
        for config in enumerate_configs(problem, arch)[::17]:
            prediction = predict(problem, Epilogue(), config, arch)
            assert 0 < prediction.efficiency < 1
            assert 0 < prediction.occupancy <= 1
            assert prediction.time_us * arch.dram_gb_per_s * 1e3 > 2 * (m * k + k * n + m * n)


def test_narrow_vectors_cost_more():
    assert time_us(k=1024) < time_us(k=1020) < time_us(k=1018)


def test_a_heavier_epilogue_costs_more():
    graph = EpilogueBuilder()
    graph.unary(UnaryOp.MISH, 0)
    assert time_us() < time_us(epilogue=biased(relu=True)) < time_us(epilogue=graph.build())
    assert time_us(epilogue=biased()) < time_us(epilogue=biased(residual=True))


def test_slices_pay_for_deep_products_with_few_tiles_only():
    split = replace(CONFIG, split_k=4)
    assert time_us(m=128, n=128, k=8192, config=split) < time_us(m=128, n=128, k=8192)
    assert time_us(m=4096, n=4096, config=split) > time_us(m=4096, n=4096)


def test_swizzle_pays_where_l2_cannot_keep_a():
    swizzled = replace(CONFIG, swizzle=8)
    small = [time_us(2048, 2048, 2048, config) for config in (CONFIG, swizzled)]
    assert small[0] == small[1]
    problem = Gemm(m=16384, n=16384, k=8192)
    plain = predict(problem, Epilogue(), CONFIG, SM80)
    assert predict(problem, Epilogue(), swizzled, SM80).dram_bytes < plain.dram_bytes / 3


@pytest.mark.parametrize("name", ARCHES)
def test_a_large_square_product_takes_large_tiles_and_most_of_the_peak(name):
    arch = arch_named(name)
    problem = Gemm(m=8192, n=8192, k=8192, b_layout=Layout.COLUMN)
    configs = enumerate_configs(problem, arch)
    best = min(configs, key=lambda config: predict(problem, Epilogue(), config, arch).time_us)
    assert best.threadblock.m * best.threadblock.n >= 128 * 128
    assert predict(problem, Epilogue(), best, arch).efficiency > 0.5 * arch.mma_sync_fraction
