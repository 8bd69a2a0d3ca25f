"""The arch table: its rows are consistent, and unknown names are answered with known ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boltgen.arch import ARCHES, Arch, arch_named
from boltgen.errors import UnknownArchError


def test_the_table_has_the_promised_architectures():
    assert list(ARCHES) == ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"]
    assert Arch.named("sm_80") is ARCHES["sm_80"]
    assert [arch.cutlass_api for arch in ARCHES.values()] == [2, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_peak_is_what_the_tensor_cores_retire(arch):
    # FP16 FLOP per clock and SM. Source: NVIDIA's white papers of the four architectures.
    per_clock = {(7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096}
    peak = per_clock[arch.compute_capability] * arch.sm_count * arch.boost_mhz / 1e6
    assert arch.tensor_f32_acc_tflops == pytest.approx(peak, rel=0.015)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("80", "sm_80"),
        ("compute_80", "sm_80"),
        ("sm80", "sm_80"),
        ("8.6", "sm_86"),
        ("SM_90A", "sm_90a"),
        ("sm_9O", "sm_90"),
    ],
)
def test_a_near_miss_is_answered_with_the_right_name(name, guess):
    with pytest.raises(UnknownArchError, match=f"did you mean '{guess}'\\?"):
        arch_named(name)


@pytest.mark.parametrize("name", ["cuda", "", "sm_70", "llvm"])
def test_an_unknown_arch_lists_the_known_ones(name):
    with pytest.raises(UnknownArchError, match=r"sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a"):
        arch_named(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "ampere"}, "not like 'sm_80'"),
        ({"shared_memory_per_cta_bytes": 1 << 20}, "shared memory exceeds"),
        ({"max_stages": 1}, "stages are not"),
        ({"tensor_f32_acc_tflops": 3120}, "implausible"),
        ({"mma_shapes": ()}, "no tensor-core instruction"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ARCHES["sm_80"], **change)
