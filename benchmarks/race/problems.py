"""The problems of the race: tensors, the result that is expected, and the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import SOFTMAX, BinaryOp, ElementwiseGraph, LoadKind, local_softmax
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Layer, Workload

Array = np.ndarray[Any, Any]
# Tensors by name, in the order in which boltgen's kernels take them: A, then every layer's B and
# operands.
Arrays = Mapping[str, Array]


class Problem(Protocol):
    """One problem that several contestants compute.

    `work` is the number that instructions are divided by: multiplications with an addition, or
    elements where there are no products.
    """

    unit: ClassVar[str]  # of `work`, for the table

    @property
    def inputs(self) -> int:
        """Return the number of tensors that `draw` returns."""
        ...

    @property
    def name(self) -> str:
        """The problem in a few words, with its extents."""
        ...

    @property
    def work(self) -> int:
        """Multiply-adds, or elements."""
        ...

    @property
    def workload(self) -> Workload:
        """The problem in boltgen's terms."""
        ...

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Draw the tensors."""
        ...

    def expected(self, arrays: Arrays) -> Array:
        """Compute the result in FP32."""
        ...


def drawn(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Draw an FP16 tensor from a normal distribution."""
    found: Array = (rng.standard_normal(shape, np.float32) * scale).astype(np.float16)
    return found


@dataclass(frozen=True)
class Matmul:
    """D = A B, B column-major: what a linear layer without bias computes."""

    unit: ClassVar[str] = "multiply-add"
    inputs: int = field(default=2, init=False)

    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """`matmul 1280x3072x768`."""
        return f"matmul {self.m}x{self.n}x{self.k}"

    @property
    def work(self) -> int:
        """M N K."""
        return self.m * self.n * self.k

    @cached_property
    def workload(self) -> Workload:
        """One GEMM, FP16 with sums in FP32."""
        return Workload.of(
            Gemm(m=self.m, n=self.n, k=self.k, b_layout=Layout.COLUMN, out_dtype=DType.F16)
        )

    def draw(self, rng: np.random.Generator) -> Arrays:
        """A: (M, K); B: (N, K)."""
        return {
            "a": drawn(rng, self.m, self.k),
            "b": drawn(rng, self.n, self.k, scale=self.k**-0.5),
        }

    def expected(self, arrays: Arrays) -> Array:
        """Multiply in FP32."""
        found: Array = arrays["a"].astype(np.float32) @ arrays["b"].astype(np.float32).T
        return found


@dataclass(frozen=True)
class Attention:
    """softmax(Q K^T / sqrt(depth)) V of each head; tensors are (heads, tokens, depth)."""

    unit: ClassVar[str] = "multiply-add"
    inputs: int = field(default=3, init=False)

    heads: int
    tokens: int
    depth: int
    causal: bool = False

    @property
    def name(self) -> str:
        """`attention 8x1024x64 causal`."""
        mask = " causal" if self.causal else ""
        return f"attention {self.heads}x{self.tokens}x{self.depth}{mask}"

    @property
    def work(self) -> int:
        """The multiply-adds of both products, without the scores that a causal mask hides."""
        keys = (self.tokens + 1) / 2 if self.causal else self.tokens
        return int(2 * self.heads * self.tokens * keys * self.depth)

    @cached_property
    def workload(self) -> Workload:
        """Two products with a softmax between."""
        scores = Gemm(
            batch=self.heads,
            m=self.tokens,
            n=self.tokens,
            k=self.depth,
            b_layout=Layout.COLUMN,
            out_dtype=DType.F32,
        )
        output = Gemm(batch=self.heads, m=self.tokens, n=self.depth, k=self.tokens)
        scaled = ElementwiseBuilder()
        scaled.binary(BinaryOp.MULTIPLY, 0, scaled.scalar(self.depth**-0.5))
        softmax = local_softmax(0) if self.causal else SOFTMAX
        return Workload(
            layers=(
                Layer(problem=scores, epilogue=scaled.build()),
                Layer(problem=output, prologue=softmax),
            )
        )

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Q, K and V."""
        return {name: drawn(rng, self.heads, self.tokens, self.depth) for name in "qkv"}

    def expected(self, arrays: Arrays) -> Array:
        """Compute in FP32."""
        q, k, v = (arrays[name].astype(np.float32) for name in "qkv")
        scores = q @ k.transpose(0, 2, 1) * self.depth**-0.5
        if self.causal:
            scores[:, np.triu(np.ones((self.tokens, self.tokens), bool), 1)] = -np.inf
        found: Array = softmax_of(scores) @ v
        return found


def softmax_of(x: Array) -> Array:
    """Compute a softmax over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    found: Array = powers / powers.sum(-1, keepdims=True)
    return found


