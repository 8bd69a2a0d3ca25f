"""The unit of a multiprocessor that an instruction keeps busy, and for how many clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.harness.driver import Driver, entry
from boltgen.arch import ARCHES

_COPIES = 2000
_REGISTERS = """
    .reg .b16 %h<2>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %d<2>; .reg .f64 %e<2>;
"""
_START = """
    mov.b16 %h0, 0; mov.u32 %r0, 0; mov.u32 %r1, 0; mov.f32 %f0, 0f3F800000; mov.b64 %d0, 0;
    mov.f64 %e0, 0d3FF0000000000000;
"""
# Unit, and clocks that a warp on each scheduler takes for the instruction. On sm_80 a scheduler's
# part of a unit makes 16 results of FP32 or integers a clock, 64 of FP16 and 4 special ones.
SM80 = {
    "fma.rn.f32 %f1, %f0, %f0, %f0;": ("fp32", 2),
    "add.u32 %r2, %r0, %r1;": ("integer", 2),
    "max.f32 %f1, %f0, %f0;": ("integer", 2),
    "ex2.approx.ftz.f32 %f1, %f0;": ("special", 8),
    "rsqrt.approx.f32 %f1, %f0;": ("special", 8),
    "tanh.approx.f16x2 %r2, %r0;": ("special", 16),
    "cvt.f32.f16 %f1, %h0;": ("issue", 1),
    "cvt.f32.bf16 %f1, %h0;": ("integer", 2),
    "cvt.rn.f16.f32 %h1, %f0;": ("integer", 2),
    "cvt.rn.f16x2.f32 %r2, %f0, %f0;": ("integer", 2),
    "cvt.rn.bf16x2.f32 %r2, %f0, %f0;": ("integer", 2),
    "cvt.rna.tf32.f32 %r2, %f0;": ("integer", 6),
    "cvt.sat.f32.f32 %f1, %f0;": ("fp32", 2),
    "cvt.rni.f32.f32 %f1, %f0;": ("special", 8),
    "cvt.rni.s32.f32 %r2, %f0;": ("special", 8),
    "cvt.rn.f32.s32 %f1, %r0;": ("special", 8),
    "cvt.f64.f32 %e1, %f0;": ("special", 8),
    "cvt.rn.f32.f64 %f1, %e0;": ("special", 8),
    "cvt.s32.s8 %r2, %r0;": ("integer", 2),
    "cvt.u32.u8 %r2, %r0;": ("integer", 2),
    "cvt.s64.s32 %d1, %r0;": ("integer", 2),
    "cvt.u64.u32 %d1, %r0;": ("issue", 1),
    "cvt.u16.u32 %h1, %r0;": ("issue", 1),
    "cvt.sat.s8.s32 %r2, %r0;": ("special", 8),
    "cvt.pack.sat.s8.s32.b32 %r2, %r0, %r1, %r0;": ("special", 8),
    "cvta.to.global.u64 %d1, %d0;": ("issue", 1),
}
# sm_86 has half of sm_80's FP16 and twice its FP32, so that other units are the slowest.
SM86 = {
    "fma.rn.f32 %f1, %f0, %f0, %f0;": ("issue", 1),
    "cvt.sat.f32.f32 %f1, %f0;": ("issue", 1),
    "fma.rn.f16x2 %r2, %r0, %r0, %r0;": ("fp16", 2),
    "cvt.f32.f16 %f1, %h0;": ("fp16", 2),
    "cvt.sat.f16.f16 %h1, %h0;": ("fp16", 2),
    "cvt.rn.f16.f32 %h1, %f0;": ("integer", 2),
}


@pytest.fixture
def counting(driver: Driver) -> Iterator[Driver]:
    driver.vgpu.set_option("counters", "on")
    yield driver
    driver.vgpu.set_option("counters", "off")


@pytest.mark.parametrize(
    ("arch", "instruction", "bound"),
    [
        pytest.param(arch, instruction, bound, id=f"{arch} {instruction.split()[0]}")
        for arch, table in (("sm_80", SM80), ("sm_86", SM86))
        for instruction, bound in table.items()
    ],
)
def test_unit_of_an_instruction(
    counting: Driver, arch: str, instruction: str, bound: tuple[str, int]
) -> None:
    counting.vgpu.set_option("device", arch)
    ptx = entry([], _REGISTERS, _START + _COPIES * instruction + "ret;")
    counting.run(ptx, [], block=(128, 1, 1))
    modelled = counting.vgpu.counters()[-1]["modelled"]
    clocks = modelled["us"] * ARCHES[arch].max_mhz / _COPIES
    assert modelled["bound_by"] == bound[0]
    assert clocks == pytest.approx(bound[1], rel=0.02)
