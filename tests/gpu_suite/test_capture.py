"""Capturing: PyTorch's, by a stand-in for `torch.cuda`; ours, on the virtual GPU; its limits."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu import capture
from benchmarks.gpu.capture import at_most, uncollected
from benchmarks.gpu.rig import Launched
from benchmarks.gpu.vendor import Vendor
from boltgen.measure.native import Profiler, RefusedError
from tests.gpu_suite.fake_cuda import CudaError, FakeCuda, Memory, cuda
from tests.measure.conftest import profiler

__all__ = ["cuda", "profiler"]
OURS = 0x77


@pytest.fixture
def vendor(cuda: FakeCuda) -> Vendor:
    found = Vendor()
    found.use_stream(OURS)
    return found


def test_a_replay_runs_on_the_stream_whose_events_time_it(vendor: Vendor, cuda: FakeCuda):
    operands = [cuda.memory() for _ in range(3)]
    replay = vendor.captured([partial(cuda.call, one) for one in operands])
    assert cuda.launched == [OURS] * 9  # warm-ups
    cuda.launched.clear()
    replay.replay()
    assert replay.launches == 3
    assert cuda.launched == [OURS] * 3


def test_a_graph_keeps_the_memory_that_it_has_addresses_of(vendor: Vendor, cuda: FakeCuda):
    operand = cuda.memory()
    held = weakref.ref(operand)
    replay = vendor.captured([partial(cuda.call, operand)])
    del operand
    replay.replay()
    del replay
    assert held() is None


def test_after_a_capture_that_fails_replays_run_where_they_are_timed(
    vendor: Vendor, cuda: FakeCuda
):
    """PyTorch leaves its own stream behind: times of what runs there would be those of nothing."""
    right = vendor.captured([partial(cuda.call, cuda.memory())])
    first = cuda.memory()

    def call() -> Memory:
        if cuda.capturing is not None:
            cuda.fails()
        return cuda.call(first)

    with pytest.raises(CudaError):
        vendor.captured([call])
    cuda.launched.clear()
    right.replay()
    assert cuda.launched == [OURS]


def test_garbage_does_not_end_a_capture(vendor: Vendor, cuda: FakeCuda):
    """A cycle that holds memory, and so many new objects that Python would look for cycles."""

    def call() -> list[list[int]]:
        cycle: list[object] = [cuda.memory()]
        cycle.append(cycle)
        del cycle
        return [[number] for number in range(2 * gc.get_threshold()[0])]

    vendor.captured([call])
    assert gc.isenabled()


def test_collecting_is_left_off_where_it_was_off():
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_cudnn_tries_all_algorithms_but_for_what_runs_once(vendor: Vendor):
    cudnn = torch.backends.cudnn
    assert cudnn.benchmark
    assert cudnn.benchmark_limit == 0
    with vendor.untuned():
        assert not cudnn.benchmark
    assert cudnn.benchmark


def launched(profiler: Profiler, enqueue: Callable[[int, int], int]) -> Launched:
    return Launched(SimpleNamespace(profiler=profiler, scratch=(0, 0)), enqueue, 2, captured=True)


def is_capturing(profiler: Profiler) -> bool:
    status = ctypes.c_int()
    stream = ctypes.c_void_p(profiler.device.stream)
    assert not ctypes.CDLL("libcudart.so.13").cudaStreamIsCapturing(stream, ctypes.byref(status))
    return bool(status.value)


def test_what_is_captured_was_launched_before(profiler: Profiler):
    """The driver loads a kernel at its first launch: not while it is captured."""
    calls = []

    def enqueue(index: int, status: int) -> int:
        calls.append((index, is_capturing(profiler)))
        return 0

    launched(profiler, enqueue).close()
    assert calls == [(0, False), (0, True), (1, True)]


def test_garbage_does_not_end_a_capture_of_ours(profiler: Profiler):
    memory = [profiler.allocate(64) for _ in range(3)]

    class Holder:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if memory:
                profiler.release(memory.pop())

    def enqueue(index: int, status: int) -> int:
        Holder()
        kept = [[number] for number in range(2 * gc.get_threshold()[0])]
        return len(kept) - len(kept)

    sampler = launched(profiler, enqueue)
    sampler.sample_us(1)
    sampler.close()
    gc.collect()
    assert not memory


def test_what_was_timed_is_freed_without_a_collection(profiler: Profiler, cuda: FakeCuda):
    """A model with its weights, a graph of PyTorch's with its operands."""
    operand = cuda.memory()
    held = weakref.ref(operand)
    gc.disable()
    try:
        sampler = launched(profiler, lambda index, status, kept=operand: 0)
        del operand
        sampler.sample_us(1)
        assert held() is not None
        sampler.close()
        assert held() is None
    finally:
        gc.enable()


def test_what_a_launch_raises_is_why_it_cannot_be_timed(profiler: Profiler):
    def enqueue(index: int, status: int) -> int:
        raise ValueError("no such launch")

    with pytest.raises(ValueError, match="no such launch"):
        launched(profiler, enqueue)
    told = Launched(SimpleNamespace(profiler=profiler, scratch=(0, 0)), enqueue, 1, captured=False)
    with pytest.raises(ValueError, match="no such launch"):
        told.sample_us(1)


def test_an_error_that_a_refused_launch_leaves_is_not_found_by_the_next(profiler: Profiler):
    """As CUTLASS's own programs leave it."""
    runtime = ctypes.CDLL("libcudart.so.13")

    def enqueue(index: int, status: int) -> int:
        return int(runtime.cudaSetDevice(99) != 0)

    with pytest.raises(RefusedError):
        launched(profiler, enqueue)
    assert runtime.cudaPeekAtLastError() == 0


def test_what_takes_too_long_is_ended():
    with pytest.raises(TimeoutError, match="0 s"), at_most(0.05):
        while True:
            time.sleep(0.01)


def test_what_takes_failures_for_choices_is_ended_too(monkeypatch: pytest.MonkeyPatch):
    """As PyTorch's autotuner does; and even where the first word is lost."""
    monkeypatch.setattr(capture, "_TOLD_AGAIN_S", 0.05)
    told = 0
    with pytest.raises(TimeoutError), at_most(0.05):
        while True:
            try:
                with contextlib.suppress(Exception):
                    time.sleep(0.01)
            except BaseException:
                told += 1
                if told > 1:
                    raise
    time.sleep(0.1)  # nothing is told after the end
    assert told == 2


def test_what_is_done_in_time_is_left_alone():
    with at_most(0.05):
        done = True
    time.sleep(0.1)
    assert done
