"""Cooperative launches: every block runs at once, and may wait for all the others."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Buffer, Driver, entry
from tests.vgpu.refusals import Code, refused

# What cooperative_groups::grid_group::sync compiles to; the barrier's words are where %envreg says.
GRID_BARRIER = """
mov.u32 %w0, %envreg2; mov.u32 %w1, %envreg1; mov.b64 %at, {{%w0, %w1}};
setp.eq.u64 %none, %at, 0; @%none trap;
bar.sync 0;
mov.u32 %w2, %tid.x; setp.ne.u32 %p, %w2, 0; @%p bra MET{n};
mov.u32 %w3, %ctaid.x; mov.u32 %w4, %nctaid.x; sub.u32 %w4, 0x80000001, %w4;
setp.eq.u32 %p, %w3, 0; selp.b32 %w4, %w4, 1, %p;
atom.add.release.gpu.u32 %w5, [%at+4], %w4;
POLL{n}: ld.acquire.gpu.u32 %w6, [%at+4]; xor.b32 %w6, %w6, %w5;
setp.gt.s32 %p, %w6, -1; @%p bra POLL{n};
MET{n}: bar.sync 0;
"""
REGISTERS = ".reg .pred %p, %none; .reg .b32 %w<8>, %r<16>; .reg .b64 %at, %d<4>;"


def _rotations(rounds: int) -> str:
    """Every thread takes the value of the next block's thread, `rounds` times over."""
    body = """ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x; mov.u32 %r3, %nctaid.x; mul.lo.u32 %r5, %r2, %r3;
    mad.lo.u32 %r4, %r1, %r2, %r0; mad.wide.u32 %d1, %r4, 4, %d0; st.global.u32 [%d1], %r4;
    add.u32 %r6, %r4, %r2; rem.u32 %r6, %r6, %r5; mad.wide.u32 %d2, %r6, 4, %d0;
    """
    for n in range(rounds):
        body += GRID_BARRIER.format(n=f"A{n}") + "ld.global.u32 %r7, [%d2];"
        body += GRID_BARRIER.format(n=f"B{n}") + "st.global.u32 [%d1], %r7;"
    return entry(["u64"], REGISTERS, body + "ret;")


def _launch(driver: Driver, ptx: str, out: Buffer, blocks: int, threads: int) -> Array:
    pointers = (ctypes.c_void_p * 1)()
    value = ctypes.c_uint64(out.address)
    pointers[0] = ctypes.addressof(value)
    function = driver.function(driver.load(ptx), "k")
    shape = (blocks, 1, 1, threads, 1, 1, 0)
    driver.call("cuLaunchCooperativeKernel", function, *shape, None, pointers)
    driver.call("cuCtxSynchronize")
    return driver.read(out)


@pytest.mark.parametrize("host_threads", [1, 2])
@pytest.mark.parametrize("blocks", [1, 7, 200])
def test_blocks_meet_at_the_grid_barrier(driver: Driver, blocks: int, host_threads: int) -> None:
    driver.vgpu.set_option("threads", host_threads)
    out = driver.buffer(np.zeros(64 * blocks, np.uint32))
    found = _launch(driver, _rotations(3), out, blocks, 64)
    driver.vgpu.set_option("threads", 2)
    np.testing.assert_array_equal(found, np.roll(np.arange(64 * blocks), -3 * 64))


def test_a_grid_that_does_not_fit_the_device_is_refused(driver: Driver) -> None:
    out = driver.buffer(np.zeros(1, np.uint32))
    with refused(Code.COOPERATIVE_TOO_LARGE, "4000"):
        _launch(driver, _rotations(1), out, 4000, 1024)


def test_the_barrier_traps_in_an_ordinary_launch(driver: Driver) -> None:
    out = driver.buffer(np.zeros(64, np.uint32))
    with refused(Code.LAUNCH_FAILED, "trap", "kernel"):
        driver.run(_rotations(1), [out], block=(64, 1, 1))


def test_blocks_may_wait_for_as_many_later_ones_as_the_device_runs(driver: Driver) -> None:
    """All wait for the last of 500 without a cooperative launch, as stream-K kernels may."""
    body = """ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p, %r1, 499;
    @%p bra WAIT; mov.u32 %r2, 1; st.release.gpu.global.u32 [%d0], %r2; bra END;
    WAIT: ld.acquire.gpu.global.u32 %r3, [%d0]; setp.eq.u32 %p, %r3, 0; @%p bra WAIT;
    END: ret;"""
    driver.vgpu.set_option("threads", 1)
    out = driver.buffer(np.zeros(1, np.uint32))
    driver.run(entry(["u64"], REGISTERS, body), [out], grid=(500, 1, 1))
    driver.vgpu.set_option("threads", 2)
    assert driver.read(out)[0] == 1
