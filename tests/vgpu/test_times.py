"""Modelled times: equal for equal launches, more for more work, and what bounds a kernel shows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.driver import CudaError, Driver, entry
from boltgen.arch import ARCHES, Arch
from boltgen.errors import VgpuError

# Every thread copies 16 bytes: 512 a warp, 4096 a block of 256.
COPY = entry(
    ["u64", "u64"],
    ".reg .b32 %r<8>; .reg .b64 %d<8>;",
    """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 16;
    add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d3]; st.global.v4.u32 [%d4], {%r4,%r5,%r6,%r7}; ret;
    """,
)
# p1 rounds of a multiplication; shared memory is read with a stride of p2 bytes between lanes.
ROUNDS = entry(
    ["u64", "u32", "u32"],
    """.reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<4>;
    .shared .align 16 .b8 tile[4096];""",
    """
    ld.param.u64 %d0, [p0]; ld.param.u32 %r1, [p1]; ld.param.u32 %r5, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r3, tile; and.b32 %r4, %r0, 31; mad.lo.u32 %r3, %r4, %r5, %r3;
    mov.f32 %f0, 0f3F800000; st.shared.f32 [%r3], %f0; mov.u32 %r2, 0;
    LOOP: ld.shared.f32 %f1, [%r3]; fma.rn.f32 %f0, %f0, %f1, %f1;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1; @%p bra LOOP;
    st.global.f32 [%d0], %f0; ret;
    """,
)
# As COPY, but p2 times the load.
REREAD = entry(
    ["u64", "u64", "u32"],
    ".reg .pred %p; .reg .b32 %r<10>; .reg .b64 %d<8>;",
    """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u32 %r8, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 16;
    add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    LOOP: ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d3];
    sub.u32 %r8, %r8, 1; setp.ne.u32 %p, %r8, 0; @%p bra LOOP;
    st.global.v4.u32 [%d4], {%r4,%r5,%r6,%r7}; ret;
    """,
)
# As COPY, in CUTLASS's swizzled order: tiles p3 to a row of the grid, of which there are p2 along
# its columns. What lies beyond is rounded up, and returns.
SWIZZLED = entry(
    ["u64", "u64", "u32", "u32"],
    ".reg .pred %p; .reg .b32 %r<12>; .reg .b64 %d<8>;",
    """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u32 %r8, [p2]; ld.param.u32 %r9, [p3];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; rem.u32 %r2, %r0, %r9; div.u32 %r0, %r0, %r9;
    mad.lo.u32 %r1, %r1, %r9, %r2; setp.ge.u32 %p, %r1, %r8; @%p ret;
    mad.lo.u32 %r1, %r0, %r8, %r1; mov.u32 %r2, %ntid.x; mov.u32 %r0, %tid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 16;
    add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d3]; st.global.v4.u32 [%d4], {%r4,%r5,%r6,%r7}; ret;
    """,
)
# As COPY by the blocks whose number is below what p2 points to: the host does not know how many.
BOUNDED = entry(
    ["u64", "u64", "u64"],
    ".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>;",
    """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d5, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    ld.global.u32 %r3, [%d5]; setp.ge.u32 %p, %r1, %r3; @%p ret;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 16;
    add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d3]; st.global.v4.u32 [%d4], {%r4,%r5,%r6,%r7}; ret;
    """,
)
# Every block waits until the one before it has added one: how often it looks is chance.
CHAIN = entry(
    ["u64"],
    ".reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<2>;",
    """
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %ctaid.x;
    WAIT: ld.acquire.gpu.global.u32 %r1, [%d0]; setp.ne.u32 %p, %r0, %r1; @%p bra WAIT;
    add.u32 %r2, %r0, 1; st.release.gpu.global.u32 [%d0], %r2; ret;
    """,
)


class Stream:
    """A stream and its events, through the driver's interface."""

    def __init__(self, driver: Driver, *, non_blocking: bool = True) -> None:
        self._driver = driver
        self.handle = ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(self.handle), int(non_blocking))

    def record(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._driver.call("cuEventCreate", ctypes.byref(event), 0)
        self._driver.call("cuEventRecord", event, self.handle)
        return event

    def launch(
        self,
        function: Any,
        arguments: list[Any],
        blocks: int,
        threads: int = 256,
        *,
        rows: int = 1,
    ) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        shape = (blocks, rows, 1, threads, 1, 1, 0)
        self._driver.call("cuLaunchKernel", function, *shape, self.handle, pointers, None)


def elapsed_us(driver: Driver, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
    driver.call("cuEventSynchronize", end)
    milliseconds = ctypes.c_float()
    driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
    return 1e3 * milliseconds.value


@pytest.fixture
def timed(driver: Driver) -> Iterator[Driver]:
    yield driver
    driver.vgpu.set_option("times", "model")
    driver.vgpu.set_option("threads", 2)


def copy_arguments(driver: Driver, blocks: int) -> list[Any]:
    array = np.zeros(blocks * 4096, np.uint8)
    return [ctypes.c_uint64(driver.buffer(array).address) for _ in range(2)]


def copy_us(driver: Driver, blocks: int) -> float:
    """The time of a kernel that reads and writes 4096 bytes a block."""
    stream, function = Stream(driver), driver.function(driver.load(COPY), "k")
    arguments = copy_arguments(driver, blocks)
    begin = stream.record()
    stream.launch(function, arguments, blocks)
    return elapsed_us(driver, begin, stream.record())


def rounds_us(driver: Driver, rounds: int, blocks: int = 1, stride: int = 4) -> float:
    stream, function = Stream(driver), driver.function(driver.load(ROUNDS), "k")
    to = driver.buffer(np.zeros(1, np.float32)).address
    begin = stream.record()
    numbers = [ctypes.c_uint32(rounds), ctypes.c_uint32(stride)]
    stream.launch(function, [ctypes.c_uint64(to), *numbers], blocks)
    return elapsed_us(driver, begin, stream.record())


# Source: vgpu/core/timing.h, of a launch into a stream.
LAUNCH_US = 0.9
A100_BYTES_PER_US = ARCHES["sm_80"].dram_gb_per_s * 1e3


def test_a_pair_of_events_around_nothing_lies_no_time_apart(timed: Driver) -> None:
    stream = Stream(timed)
    begin = stream.record()
    assert elapsed_us(timed, begin, stream.record()) == 0.0


def test_equal_launches_take_equal_times_however_busy_the_host_is(timed: Driver) -> None:
    times = set()
    for threads in (1, 2, 7):
        timed.vgpu.set_option("threads", threads)
        times |= {copy_us(timed, 300) for _ in range(2)}
    timed.vgpu.set_option("counters", "on")
    times.add(copy_us(timed, 300))
    timed.vgpu.set_option("counters", "off")
    assert len(times) == 1


def test_a_kernel_that_streams_takes_its_bytes_over_the_bandwidth(timed: Driver) -> None:
    for blocks in (2048, 8192):
        bytes_moved = 2 * 4096 * blocks
        wanted = LAUNCH_US + bytes_moved / A100_BYTES_PER_US
        assert copy_us(timed, blocks) == pytest.approx(wanted, abs=0.002)


def test_tensors_in_one_allocation_are_told_apart(timed: Driver) -> None:
    # As in a pool: what lies between the two is not touched.
    blocks = 2048
    pool = timed.buffer(np.zeros(16 * blocks * 4096, np.uint8)).address
    stream, function = Stream(timed), timed.function(timed.load(COPY), "k")
    begin = stream.record()
    ends = [ctypes.c_uint64(pool), ctypes.c_uint64(pool + 15 * blocks * 4096)]
    stream.launch(function, ends, blocks)
    assert elapsed_us(timed, begin, stream.record()) == copy_us(timed, blocks)


def test_more_work_never_takes_less_time(timed: Driver) -> None:
    copies = [copy_us(timed, blocks) for blocks in (1, 8, 100, 108, 109, 1000, 4000)]
    assert copies == sorted(copies)
    rounds = [rounds_us(timed, count, blocks=300) for count in (1, 10, 100, 400)]
    assert rounds == sorted(rounds)
    assert len(set(rounds)) == len(rounds)


def test_what_a_block_reads_again_it_does_not_read_from_l2(timed: Driver) -> None:
    """32 times the sectors, which L2 would take three times as long for as DRAM for its bytes."""
    stream, function = Stream(timed), timed.function(timed.load(REREAD), "k")
    blocks = 3456  # of which the device holds 8 a multiprocessor
    times = []
    for rounds in (1, 32):
        arguments = [*copy_arguments(timed, blocks), ctypes.c_uint32(rounds)]
        begin = stream.record()
        stream.launch(function, arguments, blocks)
        times.append(elapsed_us(timed, begin, stream.record()))
    assert times[1] == pytest.approx(times[0], rel=1e-3)


@pytest.mark.parametrize(("m", "n"), [(20, 5), (100, 9), (700, 3)])
@pytest.mark.parametrize("swizzle", [2, 4, 8])
def test_a_grid_that_is_rounded_up_takes_the_time_of_the_exact_one(
    timed: Driver, m: int, n: int, swizzle: int
) -> None:
    stream, function = Stream(timed), timed.function(timed.load(SWIZZLED), "k")
    pointers = copy_arguments(timed, m * n)

    def kernel_us(swizzle: int) -> float:
        begin = stream.record()
        arguments = [*pointers, ctypes.c_uint32(n), ctypes.c_uint32(swizzle)]
        stream.launch(function, arguments, m * swizzle, rows=-(-n // swizzle))
        return elapsed_us(timed, begin, stream.record()) - LAUNCH_US

    assert kernel_us(swizzle) == pytest.approx(kernel_us(1), rel=0.02)


@pytest.mark.parametrize("used", [1, 200, 3000])
def test_blocks_that_find_nothing_to_do_take_no_time(timed: Driver, used: int) -> None:
    stream, function = Stream(timed), timed.function(timed.load(BOUNDED), "k")
    pointers = copy_arguments(timed, 4000)

    def kernel_us(blocks: int) -> float:
        count = timed.buffer(np.array([used], np.uint32)).address
        begin = stream.record()
        stream.launch(function, [*pointers, ctypes.c_uint64(count)], blocks)
        return elapsed_us(timed, begin, stream.record()) - LAUNCH_US

    assert kernel_us(4000) == pytest.approx(kernel_us(used), rel=0.02)


# ROUNDS whose lanes also wait for each other, which racecheck follows by operations of its own.
SYNCED = ROUNDS.replace("ret;", 32 * "bar.warp.sync -1;" + " ret;")


@pytest.mark.parametrize("check", ["memcheck", "initcheck", "racecheck", "synccheck", "all"])
@pytest.mark.parametrize("kernel", ["copy", "rounds", "synced", "mostly empty", "chain"])
def test_checks_change_no_time(timed: Driver, kernel: str, check: str) -> None:
    def word(value: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(timed.buffer(np.array([value], np.uint32)).address)

    times = []
    for checks in ("none", check):
        timed.vgpu.set_option("check", checks)
        numbers = [ctypes.c_uint32(20), ctypes.c_uint32(4)]
        ptx, arguments, blocks = {
            "copy": (COPY, copy_arguments(timed, 300), 300),
            "rounds": (ROUNDS, [word(0), *numbers], 300),
            "synced": (SYNCED, [word(0), *numbers], 300),
            "mostly empty": (BOUNDED, [*copy_arguments(timed, 4000), word(200)], 4000),
            "chain": (CHAIN, [word(0)], 8),
        }[kernel]
        stream, function = Stream(timed), timed.function(timed.load(ptx), "k")
        begin = stream.record()
        stream.launch(function, arguments, blocks, 32 if kernel == "chain" else 256)
        times.append(elapsed_us(timed, begin, stream.record()))
    assert times[0] == times[1] > LAUNCH_US


def test_a_grid_of_nothing_but_empty_blocks_takes_time(timed: Driver) -> None:
    stream, function = Stream(timed), timed.function(timed.load(BOUNDED), "k")
    arguments = [
        *copy_arguments(timed, 1),
        ctypes.c_uint64(timed.buffer(np.zeros(1, np.uint32)).address),
    ]
    begin = stream.record()
    stream.launch(function, arguments, 300)
    assert elapsed_us(timed, begin, stream.record()) > LAUNCH_US


def test_twice_the_full_waves_take_twice_the_time(timed: Driver) -> None:
    timed.vgpu.set_option("counters", "on")
    timed.vgpu.clear_launches()
    one = rounds_us(timed, 50, blocks=108 * 8) - LAUNCH_US
    two = rounds_us(timed, 50, blocks=2 * 108 * 8) - LAUNCH_US
    counted = timed.vgpu.counters()
    timed.vgpu.set_option("counters", "off")
    assert two == pytest.approx(2 * one, abs=0.002)
    assert [c["modelled"]["waves"] for c in counted] == [1.0, 2.0]
    assert [c["modelled"]["us"] for c in counted] == pytest.approx([one, two], abs=0.001)


def test_bank_conflicts_take_time(timed: Driver) -> None:
    timed.vgpu.set_option("counters", "on")
    timed.vgpu.clear_launches()
    plain, conflicting = (rounds_us(timed, 100, 864, stride) for stride in (4, 128))
    bounds = [c["modelled"]["bound_by"] for c in timed.vgpu.counters()]
    timed.vgpu.set_option("counters", "off")
    assert bounds == ["issue", "shared memory"]
    # 32 wavefronts a load, one a clock; 8 blocks of 8 warps on a multiprocessor.
    assert conflicting - LAUNCH_US == pytest.approx(64 * 101 * 32 / 1410, rel=0.01)
    assert conflicting > 5 * plain


def test_a_faster_device_is_faster(timed: Driver) -> None:
    slow, fast = [], []
    for device, times in (("sm_86", slow), ("sm_90", fast)):
        timed.vgpu.set_option("device", device)
        times += [copy_us(timed, 4096), rounds_us(timed, 100, 2000)]
    assert all(a > b for a, b in zip(slow, fast, strict=True))


def test_waiting_for_other_blocks_is_not_counted(timed: Driver) -> None:
    times = set()
    for threads in (1, 2, 5):
        timed.vgpu.set_option("threads", threads)
        stream, function = Stream(timed), timed.function(timed.load(CHAIN), "k")
        semaphore = timed.buffer(np.zeros(1, np.uint32)).address
        begin = stream.record()
        stream.launch(function, [ctypes.c_uint64(semaphore)], 40, threads=32)
        times.add(elapsed_us(timed, begin, stream.record()))
    assert len(times) == 1


def test_streams_share_the_device(timed: Driver) -> None:
    function = timed.function(timed.load(ROUNDS), "k")
    to = ctypes.c_uint64(timed.buffer(np.zeros(1, np.float32)).address)
    arguments = [to, ctypes.c_uint32(400), ctypes.c_uint32(4)]

    def both_us(blocks: int) -> float:
        """From the start of two launches in two streams to the end of both."""
        first, second = Stream(timed), Stream(timed)
        timed.call("cuCtxSynchronize")
        begin = first.record()
        for stream in (first, second):
            stream.launch(function, arguments, blocks)
        return max(elapsed_us(timed, begin, s.record()) for s in (first, second))

    few, many = 100, 108 * 8
    assert both_us(few) == pytest.approx(rounds_us(timed, 400, few), abs=0.002)
    assert both_us(many) == pytest.approx(2 * rounds_us(timed, 400, many), abs=0.002)


def test_a_stream_that_waits_for_an_event_goes_on_after_it(timed: Driver) -> None:
    function = timed.function(timed.load(COPY), "k")
    arguments = copy_arguments(timed, 100)
    first, second = Stream(timed), Stream(timed)
    begin = first.record()
    first.launch(function, arguments, 100)
    done = first.record()
    timed.call("cuStreamWaitEvent", second.handle, done, 0)
    assert elapsed_us(timed, begin, second.record()) == elapsed_us(timed, begin, done) > 0


def test_the_default_stream_waits_for_blocking_streams_only(timed: Driver) -> None:
    function = timed.function(timed.load(COPY), "k")
    arguments = copy_arguments(timed, 100)
    for non_blocking in (False, True):
        stream, legacy = Stream(timed, non_blocking=non_blocking), Stream(timed)
        legacy.handle = ctypes.c_void_p()
        timed.call("cuCtxSynchronize")
        begin = stream.record()
        stream.launch(function, arguments, 100)
        waited = elapsed_us(timed, begin, legacy.record())
        assert (waited == 0) == non_blocking


@contextmanager
def captured(driver: Driver, stream: Stream) -> Iterator[ctypes.c_void_p]:
    """An executable graph of what is submitted to the stream inside of the block."""
    executable, graph = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamBeginCapture_v2", stream.handle, 0)
    yield executable
    driver.call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
    driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)


def test_a_graph_takes_the_time_of_its_nodes_which_follow_each_other_sooner(timed: Driver) -> None:
    function = timed.function(timed.load(COPY), "k")
    arguments = copy_arguments(timed, 100)
    stream = Stream(timed)
    with captured(timed, stream) as graph:
        for _ in range(5):
            stream.launch(function, arguments, 100)
    begin = stream.record()
    timed.call("cuGraphLaunch", graph, stream.handle)
    as_graph = elapsed_us(timed, begin, stream.record())
    begin = stream.record()
    for _ in range(5):
        stream.launch(function, arguments, 100)
    one_by_one = elapsed_us(timed, begin, stream.record())
    # Source: vgpu/core/timing.h: 0.9 us before a launch, 0.5 us before a node.
    assert one_by_one - as_graph == pytest.approx(5 * 0.4, abs=0.001)


def test_copies_take_time_by_where_they_go(timed: Driver) -> None:
    stream, host = Stream(timed), np.zeros(1 << 24, np.uint8)
    to, source = (ctypes.c_uint64(timed.buffer(host).address) for _ in range(2))
    size, pointer = ctypes.c_size_t(host.nbytes), ctypes.c_void_p(host.ctypes.data)
    times = []
    for name, where in (("cuMemcpyDtoDAsync_v2", source), ("cuMemcpyHtoDAsync_v2", pointer)):
        begin = stream.record()
        timed.call(name, to, where, size, stream.handle)
        times.append(elapsed_us(timed, begin, stream.record()))
    within, across = times
    assert within == pytest.approx(2 * host.nbytes / A100_BYTES_PER_US, abs=0.002)
    assert across == pytest.approx(host.nbytes / 32e3, abs=0.002)  # PCIe 4.0, 32 GB/s


def test_the_hosts_times_are_there_for_those_who_want_them(timed: Driver) -> None:
    timed.vgpu.set_option("times", "host")
    assert copy_us(timed, 300) > 0
    assert timed.vgpu.launches()[-1].modelled_s == 0.0
    with pytest.raises(VgpuError, match="times=guess: know model and host"):
        timed.vgpu.set_option("times", "guess")


def test_an_event_without_timing_has_no_time(timed: Driver) -> None:
    stream, event = Stream(timed), ctypes.c_void_p()
    timed.call("cuEventCreate", ctypes.byref(event), 2)
    timed.call("cuEventRecord", event, stream.handle)
    with pytest.raises(CudaError, match="timing disabled"):
        elapsed_us(timed, stream.record(), event)


@pytest.mark.parametrize(
    "arch", [a for a in ARCHES.values() if a.cutlass_api == 2], ids=lambda a: a.name
)
def test_a_device_is_the_one_that_the_cost_model_knows(timed: Driver, arch: Arch) -> None:
    """The virtual GPU's rows are those of `boltgen.arch`."""
    timed.vgpu.set_option("device", arch.name)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        timed.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    # Numbers of CUdevice_attribute.
    assert attribute(16) == arch.sm_count
    assert attribute(39) == arch.max_threads_per_sm
    assert attribute(106) == arch.max_ctas_per_sm
    assert attribute(82) == arch.registers_per_sm
    assert attribute(81) == arch.shared_memory_per_sm_bytes
    assert attribute(97) == arch.shared_memory_per_cta_bytes
    assert attribute(111) == arch.reserved_shared_memory_bytes
    assert attribute(38) == arch.l2_bytes
    assert attribute(13) == arch.max_mhz * 1000
    assert attribute(37) == arch.dram_bus_bits
    # Two transfers a clock, which is in whole kHz.
    bytes_per_us = attribute(36) * 2 * attribute(37) / 8 / 1e3
    assert bytes_per_us == pytest.approx(arch.dram_gb_per_s * 1e3, rel=1e-6)
