"""What the checks say, and of what; the controls that each must find are beside this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.driver import Driver, entry
from boltgen.device.vgpu import Vgpu
from boltgen.errors import VgpuError
from tests.vgpu.checked_kernels import (
    FLAG,
    NAMED,
    OWN_WORD,
    REGISTERS,
    REVERSE,
    SHARED,
    START,
    run_checked,
)


def test_a_finding_says_where(checked: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    lines = '.file 1 "reverse.cu"\n'
    body = REVERSE.replace("bar.sync 0;", "").replace("ld.shared", ".loc 1 42 7\nld.shared")
    given = checked.buffer(np.arange(256, dtype=np.uint32))
    out = checked.buffer(np.zeros(256, np.uint32))
    ptx = entry(["u64", "u64"], REGISTERS, SHARED + START + body, before=lines)
    capfd.readouterr()
    for _ in range(2):
        checked.run(ptx, [given, out], block=(64, 1, 1))
    (finding,) = [f for f in checked.vgpu.findings() if f.kind == "read after write"]
    assert (finding.source, finding.source_line) == ("reverse.cu", 42)
    assert (finding.space, finding.size_bytes, finding.block) == ("shared", 4, (0, 0, 0))
    assert finding.count == 2, "once for each launch"
    text = capfd.readouterr().err
    assert text.count("racecheck: read after write: reads what warp ") == 1
    assert "thread (32,0,0), reverse.cu:42, PTX line" in text


@pytest.mark.parametrize(("value", "kinds"), [("7", []), ("%r0", ["write after write"])])
def test_warps_that_store_the_same_value_decide_nothing(
    checked: Driver, value: str, kinds: list[str]
) -> None:
    """Whoever comes first: two warps store to one word, with no barrier between the two."""
    body = f"""
    and.b32 %r4, %r0, 31; setp.ne.u32 %q, %r4, 0; mov.u32 %r5, {value};
    @!%q st.shared.u32 [tile], %r5; bar.sync 0; ret;
    """
    assert [found.kind for found in run_checked(checked, body)] == kinds


def test_padding_may_be_copied_but_not_computed_with(checked: Driver) -> None:
    copy = """
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile]; mov.b64 %d4, {%r4, %r5};
    st.global.u64 [%d1], %d4; ld.global.u32 %r8, [%d1]; shl.b32 %r8, %r8, 8;
    prmt.b32 %r8, %r8, %r8, 0x5140; {} st.global.u32 [%d1+8], %r8; ret;
    """
    assert run_checked(checked, copy.replace("{} ", "")) == []
    (finding,) = run_checked(checked, copy.replace("{} ", "add.u32 %r8, %r8, 1; "))
    assert finding.kind == "uninitialised result"
    assert "the host copies it" in finding.message


def test_only_undefined_bits_count(checked: Driver) -> None:
    kept = """
    mov.u32 %r4, 7; setp.eq.u32 %q, %r0, 0; @%q st.shared.u16 [tile], %r4;
    bar.sync 0; ld.shared.u32 %r5, [tile]; {}
    setp.eq.u32 %p, %r5, 7; @%p bra SAME; st.global.u32 [%d3], %r5; SAME: ret;
    """
    assert run_checked(checked, kept.replace("{}", "and.b32 %r5, %r5, 65535;")) == []
    found = run_checked(checked, kept.replace("{}", ""))
    assert [f.kind for f in found] == ["uninitialised branch"]


@pytest.mark.parametrize("dtype", ["f16x2", "bf16x2"])
def test_of_two_values_that_are_packed_each_half_knows_its_own(checked: Driver, dtype: str) -> None:
    # Thread 0 alone writes its word, so of the others' pairs the low half is undefined.
    pack = f"""
    setp.eq.u32 %q, %r0, 0; @%q st.shared.u32 [%r2], %r0; bar.sync 0;
    ld.shared.f32 %f1, [%r2]; cvt.rn.f32.u32 %f0, %r0; cvt.rn.{dtype}.f32 %r3, %f0, %f1;
    {{}} st.global.u16 [%d3], %r3; ret;
    """
    assert run_checked(checked, pack.replace("{}", "shr.u32 %r3, %r3, 16;")) == []
    (finding,) = run_checked(checked, pack.replace("{}", ""))
    assert finding.kind == "uninitialised result"


def test_memory_that_nothing_wrote_is_known_across_copies(checked: Driver) -> None:
    body = "ld.global.u32 %r3, [%d2]; add.u32 %r3, %r3, 1; st.global.u32 [%d3], %r3; ret;"
    ptx = entry(["u64", "u64"], REGISTERS, SHARED + START + body)
    fresh = checked.allocate(1024)
    other = checked.allocate(1024)
    out = checked.buffer(np.zeros(256, np.uint32))
    checked.copy(other, fresh)
    checked.run(ptx, [other, out], block=(64, 1, 1))
    assert checked.vgpu.findings() == [], "nothing has looked at the result"
    checked.read(out)
    (finding,) = checked.vgpu.findings()
    assert (finding.check, finding.kind) == ("initcheck", "uninitialised result")
    assert finding.space == "global"
    assert finding.address == other.address
    assert "lies in the 1024-byte allocation #" in finding.message
    checked.vgpu.clear_findings()
    checked.fill(other, 3)
    checked.run(ptx, [other, out], block=(64, 1, 1))
    checked.read(out)
    assert checked.vgpu.findings() == []


def test_an_undefined_value_is_traced_to_the_kernel_that_read_it_first(checked: Driver) -> None:
    body = "ld.global.u32 %r3, [%d2]; add.u32 %r3, %r3, 1; st.global.u32 [%d3], %r3; ret;"
    ptx = entry(["u64", "u64"], REGISTERS, SHARED + START + body)
    fresh = checked.allocate(1024)
    between = checked.buffer(np.zeros(256, np.uint32))
    out = checked.buffer(np.zeros(256, np.uint32))
    checked.run(ptx.replace("entry k(", "entry first("), [fresh, between], kernel="first")
    checked.run(ptx.replace("entry k(", "entry later("), [between, out], kernel="later")
    checked.read(out)
    (finding,) = checked.vgpu.findings()
    assert (finding.kernel, finding.address) == ("first", fresh.address)


def test_leaks_are_what_is_still_allocated(checked: Driver) -> None:
    before = checked.vgpu.leaks()
    buffer = checked.buffer(np.zeros(100, np.uint32))
    (leak,) = [one for one in checked.vgpu.leaks() if one not in before]
    assert (leak.address, leak.size_bytes) == (buffer.address, 400)
    checked.free(buffer)
    assert checked.vgpu.leaks() == before


LEAKING = """
import ctypes, os
cudart = ctypes.CDLL({library!r})
pointer = ctypes.c_void_p()
for size in (96, 160):
    cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
