"""Problems: what one fused operator computes without its elementwise neighbours.

Arrow: the frontend's carving makes them, everything after reads them. A problem knows its operands,
its sizes at run time and its work, so that whoever handles one need not ask which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import BYTES, DType, ElementType, Layout, alignment_elements
from boltgen.ir.extent import Dim
from boltgen.ir.gathered import Gathered
from boltgen.ir.gemm import Array, Gemm, Problem
from boltgen.ir.group_norm import GroupNorm
from boltgen.ir.grouped import GroupedGemm
from boltgen.ir.norm import Norm
from boltgen.ir.packed import PackedWeights
from boltgen.ir.problem_checks import check_dtypes, check_positive

__all__ = [
    "PROBLEM_KINDS",
    "Array",
    "Conv2d",
    "Gemm",
    "GroupNorm",
    "GroupedGemm",
    "Norm",
    "Problem",
    "describe",
    "element_b",
    "gathered",
    "in_groups",
    "is_paired",
    "packed_weights",
    "with_extents",
]


@lru_cache(maxsize=4096)
def _implicit_gemm(
    extents: tuple[int, int, int], in_dtype: DType, acc_dtype: DType, out_dtype: DType
) -> Gemm:
    """The product of a convolution; models ask for it thousands of times."""
    m, n, k = extents
    return Gemm(
        m=m,
        n=n,
        k=k,
        b_layout=Layout.COLUMN,
        in_dtype=in_dtype,
        acc_dtype=acc_dtype,
        out_dtype=out_dtype,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Forward convolution (cross-correlation), one group.

    Activation: (N, H, W, C). Weight: (K, R, S, C). Output: (N, P, Q, K). Padding is (top, left,
    bottom, right), in pixels.

    Raises:
        InvalidProblemError: an extent, its own or of its implicit matrix product, is out of range,
            its types are none that a `Gemm` takes, or the filter does not fit into the padded
            activation.
    """

    kind: ClassVar[str] = "conv2d"

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "k", "r", "s"))
        check_dtypes(self)
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise InvalidProblemError(
                f"Conv2d: stride={self.stride} and dilation={self.dilation} must be at least 1, "
                f"padding={self.padding} at least 0"
            )
        if self.p < 1 or self.q < 1:
            raise InvalidProblemError(
                f"Conv2d: a {self.r}x{self.s} filter with dilation {self.dilation} does not fit "
                f"into a {self.h}x{self.w} activation with padding {self.padding}"
            )
        _ = self.gemm  # whose extents are checked when it is made

    @property
    def p(self) -> int:
        """Rows of the output."""
        reach = self.dilation[0] * (self.r - 1) + 1
        return (self.h + self.padding[0] + self.padding[2] - reach) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Columns of the output."""
        reach = self.dilation[1] * (self.s - 1) + 1
        return (self.w + self.padding[1] + self.padding[3] - reach) // self.stride[1] + 1

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a 1x1, stride-1, unpadded convolution: a plain matrix product."""
        return (self.r, self.s) == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0, 0, 0)

    @property
    def short(self) -> str:
        """`conv 1x56x56x64 to 64, 3x3, stride 2x2`."""
        stride = "" if self.stride == (1, 1) else f", stride {self.stride[0]}x{self.stride[1]}"
        return f"conv {self.n}x{self.h}x{self.w}x{self.c} to {self.k}, {self.r}x{self.s}{stride}"

    @property
    def gemm(self) -> Gemm:
        """The matrix product that computes it: M = N*P*Q, N = K, K = R*S*C."""
        extents = self.n * self.p * self.q, self.k, self.r * self.s * self.c
        return _implicit_gemm(extents, self.in_dtype, self.acc_dtype, self.out_dtype)

    @property
    def batch(self) -> int:
        """One: its images are rows of one product."""
        return 1

    @property
    def canonical(self) -> Problem:
        """The plain product where it is pointwise: in NHWC its activation is a matrix."""
        return self.gemm if self.is_pointwise else self

    @property
    def is_product(self) -> bool:
        """Yes, of each pixel's neighbourhood."""
        return True

    @property
    def is_exact(self) -> bool:
        """No: sums are rounded."""
        return False

    @property
    def storable(self) -> frozenset[DType]:
        """The type of its operands, and FP32."""
        return frozenset({self.in_dtype, DType.F32})

    @property
    def matrix(self) -> tuple[int, int]:
        """(N*P*Q, K)."""
        return self.n * self.p * self.q, self.k

    @property
    def is_matrix(self) -> bool:
        """It is not: which pixels a filter meets depends on each dimension."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(N, H, W, C)."""
        return self.n, self.h, self.w, self.c

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(K, R, S, C)."""
        return self.k, self.r, self.s, self.c

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(N, P, Q, K)."""
        return self.n, self.p, self.q, self.k

    @property
    def alignment_a(self) -> int:
        """Elements of the activation per vector access."""
        return alignment_elements(self.in_dtype, self.c)

    @property
    def alignment_b(self) -> int:
        """Elements of the weight per vector access."""
        return alignment_elements(self.in_dtype, self.c)

    @property
    def alignment_d(self) -> int:
        """Elements of the output, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.k)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.n * self.p * self.q * self.k * self.r * self.s * self.c

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that the filter touches; strides may leave some out."""
        rows, columns = min(self.h, self.p * self.r), min(self.w, self.q * self.s)
        return self.n * rows * columns * self.c * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the filters."""
        return self.k * self.r * self.s * self.c * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """Those of `boltgen_conv2d_args`."""
        return {
            **{name: getattr(self, name) for name in "nhwckrspq"},
            "pad_h": self.padding[0],
            "pad_w": self.padding[1],
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "dilation_h": self.dilation[0],
            "dilation_w": self.dilation[1],
        }

    @property
    def extents(self) -> dict[str, int]:
        """Those of `profiler_conv2d`, which are those of a launch."""
        return self.sizes

    @property
    def slice_rows(self) -> int:
        """The pixels of an image."""
        return self.p * self.q

    def in_slices(self, rows: int) -> Conv2d:
        """Itself: its images are its slices."""
        del rows
        return self

    def resized(self, channels: int, filters: int) -> Conv2d:
        """The convolution of so many channels by so many filters."""
        return replace(self, c=channels, k=filters)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """What the weight's dimensions gain."""
        return filters, 0, 0, channels

    def product(self, a: Array, b: Array) -> Array:
        """The convolution in FP64."""
        top, left, bottom, right = self.padding
        padded = np.pad(a, ((0, 0), (top, bottom), (left, right), (0, 0)))
        result = np.zeros(self.d_shape)
        for r in range(self.r):
            for s in range(self.s):
                y, x = r * self.dilation[0], s * self.dilation[1]
                rows = slice(y, y + (self.p - 1) * self.stride[0] + 1, self.stride[0])
                columns = slice(x, x + (self.q - 1) * self.stride[1] + 1, self.stride[1])
                result += padded[:, rows, columns, :] @ b[:, r, s, :].T
        return result


