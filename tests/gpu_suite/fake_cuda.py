"""What `torch.cuda` does of capturing, without a GPU: streams that run nothing, and note it.

The context manager that captures is PyTorch's own (`torch.cuda.graph`); what it calls is here, and
refuses what CUDA and PyTorch refuse.
Source: torch/cuda/graphs.py; "Prohibited and Unhandled Operations" of the CUDA Programming Guide's
chapter on stream capture; "CUDA Graphs" of PyTorch's CUDA semantics.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch


class CudaError(RuntimeError):
    """What PyTorch raises for an error of CUDA's."""


class Stream:
    """A stream by its handle; 0 is the legacy default stream."""

    made = 0

    def __init__(self, handle: int | None = None) -> None:
        if handle is None:
            Stream.made += 1
            handle = 0x1000 + Stream.made
        self.cuda_stream = handle


class Memory:
    """A tensor's memory, which nothing may free while a stream is captured."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def __del__(self) -> None:
        if self._cuda.capturing is not None:
            self._cuda.is_spoilt = True


class Graph:
    """A CUDA graph: what was launched while it was captured, with weak references to memory."""

    cuda: FakeCuda

    def __init__(self) -> None:
        self.nodes: list[list[weakref.ref[Memory]]] | None = None

    def capture_begin(self, **options: Any) -> None:
        cuda = self.cuda
        if cuda.current.cuda_stream == 0:
            raise CudaError("CUDA graphs must be captured on a non-default stream")
        if cuda.is_pending:
            raise CudaError("work was pending on another stream")
        cuda.capturing, cuda.is_spoilt = [], False

    def capture_end(self) -> None:
        cuda = self.cuda
        captured, cuda.capturing = cuda.capturing, None
        if cuda.is_spoilt:
            raise CudaError("operation failed due to a previous error during capture")
        self.nodes = captured

    def replay(self) -> None:
        cuda = self.cuda
        assert self.nodes is not None
        for memory in self.nodes:
            if any(one() is None for one in memory):
                raise CudaError("an illegal memory access was encountered")
        cuda.launched += [cuda.current.cuda_stream] * len(self.nodes)


class FakeCuda:
    """`launched` has the stream of everything that ran, in order."""

    def __init__(self) -> None:
        self.current = Stream(0)
        self.capturing: list[list[weakref.ref[Memory]]] | None = None
        self.is_spoilt = False
        self.is_pending = False
        self.launched: list[int] = []

    def memory(self) -> Memory:
        """A tensor, as far as this is concerned."""
        return Memory(self)

    def call(self, operand: Memory) -> Memory:
        """A kernel that reads `operand` and writes what it returns."""
        output = Memory(self)
        if self.capturing is not None:
            self.capturing.append([weakref.ref(operand), weakref.ref(output)])
        else:
            self.launched.append(self.current.cuda_stream)
            self.is_pending = True
        return output

    def fails(self) -> None:
        """A call that CUDA forbids while capturing, and that so spoils the capture."""
        self.is_spoilt = True
        raise CudaError("operation not permitted when stream is capturing")

    def synchronize(self) -> None:
        if self.capturing is not None:
            self.fails()
        self.is_pending = False

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def set_stream(self, stream: Stream) -> None:
        self.current = stream


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """In the place of what `torch.cuda` is made of."""
    fake = FakeCuda()
    graph = type("CUDAGraph", (Graph,), {"cuda": fake})
    parts: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "init": lambda: None,
        "empty_cache": lambda: None,
        "Stream": Stream,
        "ExternalStream": Stream,
        "CUDAGraph": graph,
        "stream": fake.stream,
        "set_stream": fake.set_stream,
        "current_stream": lambda: fake.current,
        "synchronize": fake.synchronize,
    }
    for name, part in parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", None)
    settings = [
        (torch.backends.cudnn, "benchmark"),
        (torch.backends.cudnn, "benchmark_limit"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_tf32"),
    ]
    before = [getattr(module, name) for module, name in settings]
    yield fake
    for (module, name), value in zip(settings, before, strict=True):
        setattr(module, name, value)
