"""The cost model behaves: more work costs more, and each mechanism shows in the prediction."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.cases.resnet50_layers import biased
from boltgen.arch import ARCHES, arch_named
from boltgen.families.constants import model_constants
from boltgen.families.cutlass2.candidates import enumerate_configs
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.mma_sync.model import analysed, predict, resident_threadblocks
from boltgen.families.roofline import tensor_tflops
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm

# Two equal sums in another order: some hundred float64 operations, each right to 2**-53.
ROUNDED = 1 + 200 * 2**-53
SM80 = arch_named("sm_80")
CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)


def time_us(m=1024, n=1024, k=1024, config=CONFIG, *, epilogue=None):
    problem = Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN)
    return predict(problem, epilogue or ElementwiseGraph(), config, SM80).time_us


@settings(deadline=None)
@given(st.integers(1, 8000), st.integers(1, 8000), st.integers(0, 2000))
def test_more_rows_or_depth_never_cost_less(m, k, more):
    # Multiples of 8 keep the alignment, which has a cost of its own.
    assert time_us(m=8 * m) <= time_us(m=8 * (m + more)) * ROUNDED
    assert time_us(k=8 * k) <= time_us(k=8 * (k + more)) * ROUNDED


def test_one_threadblock_more_than_a_wave_costs_a_wave():
    resident = resident_threadblocks(CONFIG, DType.F16, DType.F32, SM80)
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
            predicted_us = predict(problem, ElementwiseGraph(), config, arch).time_us
            assert 0 < problem.flops / predicted_us < tensor_tflops(DType.F32, arch) * 1e6
            resident = resident_threadblocks(config, DType.F16, DType.F32, arch)
            assert 0 < resident * config.warps <= arch.max_warps_per_sm
            assert predicted_us * arch.dram_gb_per_s * 1e3 > 2 * (m * k + k * n + m * n)


def test_narrow_vectors_cost_more():
    assert time_us(k=1024) < time_us(k=1020) < time_us(k=1018)


def test_a_heavier_epilogue_costs_more():
    graph = ElementwiseBuilder()
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
    plain = analysed(problem, ElementwiseGraph(), CONFIG, SM80)
    assert (
        analysed(problem, ElementwiseGraph(), swizzled, SM80).traffic.dram_bytes
        < plain.traffic.dram_bytes / 2
    )


@pytest.mark.parametrize("name", ARCHES)
def test_a_large_square_product_takes_large_tiles_and_most_of_the_peak(name):
    arch = arch_named(name)
    problem = Gemm(m=8192, n=8192, k=8192, b_layout=Layout.COLUMN)
    configs = enumerate_configs(problem, arch)
    best = min(
        configs, key=lambda config: predict(problem, ElementwiseGraph(), config, arch).time_us
    )
    # A GeForce that sums in FP32 at half the rate is as busy with somewhat smaller tiles.
    least = 128 * 128 if arch.tensor_f16_acc_tflops == arch.tensor_f32_acc_tflops else 64 * 192
    assert best.threadblock.m * best.threadblock.n >= least
    reached = problem.flops / predict(problem, ElementwiseGraph(), best, arch).time_us
    assert reached > 0.5 * arch.mma_sync_fraction * tensor_tflops(DType.F32, arch) * 1e6


# --- physics -------------------------------------------------------------------------------------


def without_launch_us(problem, config=CONFIG, *, epilogue=None, arch=SM80):
    found = predict(problem, epilogue or ElementwiseGraph(), config, arch)
    return found.time_us - model_constants(arch).launch_us


@pytest.mark.parametrize("name", ARCHES)
def test_twice_the_rows_take_twice_the_time_in_full_waves(name):
    arch = arch_named(name)
    # Eight columns side by side: A is read from DRAM once.
    config = replace(CONFIG, stages=min(3, arch.max_stages), swizzle=8)
    resident = resident_threadblocks(config, DType.F16, DType.F32, arch)
    rows = 128 * arch.sm_count * resident
    one, two, four = (
        without_launch_us(Gemm(m=count * rows, n=1024, k=2048), config, arch=arch)
        for count in (1, 2, 4)
    )
    assert two == pytest.approx(2 * one, rel=1e-6)
    assert four == pytest.approx(2 * two, rel=1e-6)


@pytest.mark.parametrize("name", ARCHES)
def test_a_thin_product_takes_its_bytes_over_the_bandwidth(name):
    # 64 columns: 32 FLOP for each byte of A, a fifth of what the tensor cores would want.
    arch = arch_named(name)
    problem = Gemm(m=1 << 20, n=64, k=512, b_layout=Layout.COLUMN)
    configs = enumerate_configs(problem, arch)
    best = min(
        (analysed(problem, ElementwiseGraph(), config, arch) for config in configs),
        key=lambda prediction: prediction.time_us,
    )
    bytes_moved = 2 * ((1 << 20) * (512 + 64) + 512 * 64)
    bandwidth = arch.dram_gb_per_s * 1e3 * model_constants(arch).dram_fraction
    # A cache that keeps little of A between its two halves reads a little of it twice.
    assert best.traffic.dram_bytes == pytest.approx(bytes_moved, rel=0.02)
    # H200's L2 delivers about twice what its DRAM does, and by the estimate B200's still less:
    # there both take their share.
    l2 = arch.l2_bytes_per_clock * arch.boost_mhz
    if l2 < 2.5 * bandwidth:
        assert best.bound_by in {"dram", "l2"}
        # An H200 needed 1.5 to 2.9 times as long for such products (`benchmarks/recorded`).
        most = 1.15 if l2 > 2 * bandwidth else 1.9
        assert bytes_moved / bandwidth < best.time_us < most * bytes_moved / bandwidth
    else:
        assert best.bound_by == "dram"
        assert best.time_us == pytest.approx(bytes_moved / bandwidth, rel=0.02)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(sorted(ARCHES)),
    st.integers(1, 600),
    st.integers(1, 600),
    st.integers(1, 600),
    st.randoms(use_true_random=False),
)
@example("sm_75", 21, 25, 25, Random(0))  # some of whose steps wait for memory, some for L2
def test_deeper_products_never_cost_less_and_aligned_ones_never_more(name, m, n, k, rng):
    arch = arch_named(name)
    problem = Gemm(m=8 * m, n=8 * n, k=8 * k, b_layout=Layout.COLUMN)
    config = rng.choice(enumerate_configs(problem, arch))
    aligned = analysed(problem, ElementwiseGraph(), config, arch)
    deeper = analysed(replace(problem, k=8 * k + 64), ElementwiseGraph(), config, arch)
    assert aligned.time_us <= deeper.time_us * ROUNDED
    # As many steps of K, which vectors of 4 or 8 bytes fetch. The operands are a little smaller:
    # their bytes in DRAM are all that may be saved.
    bandwidth = arch.dram_gb_per_s * 1e3 * model_constants(arch).dram_fraction
    for unaligned in (replace(problem, k=8 * k - 2), replace(problem, k=8 * k - 4)):
        narrow = analysed(unaligned, ElementwiseGraph(), config, arch)
        saved_us = (aligned.traffic.dram_bytes - narrow.traffic.dram_bytes) / bandwidth
        assert aligned.time_us - saved_us <= narrow.time_us * ROUNDED


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.sampled_from(sorted(ARCHES)))
def test_every_level_moves_at_least_what_the_next_one_does(m, n, k, name):
    arch = arch_named(name)
    problem = Gemm(m=64 * m, n=64 * n, k=64 * k, b_layout=Layout.COLUMN)
    for config in enumerate_configs(problem, arch)[::13]:
        moved = analysed(problem, ElementwiseGraph(), config, arch).traffic
        compulsory = 2 * 64 * 64 * (m * k + k * n + m * n)
        assert moved.shared_bytes >= moved.l2_bytes - 2 * 64 * 64 * m * n
        assert moved.l2_bytes >= compulsory
        assert moved.dram_bytes >= compulsory
        assert moved.intensity["dram"] == moved.flops / moved.dram_bytes
        # A square tile's intensity at L2 is the harmonic mean of its sides over 2 bytes, at most.
        tile = config.threadblock
        assert moved.intensity["l2"] <= tile.m * tile.n / (tile.m + tile.n) * ROUNDED


def test_a_residual_is_read_once_and_a_bias_costs_no_traffic():
    problem = Gemm(m=1024, n=1024, k=1024, b_layout=Layout.COLUMN)
    plain, bias, residual = (
        analysed(problem, epilogue, CONFIG, SM80).traffic
        for epilogue in (ElementwiseGraph(), biased(), biased(residual=True))
    )
    assert bias == plain
    for level in ("l2_bytes", "dram_bytes"):
        assert getattr(residual, level) - getattr(plain, level) == 2 * 1024 * 1024


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 16), st.integers(1, 40), st.integers(1, 40))
def test_more_slices_hand_over_more_partial_sums(split, m, n):
    problem = Gemm(m=128 * m, n=128 * n, k=16384, b_layout=Layout.COLUMN)
    fewer, more = (
        analysed(problem, ElementwiseGraph(), replace(CONFIG, split_k=count), SM80).traffic
        for count in (split, split + 1)
    )
    # FP32, written and read.
    assert more.l2_bytes - fewer.l2_bytes == 2 * 4 * 128 * 128 * m * n
    assert more.shared_bytes > fewer.shared_bytes


def test_products_that_share_an_operand_read_it_once():
    def dram_bytes(**shared):
        problem = Gemm(batch=16, m=256, n=256, k=256, b_layout=Layout.COLUMN, **shared)
        return analysed(problem, ElementwiseGraph(), CONFIG, SM80).traffic.dram_bytes

    one = 2 * 256 * 256
    assert dram_bytes() == 3 * 16 * one
    assert dram_bytes(b_batched=False) == (2 * 16 + 1) * one


def test_a_convolution_costs_what_its_product_does_but_for_addresses_and_pixels():
    conv = Conv2d(n=32, h=14, w=14, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1))
    as_conv, as_gemm = (
        analysed(problem, ElementwiseGraph(), CONFIG, SM80) for problem in (conv, conv.gemm)
    )
    assert as_conv.bound_by == as_gemm.bound_by == "tensor"
    assert as_gemm.time_us < as_conv.time_us
    assert as_conv.time_us <= as_gemm.time_us * model_constants(SM80).optimized_conv_factor
    pixels = 32 * 14 * 14 * 512
    assert as_conv.traffic.dram_bytes == 2 * (pixels + 9 * 512 * 512 + pixels)
    wide = replace(conv, r=33, s=3, h=60, padding=(16, 1, 16, 1))
    narrow = replace(conv, r=32, s=3, h=60, padding=(16, 1, 16, 1))
    per_step = [
        without_launch_us(problem) / problem.gemm.k / problem.p for problem in (narrow, wide)
    ]
    assert per_step[1] > 1.1 * per_step[0]


def test_a_stride_leaves_pixels_out():
    conv = Conv2d(n=8, h=56, w=56, c=256, k=512, r=1, s=1, stride=(2, 2))
    moved = analysed(conv, ElementwiseGraph(), CONFIG, SM80).traffic
    assert moved.dram_bytes == 2 * 8 * 28 * 28 * (256 + 512) + 2 * 256 * 512


@pytest.mark.parametrize(
    ("problem", "bound"),
    [
        (Gemm(m=64, n=64, k=64), "launch"),
        (Gemm(m=8192, n=8192, k=8192, b_layout=Layout.COLUMN), "tensor"),
        (Gemm(m=1 << 18, n=64, k=64, b_layout=Layout.COLUMN), "dram"),
    ],
)
def test_what_bounds_a_launch_is_said(problem, bound):
    configs = [config for config in enumerate_configs(problem, SM80) if config.split_k == 1]
    best = min(
        configs, key=lambda config: predict(problem, ElementwiseGraph(), config, SM80).time_us
    )
    prediction = predict(problem, ElementwiseGraph(), best, SM80)
    assert prediction.bound_by == bound
    shown = {"launch": "its launch", "tensor": "the tensor cores", "dram": "DRAM"}[bound]
    assert prediction.bound.startswith(f"bound by {shown}: ")
    moved = analysed(problem, ElementwiseGraph(), best, SM80).traffic
    assert prediction.bound.endswith(
        f"{problem.flops / moved.dram_bytes:.0f} FLOP for each byte of DRAM"
    )


def test_few_stages_of_a_lone_threadblock_wait_for_memory():
    small = replace(CONFIG, threadblock=Shape(64, 32, 32), warp=Shape(32, 32, 32))
    problem = Gemm(m=64, n=32, k=8192, b_layout=Layout.COLUMN)
    three, five = (
        predict(problem, ElementwiseGraph(), replace(small, stages=count), SM80) for count in (3, 5)
    )
    assert three.bound_by == "latency"
    assert five.time_us < three.time_us
