"""mbarriers: phases, arrivals and transactions; and what is said of one that cannot complete."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.harness.driver import Driver, entry
from tests.vgpu.refusals import Code, refused
from tests.vgpu.tensor_maps import HEADER

SHARED = ".shared .align 128 .b8 tile[4096]; .shared .align 8 .b64 bar;"
REGISTERS = ".reg .pred %p, %q; .reg .b32 %t, %n, %v, %a; .reg .b64 %d<4>, %s;"


@pytest.fixture
def hopper(driver: Driver) -> Iterator[Driver]:
    driver.vgpu.set_option("device", "sm_90")
    yield driver


def kernel(body: str) -> str:
    return HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)


# Four warps add to a word in turn, each in a phase of its own.
TURNS = """
    ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x; shr.u32 %n, %t, 5; mov.u32 %v, 0;
    setp.ne.u32 %p, %t, 0; @%p bra START;
    mbarrier.init.shared.b64 [bar], 128; st.shared.u32 [tile], 1;
    START: bar.sync 0;
    LOOP: setp.ne.u32 %p, %v, %n; @%p bra ARRIVE;
    and.b32 %a, %t, 31; setp.ne.u32 %q, %a, 0; @%q bra ARRIVE;
    ld.shared.u32 %a, [tile]; mul.lo.u32 %a, %a, 3; add.u32 %a, %a, %n; st.shared.u32 [tile], %a;
    ARRIVE: mbarrier.arrive.shared.b64 %s, [bar];
    WAIT: {wait} @!%q bra WAIT;
    add.u32 %v, %v, 1; setp.lt.u32 %p, %v, 4; @%p bra LOOP;
    ld.shared.u32 %a, [tile]; st.global.u32 [%d0], %a; ret;"""
WAITS = {
    "state": "mbarrier.try_wait.shared.b64 %q, [bar], %s;",
    "test": "mbarrier.test_wait.shared.b64 %q, [bar], %s;",
    "parity": "and.b32 %a, %v, 1; mbarrier.try_wait.parity.shared.b64 %q, [bar], %a;",
    "time": "and.b32 %a, %v, 1; mbarrier.try_wait.parity.shared.b64 %q, [bar], %a, 1000;",
}


@pytest.mark.parametrize("check", ["none", "all"])
@pytest.mark.parametrize("wait", WAITS)
def test_phases_follow_each_other(hopper: Driver, wait: str, check: str) -> None:
    hopper.vgpu.set_option("check", check)
    hopper.vgpu.clear_findings()
    out = hopper.buffer(np.zeros(1, np.uint32))
    hopper.run(kernel(TURNS.format(wait=WAITS[wait])), [out, 0, 0], block=(128, 1, 1))
    value = 1
    for warp in range(4):
        value = 3 * value + warp
    assert hopper.read(out)[0] == value
    assert not hopper.vgpu.findings()


def test_the_forms_of_sm_80(driver: Driver) -> None:
    wait = WAITS["test"]
    text = kernel(TURNS.format(wait=wait)).replace("sm_90a", "sm_80")
    out = driver.buffer(np.zeros(1, np.uint32))
    driver.run(text, [out, 0, 0], block=(128, 1, 1))
    assert driver.read(out)[0] == ((3 + 0) * 3 + 1) * 9 + 2 * 3 + 3


def test_a_thread_that_drops_is_not_waited_for_again(hopper: Driver) -> None:
    body = """
        ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
        @!%p mbarrier.init.shared.b64 [bar], 64; bar.sync 0;
        setp.ge.u32 %p, %t, 32; @%p mbarrier.arrive_drop.shared.b64 %s, [bar]; @%p exit;
        mbarrier.arrive.shared.b64 %s, [bar]; mbarrier.pending_count.b64 %v, %s;
        A: mbarrier.try_wait.shared.b64 %q, [bar], %s; @!%q bra A;
        mbarrier.arrive.shared.b64 %s, [bar];
        B: mbarrier.try_wait.shared.b64 %q, [bar], %s; @!%q bra B;
        mad.wide.u32 %d0, %t, 4, %d0; st.global.u32 [%d0], %v; ret;"""
    out = hopper.buffer(np.zeros(32, np.uint32))
    hopper.run(kernel(body), [out, 0, 0], block=(64, 1, 1))
    assert set(hopper.read(out).tolist()) <= set(range(1, 65))


@pytest.mark.parametrize("form", ["", ".noinc"])
def test_copies_of_cp_async_arrive(hopper: Driver, form: str) -> None:
    source = hopper.buffer(np.arange(128, dtype=np.uint32))
    out = hopper.buffer(np.zeros(128, np.uint32))
    count = 32 if form else 1
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
        @!%p mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;
        shl.b32 %n, %t, 4; mov.u32 %a, tile; add.u32 %a, %a, %n; cvt.u64.u32 %d2, %n;
        add.u64 %d1, %d1, %d2; add.u64 %d0, %d0, %d2;
        cp.async.ca.shared.global [%a], [%d1], 16;
        cp.async.mbarrier.arrive{form}.shared.b64 [bar];
        {"" if form else "@!%p mbarrier.arrive.shared.b64 %s, [bar];"}
        W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;
        ld.shared.v2.b64 {{%d2, %d3}}, [%a]; st.global.v2.b64 [%d0], {{%d2, %d3}}; ret;"""
    hopper.run(kernel(body), [out, source])
    np.testing.assert_array_equal(hopper.read(out), np.arange(128))