def with_extents(problem: Problem, change: Callable[[Dim], int]) -> Problem:
    """`problem` with each of its symbolic extents changed."""
    kind: Any = problem
    given = {each.name: getattr(problem, each.name) for each in fields(kind)}
    changed = {name: change(value) for name, value in given.items() if isinstance(value, Dim)}
    made: Problem = replace(kind, **changed) if changed else problem
    return made


def packed_weights(problem: Problem) -> PackedWeights | None:
    """The form in which a product's B is packed; None where it is not."""
    return problem.weights if isinstance(problem, Gemm) else None


def is_paired(problem: Problem) -> bool:
    """Whether D is made of two products of one A."""
    return isinstance(problem, Gemm) and problem.paired


def in_groups(problem: Problem) -> GroupedGemm | None:
    """A product of rows in groups, which takes `ends` besides A and B; None of any other."""
    return problem if isinstance(problem, GroupedGemm) else None


def gathered(problem: Problem) -> Gathered | None:
    """How the rows of a problem are taken of A; None where A has them in order."""
    return problem.gathered if isinstance(problem, (GroupedGemm, Norm)) else None


def element_b(problem: Problem) -> ElementType:
    """The type of B's elements in memory."""
    return problem.in_dtype if packed_weights(problem) is None else BYTES


# The kinds of problems that there are, as records and metadata name them.
PROBLEM_KINDS: tuple[type[Any], ...] = (Gemm, Conv2d, Norm, GroupedGemm, GroupNorm)


def describe(problem: Problem) -> str:
    """One line for people: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

    def show(value: object) -> str:
        if isinstance(value, PackedWeights):
            return value.short
        return str(value.value) if isinstance(value, Enum) else str(value)

    kind: Any = problem
    quiet = {"batch", "a_batched", "b_batched"} if problem.batch == 1 else set()
    quiet |= {"weights"} if packed_weights(problem) is None else set()
    quiet |= set() if is_paired(problem) else {"paired"}
    quiet |= set() if problem.slice_rows else {"slice_rows"}
    quiet |= {"a_rows", "rows_dtype"} if gathered(problem) is None else set()
    shown = ", ".join(
        f"{field.name}={show(getattr(problem, field.name))}"
        for field in fields(kind)
        if field.name not in quiet
    )
    return f"{type(problem).__name__}({shown})"
