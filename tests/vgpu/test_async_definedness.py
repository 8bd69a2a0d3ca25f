"""initcheck behind asynchronous copies: what is undefined travels with the bytes, no further."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import Buffer, CudaError, Driver, entry
from boltgen.device.vgpu import Finding
from tests.vgpu.tensor_maps import HEADER, Tiling, encode
from tests.vgpu.test_mbarriers import BULK, kernel
from tests.vgpu.test_tensor_copies import REGISTERS, SHARED

# Looks at every word of p1, as a reference's comparison does, and counts the large ones at p0.
LOOK = """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x;
    L: mad.wide.u32 %d2, %t, 4, %d1; ld.global.u32 %v, [%d2]; setp.lt.u32 %p, %v, 4000; @%p bra N;
    mov.u32 %a, 1; atom.global.add.u32 %n, [%d0], %a;
    N: add.u32 %t, %t, 32; setp.lt.u32 %p, %t, 1024; @%p bra L; ret;"""
ADD = "add.u32 %v, %v, 1;"


@pytest.fixture
def init(hopper: Driver) -> Driver:
    hopper.vgpu.set_option("check", "initcheck")
    hopper.vgpu.clear_findings()
    return hopper


def half_written(driver: Driver) -> Buffer:
    """Has 4096 bytes, the first half of them written."""
    buffer = driver.allocate(4096)
    driver.fill(Buffer(buffer.address, np.zeros(2048, np.uint8)), 1)
    return buffer


def looked_at(driver: Driver, out: Buffer) -> list[Finding]:
    count = driver.buffer(np.zeros(1, np.uint32))
    driver.run(kernel(LOOK), [count, out])
    return driver.vgpu.findings()


def test_what_a_bulk_store_has_written_is_defined(init: Driver) -> None:
    out = init.allocate(4096)
    init.run(kernel(BULK), [out, init.buffer(np.arange(1024, dtype=np.uint32))])
    assert looked_at(init, out) == []


@pytest.mark.parametrize("body", [BULK, BULK.replace(ADD, "")], ids=["computed", "copied"])
@pytest.mark.parametrize("copies", ["late", "eager"])
def test_what_was_never_written_is_not_after_two_copies(
    init: Driver, body: str, copies: str
) -> None:
    init.vgpu.set_option("copies", copies)
    out = init.allocate(4096)
    init.run(kernel(body), [out, half_written(init)])
    assert init.vgpu.findings() == [], "nothing was decided yet"
    (finding,) = looked_at(init, out)
    assert finding.kind == "uninitialised branch"
    assert finding.address == out.address + 2048


def test_the_host_copies_a_result_that_a_bulk_copy_stored(init: Driver) -> None:
    out = init.allocate(4096)
    init.run(kernel(BULK), [out, half_written(init)])
    init.read(out)
    (finding,) = init.vgpu.findings()
    assert finding.kind == "uninitialised result"
    assert "the host copies it, from byte 2048" in finding.message


def test_shared_memory_that_nothing_wrote_is_stored(init: Driver) -> None:
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 4096"
    assert load in BULK
    body = BULK.replace(load, load.replace("4096", "1024")).replace("[bar], 4096;", "[bar], 1024;")
    out = init.allocate(4096)
    init.run(kernel(body), [out, init.buffer(np.arange(1024, dtype=np.uint32))])
    init.read(out)
    (finding,) = init.vgpu.findings()
    assert finding.kind == "uninitialised result"
    assert "of its copy on" in finding.message


def test_an_undefined_size_is_a_use(init: Driver) -> None:
    body = BULK.replace("[tile], [%d1], 4096", "[tile], [%d1], %c").replace(
        "ld.param.u64 %d0", ".reg .b32 %c; ld.global.u32 %c, [%d2]; ld.param.u64 %d0", 1
    )
    body = body.replace(
        "ld.global.u32 %c, [%d2];", "ld.param.u64 %d2, [p1]; ld.global.u32 %c, [%d2];"
    )
    source = init.allocate(4096)
    out = init.allocate(4096)
    with pytest.raises(CudaError, match="out-of-bounds shared write"):
        init.run(kernel(body), [out, source])
    kinds = {f.kind for f in init.vgpu.findings()}
    assert "uninitialised address" in kinds


@pytest.mark.parametrize("written", [True, False])
def test_a_tensor_there_and_back(init: Driver, written: bool) -> None:
    source = init.buffer(np.arange(1024, dtype=np.uint32).reshape(32, 32))
    if not written:
        source = Buffer(half_written(init).address, source.like)
    target = Buffer(init.allocate(4096).address, source.like)
    tiling = Tiling(box=(32, 32), swizzle=3)
    body = """
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;
        @%p bra END;
        mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
            [tile], [%d0, {0, 0}], [bar];
        W: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra W;
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {0, 0}], [tile];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
        END: ret;"""
    text = HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)
    init.run(text, [encode(init, source, tiling), encode(init, target, tiling)])
    found = looked_at(init, target)
    assert [f.kind for f in found] == ([] if written else ["uninitialised branch"])


SEND = """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x;
    mov.u32 %a, %cluster_ctarank;
    setp.ne.u32 %p, %t, 0; @%p bra W0;
    mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
    W0: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mad.wide.u32 %d1, %t, 4, %d1; ld.global.u32 %v, [%d1];
    xor.b32 %a, %a, 1; mov.u32 %n, tile; mad.lo.u32 %n, %t, 4, %n;
    mapa.shared::cluster.u32 %c0, %n, %a; mov.u32 %c1, bar; mapa.shared::cluster.u32 %c1, %c1, %a;
    {send}.mbarrier::complete_tx::bytes{type} [%c0], %v, [%c1];
    W: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W;
    ld.shared.u32 %v, [%n];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mad.wide.u32 %d0, %t, 4, %d0; add.u32 %v, %v, 1; st.global.u32 [%d0], %v; ret;"""


@pytest.mark.parametrize("written", [True, False])
def test_values_that_are_sent_to_another_block(init: Driver, written: bool) -> None:
    body = SEND.format(send="st.async.weak.shared::cluster", type=".u32")
    text = HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)
    text = text.replace("\n{", "\n.reqnctapercluster 2\n{", 1)
    out = init.allocate(128)
    source = init.buffer(np.zeros(32, np.uint32)) if written else init.allocate(128)
    init.run(text, [out, source], grid=(2, 1, 1))
    init.read(out)
    assert [f.kind for f in init.vgpu.findings()] == ([] if written else ["uninitialised result"])