BULK = """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
    @%p bra W0;
    mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4096;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 4096, [bar];
    W0: bar.sync 0;
    W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;
    mov.u32 %a, tile; shl.b32 %n, %t, 2; add.u32 %a, %a, %n;
    L: ld.shared.u32 %v, [%a]; add.u32 %v, %v, 1; st.shared.u32 [%a], %v;
    add.u32 %a, %a, 128; add.u32 %t, %t, 32; setp.lt.u32 %p, %t, 1024; @%p bra L;
    fence.proxy.async.shared::cta; bar.sync 0;
    mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p exit;
    cp.async.bulk.global.shared::cta.bulk_group [%d0], [tile], 4096;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; ret;"""
INPUT = np.arange(1024, dtype=np.uint32)


def run_bulk(
    hopper: Driver, body: str, blocks: int = 1
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    out = hopper.buffer(np.zeros(1024, np.uint32))
    hopper.run(kernel(body), [out, hopper.buffer(INPUT)], grid=(blocks, 1, 1))
    return hopper.read(out)


@pytest.mark.parametrize("copies", ["late", "eager"])
@pytest.mark.parametrize("check", ["none", "all"])
def test_bytes_there_and_back(hopper: Driver, copies: str, check: str) -> None:
    hopper.vgpu.set_option("copies", copies)
    hopper.vgpu.set_option("check", check)
    hopper.vgpu.clear_findings()
    np.testing.assert_array_equal(run_bulk(hopper, BULK), INPUT + 1)
    assert not hopper.vgpu.findings()


def test_without_the_wait_the_bytes_are_not_there(hopper: Driver) -> None:
    wait = "W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;"
    assert not np.array_equal(run_bulk(hopper, BULK.replace(wait, "")), INPUT + 1)
    hopper.vgpu.set_option("copies", "eager")
    np.testing.assert_array_equal(run_bulk(hopper, BULK.replace(wait, "")), INPUT + 1)


FAULTS = [
    (
        "expect_tx.shared.b64 _, [bar], 4096",
        "expect_tx.shared.b64 _, [bar], 4160",
        Code.LAUNCH_FAILED,
        ("phase 0", "mbarrier at offset", "0 of 1 arrivals", "64 bytes"),
    ),
    (
        "expect_tx.shared.b64 _, [bar], 4096",
        "expect_tx.shared.b64 _, [bar], 4080",
        Code.LAUNCH_FAILED,
        ("phase 0", "mbarrier at offset", "16 bytes more", "expect_tx"),
    ),
    (
        "expect_tx.shared.b64 _, [bar], 4096",
        "expect_tx.shared.b64 _, [bar], 1048576",
        Code.LAUNCH_FAILED,
        ("transaction count overflow",),
    ),
    ("mbarrier.init.shared.b64 [bar], 1;", "", Code.LAUNCH_FAILED, ("no mbarrier",)),
    (
        "mbarrier.init.shared.b64 [bar], 1;",
        "mbarrier.init.shared.b64 [bar], 2;",
        Code.LAUNCH_FAILED,
        ("1 of 2 arrivals", "0 bytes"),
    ),
    (
        "mbarrier.init.shared.b64 [bar], 1;",
        "mbarrier.init.shared.b64 [bar], 0;",
        Code.LAUNCH_FAILED,
        ("count of 0",),
    ),
    (
        "[tile], [%d1], 4096, [bar]",
        "[tile], [%d1], 4088, [bar]",
        Code.LAUNCH_FAILED,
        ("4088", "16"),
    ),
    (
        "[tile], [%d1], 4096, [bar]",
        "[tile+8], [%d1], 4096, [bar]",
        Code.LAUNCH_FAILED,
        ("offset 136", "multiple of 16"),
    ),
    (
        "[tile], [%d1], 4096, [bar]",
        "[tile], [%d1+16], 4096, [bar]",
        Code.ILLEGAL_ADDRESS,
        ("global read", "4096"),
    ),
    (
        "[tile], [%d1], 4096, [bar]",
        "[tile+256], [%d1], 4096, [bar]",
        Code.ILLEGAL_ADDRESS,
        ("shared write", "4096"),
    ),
    (
        "[tile], [%d1], 4096, [bar]",
        "[tile], [%d1+8], 4080, [bar]",
        Code.MISALIGNED_ADDRESS,
        ("global read",),
    ),
    (
        "[bar], 0; @!%q bra W;",
        "[bar], 1; @!%q bra W; mbarrier.arrive.shared.b64 %s, [bar];",
        Code.LAUNCH_FAILED,
        ("arrivals", "phase"),
    ),
]


@pytest.mark.parametrize(("intact", "broken", "code", "words"), FAULTS)
def test_what_is_wrong_is_named(
    hopper: Driver, intact: str, broken: str, code: Code, words: tuple[str, ...]
) -> None:
    assert intact in BULK
    with refused(code, *words):
        run_bulk(hopper, BULK.replace(intact, broken))


RACES = [
    (
        "the wait is missing",
        "W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;",
        "",
        "access to a copy under way",
    ),
    (
        "the other phase",
        "[bar], 0; @!%q bra W;",
        "[bar], 1; @!%q bra W;",
        "access to a copy under way",
    ),
    (
        "no fence before the store",
        "fence.proxy.async.shared::cta; bar.sync 0;",
        "bar.sync 0;",
        "missing proxy fence",
    ),
    (
        "overwritten before it is read",
        "cp.async.bulk.wait_group.read 0; ret;",
        "st.shared.u32 [tile], %v; cp.async.bulk.wait_group.read 0; ret;",
        "write under a copy",
    ),
]


@pytest.mark.parametrize(
    ("intact", "broken", "kind"), [r[1:] for r in RACES], ids=[r[0] for r in RACES]
)
def test_races_with_the_async_proxy(hopper: Driver, intact: str, broken: str, kind: str) -> None:
    assert intact in BULK
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    run_bulk(hopper, BULK.replace(intact, broken))
    assert kind in {f.kind for f in hopper.vgpu.findings()}


MADE = "fence.mbarrier_init.release.cluster;"
NOT_TOLD = ["", "fence.acq_rel.cta;", "fence.proxy.async.global;", "fence.acquire.gpu;"]
TOLD = [MADE, "fence.proxy.async;", "fence.proxy.async.shared::cta;", "fence.acq_rel.cluster;"]


@pytest.mark.parametrize("fence", TOLD + NOT_TOLD)
def test_a_copy_to_an_mbarrier_that_only_the_block_knows(hopper: Driver, fence: str) -> None:
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    run_bulk(hopper, BULK.replace(MADE, fence))
    found = hopper.vgpu.findings()
    if fence in TOLD:
        assert not found
        return
    (finding,) = found
    assert finding.kind == "missing mbarrier fence"
    assert (finding.kernel, finding.block, finding.thread) == ("k", (0, 0, 0), (0, 0, 0))
    assert "cp.async.bulk" in finding.ptx
    assert (finding.space, finding.address % 8, finding.size_bytes) == ("shared", 0, 8)


# Warp 1 issues a copy to the mbarrier that warp 0 has made.
FOREIGN = """
    ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
    @!%p mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0; setp.ne.u32 %p, %t, 32; @%p bra W;
    {fence} mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4096;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 4096, [bar];
    W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W; ret;"""


@pytest.mark.parametrize(
    ("fence", "kinds"), [(MADE, {"missing mbarrier fence"}), ("fence.proxy.async;", set())]
)
def test_fence_mbarrier_init_is_for_mbarriers_of_its_own_thread(
    hopper: Driver, fence: str, kinds: set[str]
) -> None:
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    source = hopper.buffer(INPUT)
    hopper.run(kernel(FOREIGN.format(fence=fence)), [source, source], block=(64, 1, 1))
    assert {f.kind for f in hopper.vgpu.findings()} == kinds


SEEDS = range(1, 9)
# In a grid of one block all blocks are counted for a modelled time, in one of sixteen some are.
_GRIDS = (1, 16)


def want_times(driver: Driver) -> None:
    """Record an event that may be asked for a time, so that later launches are counted."""
    event = ctypes.c_void_p()
    driver.call("cuEventCreate", ctypes.byref(event), 0)
    driver.call("cuEventRecord", event, None)


@pytest.mark.parametrize("blocks", _GRIDS)
@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_a_wait_whose_answer_is_ignored(hopper: Driver, wait: str, blocks: int) -> None:
    """Waits return early under checks always, with a seed sometimes, and else never."""
    want_times(hopper)
    loop = "mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;"
    once = f"mbarrier.{wait}.parity.shared.b64 %q, [bar], 0;"
    assert loop in BULK
    np.testing.assert_array_equal(run_bulk(hopper, BULK.replace(loop, once)), INPUT + 1)
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    run_bulk(hopper, BULK.replace(loop, once), blocks)
    assert "access to a copy under way" in {f.kind for f in hopper.vgpu.findings()}
    hopper.vgpu.clear_findings()
    np.testing.assert_array_equal(run_bulk(hopper, BULK), INPUT + 1)
    assert not hopper.vgpu.findings()
    found = []
    for seed in SEEDS:
        hopper.vgpu.set_option("seed", seed)
        hopper.vgpu.clear_findings()
        run_bulk(hopper, BULK.replace(loop, once))
        found.append("access to a copy under way" in {f.kind for f in hopper.vgpu.findings()})
    assert any(found) and not all(found)


# Two copies to two mbarriers, which a warp looks at in turn until both phases are over.
IN_TURN = """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
    @%p bra READY;
    mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [other], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
    mbarrier.arrive.expect_tx.shared.b64 _, [other], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 64, [bar];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
      [tile+64], [%d1+64], 64, [other];
    READY: bar.sync 0; mov.u32 %n, 0; mov.u32 %v, 0;
    LOOK: mbarrier.test_wait.parity.shared.b64 %q, [bar], 0; selp.u32 %a, 1, 0, %q;
    or.b32 %n, %n, %a;
    mbarrier.test_wait.parity.shared.b64 %q, [other], 0; selp.u32 %a, 1, 0, %q;
    or.b32 %v, %v, %a; and.b32 %a, %n, %v; setp.eq.u32 %q, %a, 0; @%q bra LOOK;
    shl.b32 %a, %t, 2; mov.u32 %n, tile; add.u32 %n, %n, %a; ld.shared.u32 %v, [%n];
    mad.wide.u32 %d0, %t, 4, %d0; st.global.u32 [%d0], %v; ret;"""


def test_a_warp_may_look_at_two_mbarriers_in_turn(hopper: Driver) -> None:
    hopper.vgpu.set_option("check", "all")
    hopper.vgpu.clear_findings()
    values = np.arange(32, dtype=np.uint32)
    out = hopper.buffer(np.zeros(32, np.uint32))
    text = HEADER + entry(
        ["u64", "u64"], REGISTERS, IN_TURN, SHARED + " .shared .align 8 .b64 other;"
    )
    hopper.run(text, [out, hopper.buffer(values)], block=(32, 1, 1))
    np.testing.assert_array_equal(hopper.read(out), values)
    assert not hopper.vgpu.findings()


def test_waits_are_counted_alike_under_checks(hopper: Driver) -> None:
    hopper.vgpu.set_option("counters", "on")
    found = []
    for check in ("none", "all"):
        hopper.vgpu.set_option("check", check)
        hopper.vgpu.clear_launches()
        run_bulk(hopper, BULK)
        out = hopper.buffer(np.zeros(1, np.uint32))
        hopper.run(kernel(TURNS.format(wait=WAITS["test"])), [out, 0, 0], block=(128, 1, 1))
        found.append([(c["instructions"], c["modelled"]) for c in hopper.vgpu.counters()])
    assert found[0] == found[1]


@pytest.mark.parametrize("wait", WAITS)
def test_waits_that_return_early_are_repeated(hopper: Driver, wait: str) -> None:
    hopper.vgpu.set_option("check", "all")
    hopper.vgpu.clear_findings()
    turns = kernel(TURNS.format(wait=WAITS[wait]))
    for seed in SEEDS:
        hopper.vgpu.set_option("seed", seed)
        out = hopper.buffer(np.zeros(1, np.uint32))
        hopper.run(turns, [out, 0, 0], block=(128, 1, 1))
        assert hopper.read(out)[0] == ((3 + 0) * 3 + 1) * 9 + 2 * 3 + 3
        np.testing.assert_array_equal(run_bulk(hopper, BULK), INPUT + 1)
    assert not hopper.vgpu.findings()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_phase_that_never_ends_is_told_in_any_order(hopper: Driver, seed: int) -> None:
    hopper.vgpu.set_option("seed", seed)
    broken = BULK.replace("[bar], 1;", "[bar], 2;")
    with refused(Code.LAUNCH_FAILED, "1 of 2 arrivals", "0 bytes"):
        run_bulk(hopper, broken)


def test_a_store_that_nobody_waits_for(hopper: Driver) -> None:
    hopper.vgpu.set_option("check", "synccheck")
    hopper.vgpu.clear_findings()
    run_bulk(hopper, BULK.replace("cp.async.bulk.wait_group.read 0;", ""))
    (finding,) = hopper.vgpu.findings()
    assert finding.kind == "copies never waited for"
