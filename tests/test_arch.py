"""The arch table: its rows are consistent, and unknown names are answered with known ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boltgen.arch import ARCHES, Arch, arch_named
from boltgen.errors import UnknownArchError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.mma_sync.model import predict
from boltgen.families.roofline import tensor_tflops
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.gemm.problem import Gemm


def test_the_table_has_the_promised_architectures():
    cutlass2 = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]
    blackwell = ["sm_100", "sm_103", "sm_120", "sm_121"]
    assert list(ARCHES) == [*cutlass2, "sm_90a", *blackwell]
    assert Arch.named("sm_80") is ARCHES["sm_80"]
    assert [name for name, arch in ARCHES.items() if arch.cutlass_api == 3] == ["sm_90a"]


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_peak_is_what_the_tensor_cores_retire(arch):
    # FP16 FLOP per clock and SM, summed in FP32. Source: NVIDIA's white papers and data sheets.
    per_clock = {(7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096}
    per_clock |= {(10, 0): 8192, (10, 3): 8192, (12, 0): 512, (12, 1): 512}
    peak = per_clock[arch.compute_capability] * arch.sm_count * arch.boost_mhz / 1e6
    assert arch.tensor_f32_acc_tflops == pytest.approx(peak, rel=0.015)


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_units_of_an_sm_are_whole(arch):
    # FP32 results each clock. Source: CUDA C++ Best Practices Guide, arithmetic throughput.
    lanes = {(7, 5): 64, (8, 0): 64}
    assert arch.fp32_per_clock == lanes.get(arch.compute_capability, 128)
    assert arch.has_async_copies == (arch.compute_capability >= (8, 0))


@pytest.mark.parametrize(
    ("name", "shared_kib", "warps", "blocks", "f16_gain"),
    [
        ("sm_100", 227, 64, 32, 1),
        ("sm_103", 227, 64, 32, 1),
        ("sm_120", 99, 48, 24, 2),
        ("sm_121", 99, 48, 24, 2),
    ],
)
def test_limits_of_blackwell(
    name: str, shared_kib: int, warps: int, blocks: int, f16_gain: int
) -> None:
    # Source: CUDA C++ Programming Guide 13.0, compute capabilities 10.x and 12.x.
    row = ARCHES[name]
    assert row.shared_memory_per_cta_bytes == shared_kib << 10
    assert (row.max_warps_per_sm, row.max_ctas_per_sm) == (warps, blocks)
    assert row.has_async_copies
    assert tensor_tflops(DType.F16, row) == f16_gain * tensor_tflops(DType.F32, row)


# Source: NVIDIA's white papers of Turing (TU102) and GA102, Appendix A: reference boost clocks.
GEFORCES = {
    "RTX 2080 Ti": replace(
        ARCHES["sm_75"],
        device="RTX 2080 Ti",
        sm_count=68,
        l2_bytes=5632 << 10,
        dram_gb_per_s=616,
        dram_bytes=11 << 30,
        dram_bus_bits=352,
        tensor_f32_acc_tflops=53.8,
        tensor_f16_acc_tflops=107.6,
        fp32_tflops=13.4,
        boost_mhz=1545,
        max_mhz=1545,
    ),
    "RTX 3090": replace(
        ARCHES["sm_86"],
        device="RTX 3090",
        sm_count=82,
        dram_gb_per_s=936,
        tensor_f32_acc_tflops=71,
        tensor_f16_acc_tflops=142,
        fp32_tflops=35.6,
        boost_mhz=1695,
        max_mhz=1695,
    ),
}


@pytest.mark.parametrize("name", GEFORCES)
def test_a_geforce_that_sums_at_half_rate_in_fp32_can_be_described(name):
    row = GEFORCES[name]
    assert tensor_tflops(DType.F16, row) == 2 * tensor_tflops(DType.F32, row)
    assert row.fp32_per_clock == ARCHES[row.name].fp32_per_clock
    config = Cutlass2Config(
        threadblock=Shape(128, 128, 32),
        warp=Shape(64, 64, 32),
        instruction=Shape(*row.mma_shapes[0]),
        stages=row.min_stages,
    )
    problem = Gemm(m=4096, n=4096, k=4096)
    wide = predict(problem, ElementwiseGraph(), config, row)
    narrow = predict(replace(problem, acc_dtype=DType.F16), ElementwiseGraph(), config, row)
    # In FP16 it is faster than the tensor cores could ever be in FP32.
    least_us = problem.flops / (row.tensor_f32_acc_tflops * 1e6)
    assert narrow.time_us < least_us < wide.time_us


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("80", "sm_80"),
        ("compute_80", "sm_80"),
        ("sm80", "sm_80"),
        ("8.6", "sm_86"),
        ("SM_90A", "sm_90a"),
        ("sm_9O", "sm_90"),
        ("100", "sm_100"),
        ("12.1", "sm_121"),
        ("sm_100a", "sm_100"),
    ],
)
def test_a_near_miss_is_answered_with_the_right_name(name, guess):
    with pytest.raises(UnknownArchError, match=f"did you mean '{guess}'\\?"):
        arch_named(name)


@pytest.mark.parametrize("name", ["cuda", "", "sm_70", "llvm"])
def test_an_unknown_arch_lists_the_known_ones(name):
    with pytest.raises(UnknownArchError, match=", ".join(ARCHES)):
        arch_named(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "ampere"}, "not like 'sm_80'"),
        ({"shared_memory_per_cta_bytes": 1 << 20}, "shared memory exceeds"),
        ({"max_stages": 1}, "stages are not"),
        ({"name": "sm_75"}, "more than two stages without asynchronous copies"),
        (
            {"tensor_f16_acc_tflops": 3120},
            "20489 FLOP per clock and SM, summed in FP16, are implausible",
        ),
        (
            {"tensor_f32_acc_tflops": 31.2},
            "205 FLOP per clock and SM, summed in FP32, are implausible",
        ),
        ({"tensor_f16_acc_tflops": 156}, "sum faster in FP32 than in FP16"),
        ({"max_mhz": 1400}, "max_mhz is below boost_mhz"),
        ({"mma_shapes": ()}, "no tensor-core instruction"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ARCHES["sm_80"], **change)
