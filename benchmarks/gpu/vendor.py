"""The vendor's libraries through PyTorch, each in its best mode, replayed from CUDA graphs.

PyTorch is imported only here, and only where it is to be compared with. cuBLAS: through cublas and
cublasLt, with partial sums in FP16 and in FP32; the fastest of the four counts. cuDNN: NHWC
("channels last"), benchmark mode; uneven padding is made beforehand, and is not timed. Recurrent
layers: cuDNN multiplies the inputs too, which are eight columns here, and ours takes the products.
Attention:
its backends; the fastest counts. Compiled: `torch.compile(mode="max-autotune")`, and for models the
default mode, too, which takes seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from benchmarks.gpu.capture import Capturing, Replay, uncollected
from benchmarks.gpu.items import Attend, Convolution, Raced
from benchmarks.gpu.timing import operand_copies
from boltgen.ir.dtypes import Layout
from boltgen.ir.recurrence import Cell
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.recurrent.problem import Recurrent

_WARM_UPS = 3
# Columns of a recurrent layer's input.
_INPUTS = 8
# The modes of `torch.compile`, without CUDA graphs of its own: ours replay all columns.
DEFAULT_MODE, MAX_AUTOTUNE = "default", "max-autotune-no-cudagraphs"


class NoVendorError(Exception):
    """PyTorch is missing, or sees no GPU; the message says what to do."""


class Vendor:
    """PyTorch on the process's GPU; what it computes is the same on `device` "cpu", for tests.

    It `compiles` models and epilogues, for minutes, unless told otherwise.

    Raises:
        NoVendorError: it is not installed, or sees no GPU.
    """

    def __init__(self, device: str = "cuda", *, compiles: bool = True) -> None:
        way_out = (
            "install a build for CUDA 13, or give --no-vendor to measure without the vendor's "
            "columns"
        )
        try:
            import torch  # noqa: PLC0415 (only where it is compared with)
        except Exception as error:  # a library that is missing or of another release: of any kind
            said = f"PyTorch cannot be imported ({type(error).__name__}: {error})"
            raise NoVendorError(f"{said}; {way_out}") from error
        self.torch: Any = torch
        self.device, self.compiles = device, compiles
        if device != "cuda":
            return
        if not torch.cuda.is_available():
            said = f"PyTorch {torch.__version__} (for CUDA {torch.version.cuda}) sees no GPU"
            raise NoVendorError(f"{said}; {way_out}")
        torch.cuda.init()
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.benchmark_limit = 0  # every algorithm, not the first ten
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    @property
    def versions(self) -> dict[str, str]:
        """For the record."""
        torch = self.torch
        return {
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        }

    def use_stream(self, stream: int) -> None:
        """Let everything of PyTorch's run on that stream."""
        self.torch.cuda.set_stream(self.torch.cuda.ExternalStream(stream))

    def captured(self, calls: Sequence[Callable[[], object]]) -> Replay:
        """The calls as one CUDA graph, after a warm-up that lets libraries choose."""
        torch = self.torch
        for _ in range(_WARM_UPS):
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with uncollected(), torch.cuda.graph(graph):
                outputs = [call() for call in calls]
        finally:
            # If capturing fails, PyTorch goes on with the stream that it captured on: replays would
            # then run beside the events that time them.
            torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        # A graph has addresses: the tensors that the calls read and write must live as long as the
        # graph.
        return Replay(partial(_replay, graph, (list(calls), outputs)), len(calls))

    def random(self, *shape: int, scale: float = 1.5) -> Any:
        """FP16, uniform in [-scale, scale)."""
        torch = self.torch
        tensor = torch.empty(shape, device=self.device, dtype=torch.float16)
        return tensor.uniform_(-scale, scale)

    def sets(self, launches: int, tensors: Callable[[], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """As many copies of `tensors()` as a sample has launches, within the memory for them."""
        first = tensors()
        size = sum(t.numel() * t.element_size() for t in first)
        return [first, *(tensors() for _ in range(operand_copies(size, launches) - 1))]

    def products(self, problem: Gemm | Convolution, launches: int) -> list[tuple[Any, Any]]:
        """Operands of a product as PyTorch takes them: activations and weight.

        PyTorch pads both sides of an image alike. Images with other padding are padded here.
        """

        def operands() -> tuple[Any, Any]:
            torch = self.torch
            if isinstance(problem, Gemm):
                scale = 3.0 * problem.k**-0.5
                n_k = problem.b_layout is Layout.COLUMN
                b = self.random(*((problem.n, problem.k) if n_k else (problem.k, problem.n)))
                b.mul_(scale / 1.5)
                return self.random(problem.m, problem.k), b if n_k else b.t()
            filters, channels = _filters(problem)
            gemm_k = channels * problem.r * problem.s
            x = self.random(problem.n, problem.c, problem.h, problem.w)
            w = self.random(filters, channels, problem.r, problem.s, scale=3.0 * gemm_k**-0.5)
            if not _pads_evenly(problem):
                top, left, bottom, right = problem.padding
                x = torch.nn.functional.pad(x, (left, right, top, bottom))
            last = torch.channels_last
            return x.to(memory_format=last), w.to(memory_format=last)

        return self.sets(launches, operands)

    def product(self, problem: Gemm | Convolution, bias: Any = None) -> Callable[[Any, Any], Any]:
        """The function of `products`' activations and weight that computes `problem`."""
        functional = self.torch.nn.functional
        if isinstance(problem, Gemm):
            if problem.batch > 1:
                raise ValueError(f"one product is compared, not a batch of {problem.batch}")
            return lambda a, b: functional.linear(a, b, bias)
        padding = problem.padding[:2] if _pads_evenly(problem) else (0, 0)
        return lambda x, w: functional.conv2d(
            x,
            w,
            bias,
            stride=problem.stride,
            padding=padding,
            dilation=problem.dilation,
            groups=problem.c // _filters(problem)[1],
        )

    def recurrent(self, problem: Recurrent, launches: int) -> list[tuple[Any, Any]]:
        """Copies of a recurrent layer, each with inputs of its own: `_INPUTS` columns."""
        nn, cell = self.torch.nn, problem.cell
        kinds = {Cell.LSTM: nn.LSTM, Cell.GRU: nn.GRU, Cell.RNN_TANH: nn.RNN, Cell.RNN_RELU: nn.RNN}
        if cell not in kinds or problem.backwards:
            raise ValueError(f"PyTorch has no layer like {problem.short}")
        of_kind = {"nonlinearity": "relu"} if cell is Cell.RNN_RELU else {}
        both = problem.directions > 1

        def made() -> tuple[Any, Any]:
            layer = kinds[cell](_INPUTS, problem.hidden, bidirectional=both, **of_kind)
            layer = layer.to(device=self.device, dtype=self.torch.float16).requires_grad_(False)
            return layer, self.random(problem.steps, problem.batch_rows, _INPUTS)

        first = made()
        size = sum(t.numel() * t.element_size() for t in (*first[0].parameters(), first[1]))
        return [first, *(made() for _ in range(operand_copies(size, launches) - 1))]

    def replays(self, problem: Raced, launches: int) -> Capturing:
        """The problem in each mode of the vendor's library, by name."""
        if isinstance(problem, Recurrent):
            layers = cache(partial(self.recurrent, problem, launches))
            return {"cudnn": lambda: self.captured([partial(f, x) for f, x in layers()])}

        @cache
        def calls() -> list[Callable[[], object]]:
            run = self.product(problem)
            return [partial(run, a, b) for a, b in self.products(problem, launches)]

        if not isinstance(problem, Gemm):
            name = "cudnn" if _pads_evenly(problem) else "cudnn_padded_before"
            return {name: lambda: self.captured(calls())}

        def in_mode(library: str, reduced: bool) -> Replay:
            with self.blas(library, reduced=reduced):
                return self.captured(calls())

        return {
            f"{library}_{'fp16' if reduced else 'fp32'}_sums": partial(in_mode, library, reduced)
            for library, reduced in itertools.product(("cublas", "cublaslt"), (True, False))
        }

    def attention(self, item: Attend, launches: int) -> Capturing:
        """Attention in each of PyTorch's backends, by name."""

        @cache
        def sets() -> list[tuple[Any, ...]]:
            return self.sets(launches, lambda: self.heads(item))

        def in_backend(backend: Any) -> Replay:
            with self.torch.nn.attention.sdpa_kernel(backend):
                return self.captured([partial(self.attend, item, *each) for each in sets()])

        backends = self.torch.nn.attention.SDPBackend
        named = {
            "flash": backends.FLASH_ATTENTION,
            "cudnn": backends.CUDNN_ATTENTION,
            "efficient": backends.EFFICIENT_ATTENTION,
        }
        return {name: partial(in_backend, backend) for name, backend in named.items()}

    def heads(self, item: Attend) -> tuple[Any, Any, Any]:
        """Queries, keys and values as they lie in memory for ours: one head after another."""
        queries, keys = (
            (1, item.heads, item.rows, item.depth),
            (1, item.heads, item.keys, item.depth),
        )
        return self.random(*queries), self.random(*keys), self.random(*keys)

    def attend(self, item: Attend, q: Any, k: Any, v: Any) -> Any:
        """softmax(Q K / sqrt(depth)) V, where it is causal without the later keys."""
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, is_causal=item.is_causal)

    def fused(self, problem: Gemm | Conv2d, activation: str, launches: int) -> Capturing:
        """The product with bias and activation: eager, and compiled."""
        channels = problem.n if isinstance(problem, Gemm) else problem.k

        @cache
        def operands() -> tuple[list[tuple[Any, Any]], Callable[[Any, Any], Any]]:
            whole = self.with_epilogue(problem, self.random(channels), activation)
            return self.products(problem, launches), whole

        def of(form: Callable[[Any], Callable[[Any, Any], Any]]) -> Replay:
            sets, whole = operands()
            function = form(whole)
            return self.captured([partial(function, x, w) for x, w in sets])

        eager = {"eager": lambda: of(lambda whole: whole)}
        return {**eager, "compiled": lambda: of(self.compiled)} if self.compiles else eager

    def with_epilogue(
        self, problem: Gemm | Conv2d, bias: Any, activation: str
    ) -> Callable[[Any, Any], Any]:
        """The function of activations and weight: activation(product + bias).

        `activation` is a name of `shapes.ACTIVATIONS`, which are PyTorch's names.
        """
        product = self.product(problem, bias)
        act = getattr(self.torch.nn.functional, activation)
        return lambda x, w: act(product(x, w))

    @contextmanager
    def blas(self, library: str, *, reduced: bool) -> Iterator[None]:
        """Which of the two libraries, and whether partial sums may be FP16."""
        backend = self.torch.backends.cuda
        before = (
            backend.preferred_blas_library(),
            backend.matmul.allow_fp16_reduced_precision_reduction,
        )
        backend.preferred_blas_library(library)
        backend.matmul.allow_fp16_reduced_precision_reduction = reduced
        try:
            yield
        finally:
            backend.preferred_blas_library(before[0])
            backend.matmul.allow_fp16_reduced_precision_reduction = before[1]

    def compiled(
        self, function: Callable[..., Any], mode: str = MAX_AUTOTUNE
    ) -> Callable[..., Any]:
        """Compile by `torch.compile` in that mode.

        What was compiled before is forgotten: after eight versions of one line of code, whatever
        they close over, PyTorch would run it uncompiled, and say nothing.
        """
        self.torch.compiler.reset()
        found: Callable[..., Any] = self.torch.compile(function, mode=mode, dynamic=False)
        return found

    def kernels(self, call: Callable[[], object]) -> list[dict[str, Any]]:
        """The kernels that `call` launches, whoever's they are, by their time in all: the longest
        first. CUPTI times them, launched one by one.
        """
        torch = self.torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        found = [
            {"kernel": event.key, "launches": event.count, "us": event.self_device_time_total}
            for event in profile.key_averages()
            if event.self_device_time_total > 0
        ]
        return sorted(found, key=lambda one: -float(one["us"]))

    @contextmanager
    def untuned(self) -> Iterator[None]:
        """cuDNN takes its likeliest algorithm meanwhile: what runs once is not worth trying all."""
        cudnn = self.torch.backends.cudnn
        before = cudnn.benchmark
        cudnn.benchmark = False
        try:
            yield
        finally:
            cudnn.benchmark = before


def _filters(problem: Convolution) -> tuple[int, int]:
    """Return the number of filters, and the channels of each."""
    if isinstance(problem, Depthwise):
        return problem.c * problem.multiplier, 1
    return problem.k, problem.c // problem.groups


def _pads_evenly(problem: Convolution) -> bool:
    """Whether both sides of an image are padded alike."""
    return problem.padding[:2] == problem.padding[2:]


def _replay(graph: Any, kept: object) -> None:
    """Replay a graph; `kept` lives as long as what calls this."""
    graph.replay()
