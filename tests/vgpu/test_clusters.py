"""Clusters: places, the cluster's barrier, and each other's shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.harness.driver import Driver, entry
from tests.vgpu.refusals import Code, refused
from tests.vgpu.tensor_maps import HEADER

REGISTERS = ".reg .pred %p; .reg .b32 %t, %a, %b, %v, %r<8>; .reg .b64 %d<4>;"
SPECIAL = (
    *(f"cluster_ctaid.{d}" for d in "xyz"),
    *(f"cluster_nctaid.{d}" for d in "xyz"),
    *(f"clusterid.{d}" for d in "xyz"),
    *(f"nclusterid.{d}" for d in "xyz"),
    "cluster_ctarank",
    "cluster_nctarank",
)


@pytest.fixture
def hopper(driver: Driver) -> Iterator[Driver]:
    driver.vgpu.set_option("device", "sm_90")
    yield driver


def clustered(parameters: list[str], body: str, cluster: str, before: str = "") -> str:
    text = entry(parameters, REGISTERS, body, before)
    return HEADER + text.replace("\n{", f"\n.reqnctapercluster {cluster}\n{{", 1)


def test_where_a_block_is_in_its_cluster(hopper: Driver) -> None:
    stores = "\n".join(
        f"mov.u32 %v, %{name}; st.global.u32 [%d0+{4 * k}], %v;" for k, name in enumerate(SPECIAL)
    )
    body = f"""
        ld.param.u64 %d0, [p0];
        mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x;
        mad.lo.u32 %r0, %r1, %r2, %r0; mad.wide.u32 %d0, %r0, 64, %d0;
        {stores}
        mov.pred %p, %is_explicit_cluster; selp.u32 %v, 1, 0, %p; st.global.u32 [%d0+56], %v;
        ret;"""
    out = hopper.buffer(np.zeros((4, 6, 16), np.uint32))
    hopper.run(clustered(["u64"], body, "3, 2, 1"), [out], grid=(6, 4, 1))
    found = hopper.read(out)
    for y in range(4):
        for x in range(6):
            own, shape, where = (x % 3, y % 2, 0), (3, 2, 1), (x // 3, y // 2, 0)
            expected = [*own, *shape, *where, 2, 2, 1, own[0] + 3 * own[1], 6, 1]
            assert found[y, x, :15].tolist() == expected


EXCHANGE = """
    ld.param.u64 %d0, [p0];
    mov.u32 %t, %tid.x; mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank;
    mov.u32 %a, words; shl.b32 %b, %t, 2; add.u32 %a, %a, %b;
    mad.lo.u32 %v, %r0, 1000, %t; st.shared.u32 [%a], %v;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %r2, %r0, 1; rem.u32 %r2, %r2, %r1;
    {read}
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mad.lo.u32 %r3, %r3, %r4, %t;
    mad.wide.u32 %d0, %r3, 4, %d0; st.global.u32 [%d0], %v; ret;"""
READS = {
    "ld.shared::cluster": "mapa.shared::cluster.u32 %b, %a, %r2; ld.shared::cluster.u32 %v, [%b];",
    "generic": """cvt.u64.u32 %d1, %a; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %r2;
        ld.u32 %v, [%d2]; getctarank.u64 %b, %d2; setp.ne.u32 %p, %b, %r2; @%p trap;
        isspacep.shared::cluster %p, %d2; @!%p trap; isspacep.shared::cta %p, %d2; @%p trap;""",
    "atom": """mapa.shared::cluster.u32 %b, %a, %r2;
        atom.shared::cluster.add.u32 %v, [%b], 5;""",
}


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("read", READS)
def test_shared_memory_of_the_next_block(hopper: Driver, read: str, size: int) -> None:
    out = hopper.buffer(np.zeros((2 * size, 64), np.uint32))
    body = EXCHANGE.format(read=READS[read])
    ptx = clustered(["u64"], body, str(size), ".shared .align 4 .b8 words[256];")
    hopper.run(ptx, [out], grid=(2 * size, 1, 1), block=(64, 1, 1))
    ranks = (np.arange(2 * size) + 1) % size
    expected = ranks[:, None] * 1000 + np.arange(64)
    np.testing.assert_array_equal(hopper.read(out), expected)


def test_a_missing_wait_for_the_cluster_is_a_race(hopper: Driver) -> None:
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    body = EXCHANGE.format(read=READS["ld.shared::cluster"])
    out = hopper.buffer(np.zeros((2, 64), np.uint32))
    shared = ".shared .align 4 .b8 words[256];"
    launch = {"grid": (2, 1, 1), "block": (64, 1, 1)}
    hopper.run(clustered(["u64"], body, "2", shared), [out], **launch)
    assert not hopper.vgpu.findings()
    first = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    hopper.run(clustered(["u64"], body.replace(first, ""), "2", shared), [out], **launch)
    found = hopper.vgpu.findings()
    assert {f.kind for f in found} <= {"read after write", "write after read"}
    assert any("of CTA" in f.message or "in CTA" in f.message for f in found)


REMOTE = """
    mov.u32 %r0, %cluster_ctarank; setp.ne.u32 %p, %r0, 0; mov.u32 %a, bar;
    @!%p mbarrier.init.shared.b64 [%a], 1;
    {fence}
    barrier.cluster.arrive{order}; barrier.cluster.wait;
    mapa.shared::cluster.u32 %b, %a, 0;
    @%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%b];
    @%p bra END;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%a], 0; @!%p bra WAIT;
    END: ret;"""


@pytest.mark.parametrize(
    ("fence", "order", "visible"),
    [
        ("fence.mbarrier_init.release.cluster;", ".relaxed", True),
        ("", "", True),
        ("", ".release", True),
        ("", ".relaxed", False),
        ("fence.acq_rel.cta;", ".relaxed", False),
    ],
)
def test_an_mbarrier_that_another_block_arrives_at(
    hopper: Driver, fence: str, order: str, visible: bool
) -> None:
    hopper.vgpu.set_option("check", "racecheck")
    hopper.vgpu.clear_findings()
    body = REMOTE.format(fence=fence, order=order)
    ptx = clustered([], body, "2", ".shared .align 8 .b64 bar;")
    hopper.run(ptx, [], grid=(2, 1, 1), block=(1, 1, 1))
    found = hopper.vgpu.findings()
    if visible:
        assert not found
        return
    (finding,) = found
    assert (finding.kind, finding.kernel) == ("missing mbarrier fence", "k")
    assert (finding.block, finding.thread) == ((1, 0, 0), (0, 0, 0))
    assert "mbarrier.arrive" in finding.ptx


@pytest.mark.parametrize(
    ("cluster", "grid", "code", "words"),
    [
        (
            16,
            16,
            Code.INVALID_CLUSTER_SIZE,
            ["16", "cudaFuncAttributeNonPortableClusterSizeAllowed"],
        ),
        (3, 4, Code.INVALID_VALUE, ["(4,1,1)", "(3,1,1)"]),
    ],
)
def test_clusters_that_cannot_be(
    hopper: Driver, cluster: int, grid: int, code: Code, words: list[str]
) -> None:
    with refused(code, *words):
        hopper.run(clustered([], "ret;", str(cluster)), [], grid=(grid, 1, 1))


def test_sixteen_blocks_where_the_kernel_allows_them(hopper: Driver) -> None:
    body = (
        "ld.param.u64 %d0, [p0]; mov.u32 %r0, %cluster_ctarank; red.global.max.u32 [%d0], %r0; ret;"
    )
    function = hopper.function(hopper.load(clustered(["u64"], body, "16")), "k")
    hopper.call("cuFuncSetAttribute", function, 14, 1)
    out = hopper.buffer(np.zeros(1, np.uint32))
    hopper.launch(function, [out], grid=(16, 1, 1))
    assert hopper.read(out)[0] == 15


def test_an_older_device_has_no_clusters(driver: Driver) -> None:
    text = clustered([], "ret;", "2").replace("sm_90a", "sm_80")
    with refused(Code.NOT_SUPPORTED, "sm_80"):
        driver.run(text, [], grid=(2, 1, 1))


def test_architecture_specific_code_runs_on_its_device_only(driver: Driver) -> None:
    with refused(Code.NO_BINARY_FOR_DEVICE, "sm_90a", "sm_80"):
        driver.load(clustered([], "ret;", "1"))


@pytest.mark.parametrize(
    "body", ["barrier.cluster.wait.aligned; ret;", "barrier.cluster.arrive; " * 2 + "ret;"]
)
def test_the_barrier_used_wrongly(hopper: Driver, body: str) -> None:
    with refused(Code.LAUNCH_FAILED, "barrier.cluster.arrive", "kernel 'k'"):
        hopper.run(clustered([], body, "2"), [], grid=(2, 1, 1))


def test_a_block_that_waits_for_the_cluster_alone(hopper: Driver) -> None:
    body = """mov.u32 %r0, %cluster_ctarank; setp.ne.u32 %p, %r0, 0; @%p bra NEVER;
        barrier.cluster.arrive; barrier.cluster.wait; ret;
        NEVER: mov.u32 %a, bar; mbarrier.init.shared.b64 [%a], 1;
        L: mbarrier.try_wait.parity.shared.b64 %p, [%a], 0; @!%p bra L; ret;"""
    before = ".shared .align 8 .b64 bar;"
    with refused(Code.LAUNCH_FAILED, "barrier.cluster.wait", "1 of 1"):
        hopper.run(clustered([], body, "2", before), [], grid=(2, 1, 1))
