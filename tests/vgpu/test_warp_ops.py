"""Warps and blocks: shuffles, votes, divergence, calls, barriers and matrix instructions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver, entry

REGISTERS = """
.reg .pred %p, %q, %s; .reg .b16 %h<4>; .reg .b32 %r<40>; .reg .b64 %d<8>; .reg .f32 %f<8>;
"""
START = """
mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, %r1, %r0;
ld.param.u64 %d0, [p0]; mad.wide.u32 %d1, %r3, 4, %d0;
"""
SENTINEL = 0xABCD


def per_thread(
    driver: Driver, body: str, *, threads: int = 32, blocks: int = 1, before: str = ""
) -> Array:
    """Run `body`, which leaves each thread's answer in %r9; threads that end keep the sentinel."""
    out = driver.buffer(np.full(threads * blocks, SENTINEL, np.uint32))
    ptx = entry(["u64"], REGISTERS, START + body + "\nst.global.u32 [%d1], %r9; ret;", before)
    driver.run(ptx, [out], grid=(blocks, 1, 1), block=(threads, 1, 1))
    return driver.read(out)


def _source(mode: str, lane: int, n: int, clamp: int, segment: int) -> tuple[int, bool]:
    lowest = lane & segment
    highest = lowest | (clamp & ~segment & 31)
    if mode == "idx":
        source = lowest | (n & ~segment & 31)
        inside = source <= highest
    elif mode == "up":
        source, inside = lane - n, lane - n >= highest
    elif mode == "down":
        source, inside = lane + n, lane + n <= highest
    else:
        source, inside = lane ^ n, lane ^ n <= highest
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("control", [0x1F, 0x181F, 0x1C1F, 0x0007])
def test_shuffle(driver: Driver, mode: str, control: int) -> None:
    if mode == "up":
        control &= ~0x1F  # its clamp is the lowest lane
    for n in (0, 1, 5, 16, 31):
        body = f"""mul.lo.u32 %r4, %r0, 3; add.u32 %r4, %r4, 7;
        shfl.sync.{mode}.b32 %r9|%p, %r4, {n}, {control}, 0xffffffff; selp.b32 %r5, 1000, 0, %p;
        add.u32 %r9, %r9, %r5;"""
        expected = []
        for lane in range(32):
            source, inside = _source(mode, lane, n, control & 31, control >> 8 & 31)
            expected.append(3 * source + 7 + 1000 * inside)
        assert per_thread(driver, body).tolist() == expected


def test_votes_reductions_and_matches(driver: Driver) -> None:
    third = "rem.u32 %r4, %r0, 3; setp.eq.u32 %p, %r4, 1;"
    lanes = [lane for lane in range(32) if lane % 3 == 1]
    ballot = sum(1 << lane for lane in lanes)
    assert (per_thread(driver, third + "vote.sync.ballot.b32 %r9, %p, -1;") == ballot).all()
    select = "selp.b32 %r9, 1, 0, %q;"
    assert (per_thread(driver, third + "vote.sync.any.pred %q, %p, -1;" + select) == 1).all()
    assert (per_thread(driver, third + "vote.sync.all.pred %q, %p, -1;" + select) == 0).all()
    assert (per_thread(driver, third + "vote.sync.uni.pred %q, %p, -1;" + select) == 0).all()
    assert (per_thread(driver, third + "redux.sync.add.u32 %r9, %r0, -1;") == 496).all()
    assert (per_thread(driver, third + "redux.sync.max.s32 %r9, %r0, -1;") == 31).all()
    assert (per_thread(driver, third + "redux.sync.xor.b32 %r9, %r0, -1;") == 0).all()
    found = per_thread(driver, third + "match.any.sync.b32 %r9, %r4, -1;")
    for lane in range(32):
        assert found[lane] == sum(1 << k for k in range(32) if k % 3 == lane % 3)
    inside = f"""mov.u32 %r9, 0; {third} @!%p bra OUT; activemask.b32 %r9;
    match.all.sync.b32 %r5|%q, %r4, %r9; selp.b32 %r6, 0, 1, %q; shl.b32 %r6, %r6, 31;
    or.b32 %r9, %r5, %r6; OUT:"""
    assert per_thread(driver, inside).tolist() == [ballot * (k % 3 == 1) for k in range(32)]


