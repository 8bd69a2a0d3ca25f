"""What a thread knows of itself and of its device, and instructions that are hints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.harness.driver import Driver
from boltgen.device.vgpu import Vgpu
from tests.vgpu.test_warp_ops import per_thread

ALL = (1 << 32) - 1
# By the number of a thread in a block of 96. Source: PTX ISA, special registers.
OF_A_THREAD: dict[str, Callable[[int], int]] = {
    "tid.x": lambda t: t,
    "tid.y": lambda _: 0,
    "ntid.x": lambda _: 96,
    "ntid.z": lambda _: 1,
    "laneid": lambda t: t % 32,
    "warpid": lambda t: t // 32,
    "lanemask_eq": lambda t: 1 << t % 32,
    "lanemask_lt": lambda t: (1 << t % 32) - 1,
    "lanemask_le": lambda t: (2 << t % 32) - 1,
    "lanemask_gt": lambda t: ALL & ~((2 << t % 32) - 1),
    "lanemask_ge": lambda t: ALL & ~((1 << t % 32) - 1),
}


@pytest.mark.parametrize("name", OF_A_THREAD)
def test_of_a_thread(driver: Driver, name: str) -> None:
    found = per_thread(driver, f"mov.u32 %r9, %{name};", threads=96)
    assert found.tolist() == [OF_A_THREAD[name](t) for t in range(96)]


def test_of_a_block(driver: Driver) -> None:
    body = "mov.u32 %r9, %ctaid.x; mov.u32 %r4, %nctaid.x; mad.lo.u32 %r9, %r4, 100, %r9;"
    assert set(per_thread(driver, body, blocks=3).tolist()) == {300, 301, 302}
    shared = ".shared .align 4 .b8 tile[1024]; mov.u32 %r4, tile; mov.u32 %r9, %total_smem_size;"
    assert set(per_thread(driver, shared).tolist()) == {1024}


@pytest.mark.parametrize(("device", "count"), [("sm_80", 108), ("sm_89", 142), ("sm_90", 132)])
def test_of_the_device(driver: Driver, vgpu: Vgpu, device: str, count: int) -> None:
    """A block is on one multiprocessor of those that the device has."""
    vgpu.set_option("device", device)
    assert set(per_thread(driver, "mov.u32 %r9, %nsmid;").tolist()) == {count}
    places = per_thread(driver, "mov.u32 %r9, %smid;", blocks=4).reshape(4, 32)
    for place in places:
        assert len(set(place.tolist())) == 1
        assert place[0] < count


@pytest.mark.parametrize(
    "hint",
    [
        "prefetch.global.L1 [%d1];",
        "prefetch.global.L2 [%d1];",
        "prefetchu.L1 [%d1];",
        "applypriority.global.L2::evict_normal [%d1], 128;",
        "pmevent 3;",
        "nanosleep.u32 40;",
        "createpolicy.fractional.L2::evict_last.b64 %d3, 1.0;",
    ],
)
def test_hints_change_nothing(driver: Driver, hint: str) -> None:
    found = per_thread(driver, f"mul.lo.u32 %r9, %r0, 3; {hint}")
    assert found.tolist() == [3 * lane for lane in range(32)]


def test_a_breakpoint_without_a_debugger_is_a_trap(driver: Driver) -> None:
    with pytest.raises(Exception, match="trap in kernel 'k'"):
        per_thread(driver, "brkpt;")