@dataclass(frozen=True)
class RowNorm:
    """A softmax, a layer norm with scale and shift, or an RMS norm with scale, of each row."""

    unit: ClassVar[str] = "element"

    function: NormFunction
    rows: int
    columns: int

    @property
    def inputs(self) -> int:
        """X, scale and shift."""
        return 1 + ("scale" in self.operands) + ("shift" in self.operands)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of its rows."""
        named = {NormFunction.LAYER: ("scale", "shift"), NormFunction.RMS: ("scale",)}
        return named.get(self.function, ())

    @property
    def epsilon(self) -> float:
        """The term that keeps the divisor from 0."""
        return 1e-5 if self.operands else 0.0

    @property
    def name(self) -> str:
        """`layer_norm 2048x768`."""
        return f"{self.function.value} {self.rows}x{self.columns}"

    @property
    def work(self) -> int:
        """The elements."""
        return self.rows * self.columns

    @cached_property
    def workload(self) -> Workload:
        """A norm, with scale and shift as its epilogue."""
        norm = Norm(
            rows=self.rows, columns=self.columns, function=self.function, epsilon=self.epsilon
        )
        graph, x = ElementwiseBuilder(), 0
        for operand in self.operands:
            op = BinaryOp.MULTIPLY if operand == "scale" else BinaryOp.ADD
            x = graph.binary(op, x, graph.load(LoadKind.ROW))
        return Workload.of(norm, graph.build() if self.operands else ElementwiseGraph())

    def draw(self, rng: np.random.Generator) -> Arrays:
        """X: (rows, columns), and rows."""
        x = {"x": drawn(rng, self.rows, self.columns)}
        return x | {name: drawn(rng, self.columns) for name in self.operands}

    def expected(self, arrays: Arrays) -> Array:
        """Compute in FP32."""
        x: Array = arrays["x"].astype(np.float32)
        if self.function is NormFunction.SOFTMAX:
            return softmax_of(x)
        if self.function is NormFunction.LAYER:
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * arrays["scale"]
        return x + arrays["shift"].astype(np.float32) if "shift" in arrays else x


@dataclass(frozen=True)
class Convolution:
    """A square convolution of square NHWC images, with the padding that keeps their extent."""

    unit: ClassVar[str] = "multiply-add"
    inputs: int = field(default=2, init=False)

    n: int
    h: int
    c: int
    k: int
    r: int
    stride: int = 1

    @property
    def name(self) -> str:
        """`conv 1x56x56x64 64x3x3 s1`."""
        image = f"{self.n}x{self.h}x{self.h}x{self.c}"
        return f"conv {image} {self.k}x{self.r}x{self.r} s{self.stride}"

    @property
    def pad(self) -> int:
        """Pixels on each side."""
        return self.r // 2

    @property
    def p(self) -> int:
        """Height and width of the result."""
        return (self.h + 2 * self.pad - self.r) // self.stride + 1

    @property
    def work(self) -> int:
        """Return N P Q K R S C, and the extents with padding."""
        return self.n * self.p**2 * self.k * self.r**2 * self.c

    @cached_property
    def workload(self) -> Workload:
        """One convolution."""
        return Workload.of(
            Conv2d(
                n=self.n,
                h=self.h,
                w=self.h,
                c=self.c,
                k=self.k,
                r=self.r,
                s=self.r,
                stride=(self.stride,) * 2,
                padding=(self.pad,) * 4,
            )
        )

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Images (N, H, W, C) and a filter (K, R, S, C)."""
        scale = (self.r**2 * self.c) ** -0.5
        return {
            "x": drawn(rng, self.n, self.h, self.h, self.c),
            "w": drawn(rng, self.k, self.r, self.r, self.c, scale=scale),
        }

    def expected(self, arrays: Arrays) -> Array:
        """Add up the products of every place of the filter, in FP32."""
        w = arrays["w"].astype(np.float32)
        found = np.zeros((self.n, self.p, self.p, self.k), np.float32)
        for i, j, pixels in met_pixels(self, arrays["x"]):
            found += pixels @ w[:, i, j, :].T
        return found


@dataclass(frozen=True)
class DepthwiseConvolution:
    """A square depthwise convolution of square NHWC images, with the padding that keeps them."""

    unit: ClassVar[str] = "multiply-add"
    inputs: int = field(default=2, init=False)

    n: int
    h: int
    c: int
    r: int
    stride: int = 1

    @property
    def name(self) -> str:
        """`depthwise 8x56x56x144 3x3 s1`."""
        return f"depthwise {self.n}x{self.h}x{self.h}x{self.c} {self.r}x{self.r} s{self.stride}"

    @property
    def pad(self) -> int:
        """Pixels on each side."""
        return self.r // 2

    @property
    def p(self) -> int:
        """Height and width of the result."""
        return (self.h + 2 * self.pad - self.r) // self.stride + 1

    @property
    def work(self) -> int:
        """N P Q R S C."""
        return self.n * self.p**2 * self.r**2 * self.c

    @property
    def filter_shape(self) -> tuple[int, int, int, int]:
        """(R, S, C, 1)."""
        return self.r, self.r, self.c, 1

    @cached_property
    def workload(self) -> Workload:
        """One depthwise convolution, summed in FP32."""
        return Workload.of(
            Depthwise(
                n=self.n,
                h=self.h,
                w=self.h,
                c=self.c,
                r=self.r,
                s=self.r,
                stride=(self.stride,) * 2,
                padding=(self.pad,) * 4,
            )
        )

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Images (N, H, W, C) and a filter (R, S, C, 1)."""
        return {
            "x": drawn(rng, self.n, self.h, self.h, self.c),
            "w": drawn(rng, *self.filter_shape, scale=1 / self.r),
        }

    def expected(self, arrays: Arrays) -> Array:
        """Add up the products of every place of the filter, in FP32."""
        found = np.zeros((self.n, self.p, self.p, self.c), np.float32)
        for i, j, pixels in met_pixels(self, arrays["x"]):
            found += pixels * arrays["w"][i, j, :, 0].astype(np.float32)
        return found


def met_pixels(
    problem: Convolution | DepthwiseConvolution, x: Array
) -> Iterator[tuple[int, int, Array]]:
    """Yield each place of the filter, and the pixels that it meets in FP32: (N, P, P, C)."""
    edges = ((0, 0), (problem.pad,) * 2, (problem.pad,) * 2, (0, 0))
    padded = np.pad(x.astype(np.float32), edges)
    span, step = problem.stride * (problem.p - 1) + 1, problem.stride
    for i, j in np.ndindex(problem.r, problem.r):
        yield i, j, padded[:, i : i + span : step, j : j + span : step]
