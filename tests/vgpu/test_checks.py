"""Negative controls: each broken kernel is found by its check, and the intact one by none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from boltgen.errors import VgpuError
from boltgen.runtime.vgpu import Finding, Vgpu
from tests.vgpu.driver import CudaError, Driver, entry

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


@dataclass(frozen=True)
class Control:
    """A kernel, how it is broken, and what must be said of it then."""

    name: str
    body: str
    intact: str
    broken: str
    check: str
    kind: str
    grid: int = 1


CONTROLS = [
    Control("barrier deleted", REVERSE, "bar.sync 0;", "", "racecheck", "read after write"),
    Control(
        "barrier before the store",
        REVERSE,
        "st.shared.u32 [%r2], %r3;\nbar.sync 0;",
        "bar.sync 0;\nst.shared.u32 [%r2], %r3;",
        "racecheck",
        "read after write",
    ),
    Control(
        "half of the tile not stored",
        REVERSE,
        "st.shared.u32 [%r2], %r3;",
        "setp.lt.u32 %p, %r0, 32; @%p st.shared.u32 [%r2], %r3;",
        "initcheck",
        "uninitialised result",
    ),
    Control(
        "store beyond shared memory",
        REVERSE,
        "st.shared.u32 [%r2], %r3;",
        "st.shared.u32 [%r2+4096], %r3;",
        "memcheck",
        "out of bounds",
    ),
    Control(
        "misaligned load",
        REVERSE,
        "ld.global.u32 %r3, [%d2];",
        "ld.global.u32 %r3, [%d2+2];",
        "memcheck",
        "misaligned",
    ),
    Control(
        "barrier in one branch",
        REVERSE,
        "bar.sync 0;",
        "setp.lt.u32 %p, %r0, 7; @%p bra IN; bra OUT; IN: bar.sync 0; OUT: mov.u32 %r9, 0;",
        "synccheck",
        "divergence",
    ),
    Control(
        "register never written",
        REVERSE,
        "add.u32 %r6, %r6, 1;",
        "add.u32 %r6, %r6, %r13;",
        "initcheck",
        "uninitialised result",
    ),
    Control(
        "wait deleted",
        ASYNC,
        "cp.async.wait_group 0;",
        "",
        "racecheck",
        "access to a copy under way",
    ),
    Control(
        "wait off by one",
        ASYNC,
        "wait_group 0",
        "wait_group 1",
        "racecheck",
        "access to a copy under way",
    ),
    Control(
        "copy never waited for",
        ASYNC,
        "cp.async.wait_group 0;\nbar.sync 0;\nld.shared.u32 %r6, [%r2];",
        "mov.u32 %r6, 0;",
        "synccheck",
        "copies never waited for",
    ),
    Control("barrier after a copy deleted", ASYNC, "bar.sync 0;", "", "racecheck", ""),
    Control("arrival before the store", NAMED, "bar.arrive 1, 64;", "", "deadlock", "deadlock"),
    Control("another barrier", NAMED, "bar.sync 1", "bar.sync 2", "deadlock", "deadlock"),
    Control(
        "another count", NAMED, "bar.arrive 1, 64", "bar.arrive 1, 96", "synccheck", "barrier count"
    ),
    Control("reader does not wait", NAMED, "bar.sync 1, 64;", "", "racecheck", "read after write"),
    Control("fence deleted", FLAG, "membar.gl;", "", "racecheck", "read after write", grid=2),
    Control(
        "flag not waited for",
        FLAG,
        "ld.volatile.global.u32 %r7, [%d5];",
        "mov.u32 %r7, 1;",
        "racecheck",
        "read after write",
        grid=2,
    ),
    Control(
        "flag never raised", FLAG, "%r7, [%d5], 1;", "%r7, [%d5], 2;", "deadlock", "deadlock", 2
    ),
    Control(
        "first __syncwarp deleted",
        LANES,
        "bar.warp.sync 0xffffffff;",
        "",
        "racecheck",
        "read after write",
    ),
    Control(
        "second __syncwarp deleted", LANES, "bar.warp.sync -1;", "", "racecheck", "write after read"
    ),
    Control(
        "__syncwarp of other lanes",
        LANES,
        "bar.warp.sync 0xffffffff;",
        "setp.lt.u32 %p, %r4, 16; @%p bar.warp.sync 0xffff;",
        "racecheck",
        "read after write",
    ),
    Control(
        "lanes that do not come",
        SHUFFLE,
        "shfl",
        "setp.lt.u32 %p, %r0, 9; @%p shfl",
        "synccheck",
        "missing lanes",
    ),
    Control(
        "blocks write one word",
        OWN_WORD,
        "st.global.u32 [%d4]",
        "st.global.u32 [%d3]",
        "racecheck",
        "write after write",
        grid=2,
    ),
    Control(
        "no atomic",
        COUNT,
        "atom.global.add.u32 %r4, [%d1], %r3;",
        "ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r1; st.global.u32 [%d1], %r4;",
        "racecheck",
        "",
        grid=3,
    ),
    Control(
        "condition never written",
        CHOICE,
        "ld.global.u32 %r3, [%d2];",
        "ld.shared.u32 %r3, [%r2];",
        "initcheck",
        "uninitialised branch",
    ),
    Control(
        "index never written",
        GATHER,
        "ld.global.u32 %r3, [%d2];",
        "ld.shared.u32 %r3, [%r2];",
        "initcheck",
        "uninitialised address",
    ),
]


@pytest.fixture
def checked(driver: Driver, vgpu: Vgpu) -> Iterator[Driver]:
    vgpu.set_option("check", "all")
    vgpu.clear_findings()
    yield driver
    vgpu.clear_findings()


def _run(driver: Driver, body: str, grid: int = 1) -> list[Finding]:
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


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_the_check_that_is_meant_finds_it(checked: Driver, control: Control) -> None:
    assert _run(checked, control.body, control.grid) == []
    assert control.intact in control.body
    found = _run(checked, control.body.replace(control.intact, control.broken), control.grid)
    meant = [f for f in found if f.check == control.check and control.kind in f.kind]
    assert meant, [f.message for f in found]
    for finding in meant:
        assert finding.kernel == "k"
        assert finding.ptx_line > 0
        assert f"PTX line {finding.ptx_line}: {finding.ptx}" in finding.message


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


def test_padding_may_be_copied_but_not_computed_with(checked: Driver) -> None:
    copy = """
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [tile]; mov.b64 %d4, {%r4, %r5};
    st.global.u64 [%d1], %d4; ld.global.u32 %r8, [%d1]; shl.b32 %r8, %r8, 8;
    prmt.b32 %r8, %r8, %r8, 0x5140; {} st.global.u32 [%d1+8], %r8; ret;
    """
    assert _run(checked, copy.replace("{} ", "")) == []
    (finding,) = _run(checked, copy.replace("{} ", "add.u32 %r8, %r8, 1; "))
    assert finding.kind == "uninitialised result"
    assert "the host copies it" in finding.message


def test_only_undefined_bits_count(checked: Driver) -> None:
    kept = """
    mov.u32 %r4, 7; setp.eq.u32 %q, %r0, 0; @%q st.shared.u16 [tile], %r4;
    bar.sync 0; ld.shared.u32 %r5, [tile]; {}
    setp.eq.u32 %p, %r5, 7; @%p bra SAME; st.global.u32 [%d3], %r5; SAME: ret;
    """
    assert _run(checked, kept.replace("{}", "and.b32 %r5, %r5, 65535;")) == []
    found = _run(checked, kept.replace("{}", ""))
    assert [f.kind for f in found] == ["uninitialised branch"]


@pytest.mark.parametrize("dtype", ["f16x2", "bf16x2"])
def test_of_two_values_that_are_packed_each_half_knows_its_own(checked: Driver, dtype: str) -> None:
    # Thread 0 alone writes its word, so of the others' pairs the low half is undefined.
    pack = f"""
    setp.eq.u32 %q, %r0, 0; @%q st.shared.u32 [%r2], %r0; bar.sync 0;
    ld.shared.f32 %f1, [%r2]; cvt.rn.f32.u32 %f0, %r0; cvt.rn.{dtype}.f32 %r3, %f0, %f1;
    {{}} st.global.u16 [%d3], %r3; ret;
    """
    assert _run(checked, pack.replace("{}", "shr.u32 %r3, %r3, 16;")) == []
    (finding,) = _run(checked, pack.replace("{}", ""))
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
    (finding,) = _run(checked, body)
    assert finding.check == "deadlock"
    assert "block (0,0,0): warps 0 to 1 in a loop at PTX line" in finding.message


def test_a_deadlock_lists_where_every_warp_waits(checked: Driver) -> None:
    (finding,) = _run(checked, NAMED.replace("bar.arrive 1, 64;", ""))
    assert "warp 0 has ended; warp 1 at barrier 1, where 32 of 64 threads have come" in (
        finding.message
    )
    broken = FLAG.replace("%r7, [%d5], 1;", "%r7, [%d5], 2;")
    (finding,) = _run(checked, broken, grid=2)
    assert "deadlock: no block can go on: block (1,0,0): warps 0 to 1 in a loop" in finding.message


def test_a_time_limit_ends_what_does_not_end(checked: Driver, vgpu: Vgpu) -> None:
    vgpu.set_option("timeout", 1)
    (finding,) = _run(checked, "AGAIN: add.u32 %r3, %r3, 1; bra AGAIN;".replace("%r3", "%r1"))
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


def test_options_of_checks_are_checked(vgpu: Vgpu) -> None:
    with pytest.raises(VgpuError, match=r"check=speed: know memcheck, initcheck"):
        vgpu.set_option("check", "memcheck,speed")
    with pytest.raises(VgpuError, match="seed=x: want a number"):
        vgpu.set_option("seed", "x")
    with pytest.raises(VgpuError, match="timeout=-1: want a number of seconds"):
        vgpu.set_option("timeout", -1)
