"""Small kernels with nothing wrong in them, for the checks; tests break them."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.driver import CudaError, Driver, entry
from boltgen.device.vgpu import Finding

REGISTERS = ".reg .pred %p, %q; .reg .b32 %r<16>; .reg .f32 %f<4>; .reg .b64 %d<8>;"
SHARED = ".shared .align 16 .b8 tile[4096];"
# %d0: input of 256 words, %d1: output of 256 words, %r0: thread, %r1: block, %d2: this thread's
# place in the input, %d3: in the output, %r2: offset of this thread in `tile`.
START = """
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; add.u64 %d2, %d0, %d2;
mov.u32 %r2, tile; mad.lo.u32 %r2, %r0, 4, %r2;
"""
# Words travel through shared memory to the thread of the other end of a block of 64.
REVERSE = """
ld.global.u32 %r3, [%d2];
st.shared.u32 [%r2], %r3;
bar.sync 0;
sub.u32 %r4, 63, %r0; mov.u32 %r5, tile; mad.lo.u32 %r4, %r4, 4, %r5;
ld.shared.u32 %r6, [%r4];
add.u32 %r6, %r6, 1;
st.global.u32 [%d3], %r6; ret;
"""
ASYNC = """
mul.wide.u32 %d4, %r0, 16; add.u64 %d4, %d0, %d4;
mov.u32 %r4, tile; mad.lo.u32 %r4, %r0, 16, %r4;
cp.async.cg.shared.global [%r4], [%d4], 16;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
ld.shared.u32 %r6, [%r2];
st.global.u32 [%d3], %r6; ret;
"""
# Warp 0 makes, warp 1 takes, through barrier 1.
NAMED = """
setp.ge.u32 %p, %r0, 32; @%p bra TAKE;
st.shared.u32 [%r2], %r0;
bar.arrive 1, 64;
ret;
TAKE:
bar.sync 1, 64;
ld.shared.u32 %r6, [%r2+-128];
st.global.u32 [%d3], %r6; ret;
"""
# Block 0 fills the output, then raises a flag that block 1 waits for.
FLAG = """
add.u64 %d5, %d1, 1020; setp.eq.u32 %p, %r1, 1; @%p bra WAIT;
st.global.u32 [%d3], %r0;
bar.sync 0;
setp.ne.u32 %q, %r0, 0; @%q bra END;
membar.gl;
atom.global.exch.b32 %r7, [%d5], 1;
bra END;
WAIT:
ld.volatile.global.u32 %r7, [%d5];
setp.ne.u32 %q, %r7, 1; @%q bra WAIT;
ld.global.u32 %r8, [%d3];
st.global.u32 [%d3+256], %r8;
END: ret;
"""
SHUFFLE = """
shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
st.global.u32 [%d3], %r3; ret;
"""
OWN_WORD = """
mad.lo.u32 %r4, %r1, 64, %r0; mul.wide.u32 %d4, %r4, 4; add.u64 %d4, %d1, %d4;
st.global.u32 [%d4], %r4; ret;
"""
COUNT = "mov.u32 %r3, 1;\natom.global.add.u32 %r4, [%d1], %r3; ret;"
CHOICE = """
ld.global.u32 %r3, [%d2];
mov.u32 %r4, 5;
setp.gt.u32 %p, %r3, 100; @%p bra SKIP;
st.global.u32 [%d3], %r4;
SKIP: ret;
"""
GATHER = """
ld.global.u32 %r3, [%d2];
and.b32 %r3, %r3, 63; mul.wide.u32 %d4, %r3, 4; add.u64 %d4, %d0, %d4;
ld.global.u32 %r5, [%d4]; st.global.u32 [%d3], %r5; ret;
"""
# Lanes of a warp pass words on to each other, and then into the next lane's place.
LANES = """
and.b32 %r4, %r0, 31; ld.global.u32 %r3, [%d2]; st.shared.u32 [%r2], %r3;
bar.warp.sync 0xffffffff;
xor.b32 %r5, %r0, 1; mov.u32 %r6, tile; mad.lo.u32 %r5, %r5, 4, %r6; ld.shared.u32 %r6, [%r5];
bar.warp.sync -1;
st.shared.u32 [%r2], %r6;
bar.sync 0;
ld.shared.u32 %r6, [%r2]; st.global.u32 [%d3], %r6; ret;
"""


def run_checked(driver: Driver, body: str, grid: int = 1) -> list[Finding]:
    """Launch blocks of 64 threads, and copy the output to the host as a program would."""
    given = driver.buffer(np.arange(256, dtype=np.uint32))
    out = driver.buffer(np.zeros(256, np.uint32))
    ptx = entry(["u64", "u64"], REGISTERS, SHARED + START + body)
    try:
        driver.run(ptx, [given, out], grid=(grid, 1, 1), block=(64, 1, 1))
        driver.read(out)
    except CudaError:
        driver.vgpu.clear_error()
    found = driver.vgpu.findings()
    driver.vgpu.clear_findings()
    return found
