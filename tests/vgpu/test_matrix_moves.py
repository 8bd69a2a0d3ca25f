"""stmatrix, movmatrix and elect: what a warp does with 8x8 matrices of halves, and who leads it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import CudaError, Driver, entry
from tests.vgpu.fragments import words_of

LANE = np.arange(32)


@pytest.mark.parametrize("transposed", [False, True], ids=["", "trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_to_shared_memory(driver: Driver, count: int, transposed: bool) -> None:
    rng = np.random.default_rng(count)
    matrices = rng.integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    lines = matrices.transpose(0, 2, 1) if transposed else matrices
    words = np.stack([words_of(m, 16)[LANE // 4, LANE % 4] for m in lines], axis=1)
    places = rng.permutation(8 * count)  # of the rows, 32 bytes apart
    rows = np.zeros(32, np.uint32)
    rows[: 8 * count] = 32 * places
    loads = "\n".join(f"ld.global.u32 %r{k}, [%d0+{4 * k}];" for k in range(count))
    values = ", ".join(f"%r{k}" for k in range(count))
    tail = ".trans" if transposed else ""
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
        mov.u32 %t, %tid.x; mad.wide.u32 %d0, %t, {4 * count}, %d0; {loads}
        mad.wide.u32 %d1, %t, 4, %d1; ld.global.u32 %a, [%d1]; mov.u32 %b, tile; add.u32 %a, %a, %b;
        stmatrix.sync.aligned.m8n8.x{count}{tail}.shared.b16 [%a], {{{values}}};
        bar.sync 0;
        mad.lo.u32 %b, %t, 32, %b; mad.wide.u32 %d2, %t, 16, %d2;
        ld.shared.v4.u32 {{%r0, %r1, %r2, %r3}}, [%b];
        st.global.v4.u32 [%d2], {{%r0, %r1, %r2, %r3}}; ret;"""
    registers = ".reg .b32 %t, %a, %b, %r<4>; .reg .b64 %d<3>;"
    out = driver.buffer(np.zeros((32, 8), np.uint16))
    ptx = entry(["u64"] * 3, registers, body, ".shared .align 16 .b8 tile[1024];")
    driver.run(ptx, [driver.buffer(words), driver.buffer(rows), out])
    np.testing.assert_array_equal(driver.read(out)[places].reshape(count, 8, 8), matrices)


def test_a_matrix_is_transposed_in_registers(driver: Driver) -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    words = words_of(matrix, 16)[LANE // 4, LANE % 4]
    body = """ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x; mad.wide.u32 %d0, %t, 4, %d0;
        ld.global.u32 %r0, [%d0]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;
        st.global.u32 [%d0], %r1; ret;"""
    data = driver.buffer(words)
    driver.run(entry(["u64"], ".reg .b32 %t, %r<2>; .reg .b64 %d0;", body), [data])
    expected = words_of(np.ascontiguousarray(matrix.T), 16)[LANE // 4, LANE % 4]
    np.testing.assert_array_equal(driver.read(data), expected)


def test_a_part_of_a_warp_cannot_store_matrices(driver: Driver) -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 16; mov.u32 %r1, tile;
        @%p stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r0}; ret;"""
    ptx = entry([], ".reg .pred %p; .reg .b32 %r<2>;", body, ".shared .b8 tile[1024];")
    with pytest.raises(CudaError, match="reached by a part of the warp's threads"):
        driver.run(ptx, [])


def test_one_lane_of_the_members_is_elected(driver: Driver) -> None:
    driver.vgpu.set_option("device", "sm_90")
    body = """ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x; mad.wide.u32 %d0, %t, 4, %d0;
        setp.ge.u32 %p, %t, 12; mov.u32 %r0, 99; mov.u32 %r1, 0;
        @%p elect.sync %r0|%q, 0xfffff000;
        @!%p elect.sync _|%q, 0x00000ff8;
        @%q add.u32 %r0, %r0, 1000;
        st.global.u32 [%d0], %r0; ret;"""
    out = driver.buffer(np.zeros(32, np.uint32))
    registers = ".reg .pred %p, %q; .reg .b32 %t, %r<2>; .reg .b64 %d0;"
    driver.run(entry(["u64"], registers, body), [out])
    wanted = np.where(LANE < 12, 99, 12)
    wanted[[3, 12]] += 1000
    np.testing.assert_array_equal(driver.read(out), wanted)
