"""Counters of launches, on kernels whose every count is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.driver import Driver, entry
from boltgen.errors import VgpuError
from tests.vgpu.test_times import CHAIN, SWIZZLED

REGISTERS = """
.reg .pred %p; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %d<6>;
.shared .align 16 .b8 tile[8192];
"""
START = "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0];"


@pytest.fixture
def counting(driver: Driver) -> Iterator[Driver]:
    driver.vgpu.set_option("counters", "on")
    driver.vgpu.clear_launches()
    yield driver
    driver.vgpu.set_option("counters", "off")


def count(
    driver: Driver, body: str, *, blocks: int = 1, threads: int = 32, start: str = START
) -> dict[str, Any]:
    data = driver.buffer(np.zeros(1 << 16, np.uint8))
    ptx = entry(["u64"], REGISTERS, start + body + "ret;")
    driver.run(ptx, [data], grid=(blocks, 1, 1), block=(threads, 1, 1))
    return driver.vgpu.counters()[-1]


@pytest.mark.parametrize(
    ("kind", "stride", "sectors"),
    [
        ("u32", 0, 1),
        ("u32", 4, 4),
        ("u32", 8, 8),
        ("u32", 128, 32),
        ("u8", 1, 1),
        ("u16", 2, 2),
        ("u64", 8, 8),
        ("v4.u32", 16, 16),
    ],
)
def test_global_sectors(counting: Driver, kind: str, stride: int, sectors: int) -> None:
    registers = {"v4.u32": "{%r4,%r5,%r6,%r7}", "u64": "%d3"}.get(kind, "%r4")
    size = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "v4.u32": 16}[kind]
    found = count(
        counting,
        f"mad.wide.u32 %d1, %r0, {stride}, %d0; ld.global.{kind} {registers}, [%d1];"
        f"st.global.{kind} [%d1+{32 * 128}], {registers};",
    )
    wanted = {"requests": 1, "bytes": 32 * size, "sectors": sectors}
    assert found["global_load"] == wanted
    assert found["global_store"] == wanted
    assert found["global_atomic"] == {"requests": 0, "bytes": 0, "sectors": 0}


def test_an_access_that_starts_inside_a_sector_touches_one_more(counting: Driver) -> None:
    body = "mad.wide.u32 %d1, %r0, 4, %d0; ld.global.u32 %r4, [%d1+4];"
    assert count(counting, body)["global_load"]["sectors"] == 5


@pytest.mark.parametrize(
    ("kind", "stride", "wavefronts", "conflicts"),
    [
        ("u32", 0, 1, 0),  # a broadcast
        ("u32", 4, 1, 0),
        ("u32", 8, 2, 1),
        ("u32", 128, 32, 31),
        ("u32", 132, 1, 0),  # padded
        ("u8", 1, 1, 0),
        ("u64", 8, 2, 0),  # two half-warps
        ("u64", 128, 32, 30),
        ("v4.u32", 16, 4, 0),  # four quarter-warps
        ("v4.u32", 128, 32, 28),
    ],
)
def test_shared_bank_conflicts(
    counting: Driver, kind: str, stride: int, wavefronts: int, conflicts: int
) -> None:
    registers = {"v4.u32": "{%r4,%r5,%r6,%r7}", "u64": "%d3"}.get(kind, "%r4")
    size = {"u8": 1, "u32": 4, "u64": 8, "v4.u32": 16}[kind]
    found = count(
        counting,
        f"mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {stride}, %r1;"
        f"ld.shared.{kind} {registers}, [%r2]; st.shared.{kind} [%r2], {registers};",
    )
    assert found["shared"] == {
        "requests": 2,
        "bytes": 2 * 32 * size,
        "wavefronts": 2 * wavefronts,
        "bank_conflicts": 2 * conflicts,
    }
    assert found["static_shared_bytes"] == 8192


@pytest.mark.parametrize(("stride", "wavefronts"), [(16, 4), (128, 32), (144, 4), (32, 8)])
def test_matrix_loads(counting: Driver, stride: int, wavefronts: int) -> None:
    found = count(
        counting,
        f"mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {stride}, %r1;"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r2];",
    )
    assert found["shared"]["wavefronts"] == wavefronts
    assert found["shared"]["bank_conflicts"] == wavefronts - 4
    assert found["instructions"]["matrix_load"] == 1


def test_asynchronous_copies_load_and_fill_shared_memory(counting: Driver) -> None:
    found = count(
        counting,
        "mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %d1, %r0, 16, %d0;"
        "cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;"
        "cp.async.wait_group 0; mov.u32 %r3, 0;"
        "cp.async.cg.shared.global [%r2], [%d1], 16, %r3; cp.async.wait_all;",
    )
    assert found["global_load"] == {"requests": 2, "bytes": 512, "sectors": 16}
    assert found["shared"]["wavefronts"] == 8
    assert found["shared"]["bank_conflicts"] == 0
    assert found["instructions"]["async_copy"] == 5


def test_instructions_by_class_in_every_warp_of_the_grid(counting: Driver) -> None:
    found = count(
        counting,
        """
        setp.lt.u32 %p, %r0, 16; @%p add.u32 %r1, %r0, 1; setp.gt.u32 %p, %r0, 99;
        @%p add.u32 %r1, %r0, 1; cvt.rn.f32.u32 %f0, %r0; fma.rn.f32 %f1, %f0, %f0, %f0;
        bar.sync 0; bar.sync 0; shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;
        atom.global.add.u32 %r3, [%d0], 1; red.global.add.u32 [%d0+4], 1; bra.uni NEXT; NEXT:
        """,
        blocks=3,
        threads=64,
    )
    warps = 6
    some = {name: n for name, n in found["instructions"].items() if n}
    # Of the guarded additions the first runs in the lower half of the first warp of each block.
    assert some == {
        **{"move": warps, "load": warps, "compare": 2 * warps, "convert": warps, "float": warps},
        **{"barrier": 2 * warps, "warp": warps, "atomic": 2 * warps, "control": 2 * warps},
        "integer": 3,
    }
    assert found["predicated_off"] == 3 + warps
    assert found["thread_instructions"] == 32 * 13 * warps + 16 * 3
    assert found["barriers"] == 2 * warps
    assert found["global_atomic"] == {"requests": 12, "bytes": 12 * 128, "sectors": 12}


def test_operations_of_tensor_cores(counting: Driver) -> None:
    found = count(
        counting,
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r4,%r5,%r6,%r7}, {%r4,%r5,%r6,%r7},"
        "{%r8,%r9}, {%r4,%r5,%r6,%r7};"
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4,%r5}, {%r4}, {%r8}, {%r4,%r5};",
        threads=96,
    )
    assert found["instructions"]["mma"] == 6
    assert found["mma_operations"] == 3 * 2 * (16 * 8 * 16 + 8 * 8 * 16)


def test_occupancy_is_that_of_the_device(counting: Driver) -> None:
    found = count(counting, "", threads=256)
    assert found["resident_blocks"] == 8  # of 2048 threads
    assert found["occupancy"] == 1.0
    counting.vgpu.set_option("device", "sm_86")
    found = count(counting, "", threads=1024)
    assert found["resident_warps"] == 32  # one block of 1024 threads of 1536
    assert found["occupancy"] == pytest.approx(2 / 3, abs=1e-4)


def test_nothing_is_counted_unless_asked_for(driver: Driver) -> None:
    driver.vgpu.clear_launches()
    driver.run(entry(["u64"], REGISTERS, START + "ret;"), [driver.buffer(np.zeros(4, np.uint8))])
    assert driver.vgpu.counters() == []
    assert len(driver.vgpu.launches()) == 1
    with pytest.raises(VgpuError, match="counters=maybe: know on, off and sampled"):
        driver.vgpu.set_option("counters", "maybe")


# Every thread of block b stores b + 1, at a place of its own.
NUMBERS = """
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; add.u32 %r1, %r1, 1;
mad.wide.u32 %d1, %r3, 4, %d0; st.global.u32 [%d1], %r1;
"""


def numbered(driver: Driver, counters: str, blocks: int) -> tuple[list[int], dict[str, Any]]:
    """What the blocks stored, one number of each, and what was counted."""
    driver.vgpu.set_option("counters", counters)
    data = driver.buffer(np.zeros(blocks * 64, np.uint32))
    ptx = entry(["u64"], REGISTERS, START + NUMBERS + "ret;")
    driver.run(ptx, [data], grid=(blocks, 1, 1), block=(64, 1, 1))
    counted = driver.vgpu.counters()[-1]
    del counted["host_cycles"]
    return [int(number) for number in driver.read(data)[::64]], counted


@pytest.mark.parametrize("blocks", [3, 4, 5, 1000])
def test_sampled_blocks_stand_for_the_grid(counting: Driver, blocks: int) -> None:
    numbers, wanted = numbered(counting, "on", blocks)
    assert numbers == [block + 1 for block in range(blocks)]
    numbers, counted = numbered(counting, "sampled", blocks)
    assert counted == wanted
    assert counting.vgpu.launches()[-1].warp_instructions == sum(wanted["instructions"].values())
    run = [number - 1 for number in numbers if number]
    assert run == [k * (blocks - 1) // (min(blocks, 4) - 1) for k in range(min(blocks, 4))]


@pytest.mark.parametrize("shape", [(20, 5, 8), (300, 3, 4)])
def test_empty_blocks_stand_for_no_others(counting: Driver, shape: tuple[int, int, int]) -> None:
    m, n, swizzle = shape
    data = [counting.buffer(np.zeros(m * n * 4096, np.uint8)) for _ in range(2)]
    grid = (m * swizzle, -(-n // swizzle), 1)
    counted = []
    for counters in ("on", "sampled"):
        counting.vgpu.set_option("counters", counters)
        counting.run(SWIZZLED, [*data, n, swizzle], grid=grid, block=(256, 1, 1))
        counted.append(counting.vgpu.counters()[-1])
    every, sampled = counted
    assert every["global_load"]["bytes"] == every["global_store"]["bytes"] == m * n * 4096
    assert sampled["modelled"] == every["modelled"]
    for traffic in ("global_load", "global_store"):
        assert sampled[traffic] == pytest.approx(every[traffic], rel=0.02)
    assert sampled["instructions"] == pytest.approx(every["instructions"], rel=0.02)


def test_blocks_that_sampled_ones_wait_for_are_run(counting: Driver) -> None:
    counting.vgpu.set_option("counters", "sampled")
    data = counting.buffer(np.zeros(1, np.uint32))
    counting.run(CHAIN, [data], grid=(50, 1, 1), block=(1, 1, 1))
    assert counting.read(data)[0] == 50
    assert counting.vgpu.counters()[-1]["global_store"]["requests"] == 50


def test_sampling_and_checks_refuse_each_other(counting: Driver) -> None:
    counting.vgpu.set_option("check", "memcheck")
    with pytest.raises(VgpuError, match=r"counters=sampled and check: .*take counters=on"):
        counting.vgpu.set_option("counters", "sampled")
    counting.vgpu.set_option("check", "none")
    counting.vgpu.set_option("counters", "sampled")
    with pytest.raises(VgpuError, match=r"counters=sampled and check: .*take counters=on"):
        counting.vgpu.set_option("check", "all")
