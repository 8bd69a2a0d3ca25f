"""Negative controls: each broken kernel is found by its check, and the intact one by none."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.harness.driver import Driver
from tests.vgpu.checked_kernels import (
    ASYNC,
    CHOICE,
    COUNT,
    FLAG,
    GATHER,
    LANES,
    NAMED,
    OWN_WORD,
    REVERSE,
    SHUFFLE,
    run_checked,
)


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


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_the_check_that_is_meant_finds_it(checked: Driver, control: Control) -> None:
    assert run_checked(checked, control.body, control.grid) == []
    assert control.intact in control.body
    found = run_checked(checked, control.body.replace(control.intact, control.broken), control.grid)
    meant = [f for f in found if f.check == control.check and control.kind in f.kind]
    assert meant, [f.message for f in found]
    for finding in meant:
        assert finding.kernel == "k"
        assert finding.ptx_line > 0
        assert f"PTX line {finding.ptx_line}: {finding.ptx}" in finding.message
