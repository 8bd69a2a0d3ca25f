"""Problems: what one fused operator computes without its elementwise neighbours.

Arrow: the frontend's carving makes them, everything after reads them. A problem knows its operands,
its sizes at run time and its work, so that whoever handles one need not ask which kind it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements

# CUTLASS 2.x takes extents as int32.
_MAX_EXTENT = 2**31 - 1
# The batch index is the grid's z dimension. Source: CUDA C++ Programming Guide, technical
# specifications (z-dimension of a grid: 65535).
_MOST_BATCH = 65535

Array = NDArray[np.float64]
_Self = TypeVar("_Self", bound="Problem")


class Problem(Protocol):
    """What a kernel computes: D = A x B, in the sense of one kind of product.

    A problem is a frozen dataclass, valid once it is made. All shapes are in elements, as the
    tensors lie in memory without gaps.
    """

    @property
    def in_dtype(self) -> DType:
        """The type of A and B."""
        ...

    @property
    def acc_dtype(self) -> DType:
        """The type in which products are summed."""
        ...

    @property
    def out_dtype(self) -> DType:
        """The type of D."""
        ...

    @property
    def gemm(self) -> Gemm:
        """The matrix product that computes it, or one of its batch."""
        ...

    @property
    def batch(self) -> int:
        """How many products of the shape of `gemm` it is."""
        ...

    @property
    def a_shape(self) -> tuple[int, ...]:
        """Shape of A."""
        ...

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of B."""
        ...

    @property
    def d_shape(self) -> tuple[int, ...]:
        """Shape of D; its last extent is N, those before it are the batch and M."""
        ...

    @property
    def is_matrix(self) -> bool:
        """Whether A and B are matrices, whose rows may be counted in several dimensions."""
        ...

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access."""
        ...

    @property
    def alignment_b(self) -> int:
        """Elements of B per vector access."""
        ...

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        ...

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        ...

    @property
    def a_bytes(self) -> int:
        """Bytes of A that the product reads, each once."""
        ...

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        ...

    @property
    def sizes(self) -> dict[str, int]:
        """Extents and strides by the names of the C argument struct; strides in elements."""
        ...

    @property
    def canonical(self) -> Problem:
        """The simplest problem that computes the same from the same memory."""
        ...

    @property
    def short(self) -> str:
        """Enough for people to know it by: "gemm 64x10x128"."""
        ...

    def resized(self: _Self, channels: int, filters: int) -> _Self:
        """The problem with so many channels of A and of D: the last extents of both."""
        ...

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """What each dimension of B gains where A has so many channels more, and D."""
        ...

    def product(self, a: Array, b: Array) -> Array:
        """The product in FP64 of operands of `a_shape` and `b_shape`, of `d_shape`."""
        ...


def _check_positive(problem: Problem, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(problem, name)
        if not 1 <= value <= _MAX_EXTENT:
            raise InvalidProblemError(
                f"{type(problem).__name__}: {name}={value} is out of range; "
                f"extents are 1 to {_MAX_EXTENT}"
            )


def _check_dtypes(problem: Problem) -> None:
    if problem.in_dtype is not DType.F16:
        raise InvalidProblemError(
            f"{type(problem).__name__}: operands are {problem.in_dtype.value}; "
            "tensor-core kernels take float16: convert the model to FP16 first"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` matrix products of one shape, the matrices of an operand a constant stride apart.

    A: (M, K) row-major. B: (K, N), row-major, or column-major (stored as (N, K)). D: (M, N)
    row-major. With a batch beyond 1 each has the batch in front, A and B unless all products share
    it (`a_batched`, `b_batched`); a batch of 1 shares nothing.

    Raises:
        InvalidProblemError: an extent is not in 1..2**31-1, the batch exceeds the grid's z
            dimension, or an operand is not float16.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    b_layout: Layout = Layout.ROW
    a_batched: bool = True
    b_batched: bool = True
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        _check_positive(self, ("m", "n", "k", "batch"))
        _check_dtypes(self)
        if self.batch > _MOST_BATCH:
            raise InvalidProblemError(
                f"Gemm: batch={self.batch} exceeds {_MOST_BATCH}, the grid's z dimension"
            )
        if self.batch == 1 and not (self.a_batched and self.b_batched):
            raise InvalidProblemError("Gemm: batch=1 has no other product to share A or B with")

    @property
    def gemm(self) -> Gemm:
        """One of the products."""
        if self.batch == 1:
            return self
        return replace(self, batch=1, a_batched=True, b_batched=True)

    def as_batch(self, batch: int) -> Gemm:
        """The same as `batch` products, which divides M, of one B."""
        return replace(self, batch=batch, m=self.m // batch, b_batched=False)

    @property
    def short(self) -> str:
        """`gemm 64x10x128`, `6 x gemm 64x10x128`."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}gemm {self.m}x{self.n}x{self.k}"

    @property
    def is_foldable(self) -> bool:
        """Whether the whole batch shares B: then it is one product of more rows."""
        shares = self.batch > 1 and self.a_batched and not self.b_batched
        return shares and self.batch * self.m <= _MAX_EXTENT

    @property
    def folded(self) -> Gemm:
        """The one product of more rows that a batch is which shares B."""
        return replace(self.gemm, m=self.batch * self.m)

    @property
    def canonical(self) -> Gemm:
        """The same, its batch folded where it can be."""
        return self.folded if self.is_foldable else self

    @property
    def is_matrix(self) -> bool:
        """It is."""
        return True

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(M, K), or (batch, M, K)."""
        return self._batched((self.m, self.k), self.a_batched)

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(K, N), or (N, K) where it is column-major; with the batch in front."""
        matrix = (self.k, self.n) if self.b_layout is Layout.ROW else (self.n, self.k)
        return self._batched(matrix, self.b_batched)

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(M, N), or (batch, M, N)."""
        return self._batched((self.m, self.n), True)

    def _batched(self, matrix: tuple[int, int], is_batched: bool) -> tuple[int, ...]:
        return (self.batch, *matrix) if self.batch > 1 and is_batched else matrix

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access."""
        return alignment_elements(self.in_dtype, self.k)

    @property
    def alignment_b(self) -> int:
        """Elements of B per vector access."""
        return alignment_elements(self.in_dtype, self.n if self.b_layout is Layout.ROW else self.k)

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.n)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def a_bytes(self) -> int:
        """Bytes of A."""
        batch = self.batch if self.a_batched else 1
        return batch * self.m * self.k * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        batch = self.batch if self.b_batched else 1
        return batch * self.k * self.n * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """Those of `boltgen_gemm_args`."""
        m, n, k, is_batch = self.m, self.n, self.k, self.batch > 1
        return {
            "m": m,
            "n": n,
            "k": k,
            "batch": self.batch,
            "lda": k,
            "ldb": n if self.b_layout is Layout.ROW else k,
            "ldd": n,
            "batch_stride_a": m * k if is_batch and self.a_batched else 0,
            "batch_stride_b": n * k if is_batch and self.b_batched else 0,
            "batch_stride_d": m * n if is_batch else 0,
        }

    def resized(self, channels: int, filters: int) -> Gemm:
        """The product of so many columns of A and of D."""
        return replace(self, k=channels, n=filters)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """What B's rows and columns gain."""
        return (channels, filters) if self.b_layout is Layout.ROW else (filters, channels)

    def product(self, a: Array, b: Array) -> Array:
        """The product in FP64."""
        stored = b if self.b_layout is Layout.ROW else np.swapaxes(b, -1, -2)
        return np.asarray(np.matmul(a, stored), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Forward convolution (cross-correlation), one group.

    Activation: (N, H, W, C). Weight: (K, R, S, C). Output: (N, P, Q, K). Padding is (top, left,
    bottom, right), in pixels.

    Raises:
        InvalidProblemError: an extent, its own or of its implicit matrix product, is out of range,
            an operand is not float16, or the filter does not fit into the padded activation.
    """

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
        _check_positive(self, ("n", "h", "w", "c", "k", "r", "s"))
        _check_dtypes(self)
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
        return Gemm(
            m=self.n * self.p * self.q,
            n=self.k,
            k=self.r * self.s * self.c,
            b_layout=Layout.COLUMN,
            in_dtype=self.in_dtype,
            acc_dtype=self.acc_dtype,
            out_dtype=self.out_dtype,
        )

    @property
    def batch(self) -> int:
        """One: its images are rows of one product."""
        return 1

    @property
    def canonical(self) -> Problem:
        """The plain product where it is pointwise: in NHWC its activation is a matrix."""
        return self.gemm if self.is_pointwise else self

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
        return self.gemm.flops

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that the filter touches; strides may leave some out."""
        rows, columns = min(self.h, self.p * self.r), min(self.w, self.q * self.s)
        return self.n * rows * columns * self.c * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the filters."""
        return self.gemm.b_bytes

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


# The kinds of problems that there are, as records and metadata name them.
PROBLEM_KINDS: tuple[type[Any], ...] = (Gemm, Conv2d)


def describe(problem: Problem) -> str:
    """One line for people: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

    def show(value: object) -> str:
        return str(value.value) if isinstance(value, (DType, Layout)) else str(value)

    kind: Any = problem
    quiet = {"batch", "a_batched", "b_batched"} if problem.batch == 1 else set()
    shown = ", ".join(
        f"{field.name}={show(getattr(problem, field.name))}"
        for field in fields(kind)
        if field.name not in quiet
    )
    return f"{type(problem).__name__}({shown})"