def _collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def test_divergent_loops_and_nested_branches(driver: Driver) -> None:
    body = """
    mov.u32 %r9, 0; mov.u32 %r4, %r3;
    LOOP: setp.le.u32 %p, %r4, 1; @%p bra DONE;
    and.b32 %r5, %r4, 1; setp.eq.u32 %q, %r5, 0; @%q bra EVEN;
    mad.lo.u32 %r4, %r4, 3, 1; bra.uni NEXT;
    EVEN: shr.u32 %r4, %r4, 1;
    NEXT: add.u32 %r9, %r9, 1; bra LOOP;
    DONE: activemask.b32 %r6; popc.b32 %r6, %r6; shl.b32 %r6, %r6, 16; or.b32 %r9, %r9, %r6;
    """
    found = per_thread(driver, body, threads=96, blocks=3)
    assert (found & 0xFFFF).tolist() == [_collatz(n) for n in range(288)]
    assert (found >> 16 == 32).all(), "the lanes must have met again"


def test_threads_that_leave_do_not_disturb_the_others(driver: Driver) -> None:
    body = """
    setp.ge.u32 %p, %r0, 40; @%p exit; rem.u32 %r4, %r0, 4; setp.eq.u32 %q, %r4, 2; @%q ret;
    bar.sync 0; add.u32 %r9, %r0, 100;
    """
    found = per_thread(driver, body, threads=100)
    stays = [t < 40 and t % 4 != 2 for t in range(100)]
    assert found.tolist() == [t + 100 if stay else SENTINEL for t, stay in enumerate(stays)]


def test_indexed_branch_and_calls(driver: Driver) -> None:
    before = """
    .func (.param .b32 result) twice(.param .b32 x)
    { .reg .pred %p; .reg .b32 %r<4>; ld.param.u32 %r1, [x]; setp.gt.u32 %p, %r1, 20;
      @%p bra BIG; shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret;
      BIG: st.param.b32 [result+0], 5; ret; }
    """
    body = """
    rem.u32 %r4, %r0, 5;
    TABLE: .branchtargets CASE0, CASE1, CASE0, CASE3;
    mov.u32 %r9, 900; setp.lt.u32 %p, %r4, 4; @%p brx.idx %r4, TABLE;
    bra.uni END;
    CASE0: mov.u32 %r9, 10; bra.uni END;
    CASE1: mov.u32 %r9, 11; bra.uni END;
    CASE3: { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call.uni (b), twice, (a);
    ld.param.b32 %r9, [b]; }
    END:
    """
    expected = []
    for t in range(32):
        called = 5 if t > 20 else 2 * t
        expected.append({0: 10, 1: 11, 2: 10, 3: called, 4: 900}[t % 5])
    assert per_thread(driver, body, before=before).tolist() == expected


def test_inline_assembly_scopes_may_reuse_names(driver: Driver) -> None:
    one = "{ .reg .pred p; .reg.b32 t; add.u32 t, %r9, %r0; setp.gt.u32 p, t, 50; \
    @p bra SKIP; mov.u32 %r9, t; SKIP: }"
    found = per_thread(driver, "mov.u32 %r9, 1;" + one + one + one)
    expected = []
    for t in range(32):
        value = 1
        for _ in range(3):
            value = value if value + t > 50 else value + t
        expected.append(value)
    assert found.tolist() == expected