cudart.cudaFree(pointer)
"""


def test_leaks_are_reported_at_the_end(library_folder: Path) -> None:
    program = LEAKING.format(library=str(library_folder / "libcudart.so.13"))
    command = [sys.executable, "-c", program]
    for check, wanted in (("memcheck,racecheck", 1), ("none", 0)):
        environment = {"PATH": "/usr/bin:/bin", "BOLTGEN_VGPU": f"threads=1,check={check}"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert done.stderr.count("memcheck: leak: at the end the 96-byte allocation #") == wanted, (
            done.stderr
        )
        assert "160-byte" not in done.stderr


def test_a_lock_between_lanes_of_a_warp_is_a_deadlock(checked: Driver) -> None:
    body = """
    add.u64 %d5, %d1, 1020;
    TRY: atom.global.cas.b32 %r3, [%d5], 0, 1; setp.ne.u32 %p, %r3, 0; @%p bra TRY;
    atom.global.exch.b32 %r4, [%d5], 0; ret;
    """
    (finding,) = run_checked(checked, body)
    assert finding.check == "deadlock"
    assert "block (0,0,0): warps 0 to 1 in a loop at PTX line" in finding.message


def test_a_deadlock_lists_where_every_warp_waits(checked: Driver) -> None:
    (finding,) = run_checked(checked, NAMED.replace("bar.arrive 1, 64;", ""))
    assert "warp 0 has ended; warp 1 at barrier 1, where 32 of 64 threads have come" in (
        finding.message
    )
    broken = FLAG.replace("%r7, [%d5], 1;", "%r7, [%d5], 2;")
    (finding,) = run_checked(checked, broken, grid=2)
    assert "deadlock: no block can go on: block (1,0,0): warps 0 to 1 in a loop" in finding.message


def test_a_time_limit_ends_what_does_not_end(checked: Driver, vgpu: Vgpu) -> None:
    vgpu.set_option("timeout", 1)
    (finding,) = run_checked(
        checked, "AGAIN: add.u32 %r3, %r3, 1; bra AGAIN;".replace("%r3", "%r1")
    )
    assert finding.message.startswith("the time limit of 1 s is over: block (0,0,0): warp")


def test_a_seed_repeats_a_random_order(checked: Driver, vgpu: Vgpu) -> None:
    body = "atom.global.add.u32 %r3, [%d1+1020], 1; mov.u32 %r4, %tid.x;\n" + OWN_WORD.replace(
        "st.global.u32 [%d4], %r4;", "st.global.u32 [%d4], %r3;"
    )
    ptx = entry(["u64", "u64"], REGISTERS, SHARED + START + body)

    def order(seed: int) -> list[int]:
        vgpu.set_option("seed", seed)
        out = checked.buffer(np.zeros(256, np.uint32))
        checked.run(ptx, [out, out], grid=(3, 1, 1), block=(64, 1, 1))
        return [int(x) for x in checked.read(out)[:192]]

    assert order(0) == list(range(192))
    assert order(7) == order(7)
    assert len({tuple(order(seed)) for seed in range(1, 6)}) > 1
    assert sorted(order(3)) == list(range(192))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_blocks_that_wait_for_those_before_them_end(checked: Driver, vgpu: Vgpu, seed: int) -> None:
    # A serial split-K waits so. The only multiprocessor holds sixteen of the forty blocks.
    body = """
    mov.u32 %r3, %ctaid.x;
    WAIT: ld.acquire.gpu.global.u32 %r4, [%d1]; setp.ne.u32 %p, %r4, %r3; @%p bra WAIT;
    bar.sync 0; setp.ne.u32 %q, %r0, 0; @%q bra END;
    add.u32 %r4, %r3, 1; st.release.gpu.global.u32 [%d1], %r4; END: ret;
    """
    turn = checked.buffer(np.zeros(1, np.uint32))
    vgpu.set_option("seed", seed)
    vgpu.set_option("sms", 1)
    try:
        ptx = entry(["u64"], REGISTERS, "ld.param.u64 %d1, [p0]; mov.u32 %r0, %tid.x;" + body)
        checked.run(ptx, [turn], grid=(40, 1, 1), block=(128, 1, 1))
    finally:
        vgpu.set_option("sms", 0)
    assert checked.vgpu.findings() == []
    assert checked.read(turn).view(np.uint32)[0] == 40


def test_options_of_checks_are_checked(vgpu: Vgpu) -> None:
    with pytest.raises(VgpuError, match=r"check=speed: know memcheck, initcheck"):
        vgpu.set_option("check", "memcheck,speed")
    with pytest.raises(VgpuError, match="seed=x: want a number"):
        vgpu.set_option("seed", "x")
    with pytest.raises(VgpuError, match="timeout=-1: want a number of seconds"):
        vgpu.set_option("timeout", -1)