def test_barriers_exchange_and_reduce(driver: Driver) -> None:
    body = """
    .shared .align 4 .b8 tile[1024]; mov.u32 %r4, tile; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5;
    st.shared.u32 [%r4], %r0; bar.sync 0;
    sub.u32 %r6, 255, %r0; shl.b32 %r6, %r6, 2; mov.u32 %r7, tile; add.u32 %r7, %r7, %r6;
    ld.shared.u32 %r9, [%r7]; setp.gt.u32 %p, %r0, 99;
    bar.red.popc.u32 %r8, 0, %p; add.u32 %r9, %r9, %r8;
    bar.red.and.pred %q, 1, 256, %p; selp.b32 %r8, 1000, 0, %q; add.u32 %r9, %r9, %r8;
    bar.red.or.pred %q, 0, !%p; selp.b32 %r8, 2000, 0, %q; add.u32 %r9, %r9, %r8;
    """
    found = per_thread(driver, body, threads=256, blocks=2)
    assert found.tolist() == [255 - t + 156 + 2000 for _ in range(2) for t in range(256)]


def test_half_the_warps_feed_the_other_half(driver: Driver) -> None:
    body = """
    .shared .align 4 .b8 cell[128]; mov.u32 %r4, cell; setp.ge.u32 %p, %r0, 32;
    and.b32 %r5, %r0, 31; shl.b32 %r5, %r5, 2; add.u32 %r4, %r4, %r5; mov.u32 %r9, 0;
    @%p bra CONSUMER; st.shared.u32 [%r4], %r0; bar.arrive 1, 64; bra.uni END;
    CONSUMER: bar.sync 1, 64; ld.shared.u32 %r9, [%r4]; END:
    """
    assert per_thread(driver, body, threads=64).tolist() == [0] * 32 + list(range(32))


def test_a_missing_barrier_changes_the_result(driver: Driver) -> None:
    def reversed_tile(barrier: str) -> Array:
        return per_thread(
            driver,
            f"""
            .shared .align 4 .b8 tile[256]; mov.u32 %r4, tile; shl.b32 %r5, %r0, 2;
            add.u32 %r6, %r4, %r5; st.shared.u32 [%r6], %r0; {barrier}
            sub.u32 %r7, 252, %r5; add.u32 %r7, %r4, %r7; ld.shared.u32 %r9, [%r7];
            """,
            threads=64,
        )

    assert reversed_tile("bar.sync 0;").tolist() == list(range(63, -1, -1))
    assert (reversed_tile("")[:32] == 0xFFFFFFFF).all()


def test_a_block_may_wait_for_a_later_one(driver: Driver) -> None:
    before = ".global .align 4 .u32 flag;"
    body = """
    setp.ne.u32 %p, %r2, 0; mov.u64 %d2, flag; mov.u32 %r9, %r2; @%p bra SET;
    SPIN: ld.global.acquire.gpu.b32 %r4, [%d2]; setp.ne.u32 %q, %r4, 3; @%q bra SPIN;
    bra.uni END;
    SET: setp.eq.u32 %s, %r0, 0; @%s red.release.gpu.global.add.u32 [%d2], 1; END:
    """
    driver.vgpu.set_option("threads", 1)
    assert per_thread(driver, body, blocks=4, before=before)[::32].tolist() == [0, 1, 2, 3]
    driver.vgpu.set_option("threads", 2)


def test_a_barrier_that_cannot_open_is_reported(driver: Driver) -> None:
    with pytest.raises(CudaError, match=r"deadlock.*block \(0,0,0\).*bar.sync 1, 96") as caught:
        per_thread(driver, "bar.sync 1, 96;\n mov.u32 %r9, 0;", threads=64)
    assert caught.value.code == 719


def test_a_barrier_in_half_a_warp_is_reported(driver: Driver) -> None:
    body = "setp.lt.u32 %p, %r0, 16; @%p bra HALF; bra END; HALF: bar.sync 0; END: mov.u32 %r9, 0;"
    with pytest.raises(CudaError, match="reached by a part of the warp's threads"):
        per_thread(driver, body)
