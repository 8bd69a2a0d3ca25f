"""Problems: what a kernel computes, as frozen values of integers and enums.

Arrow: `frontend.lower` makes them, everything after reads them. D = epilogue(A x B) in all cases.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements

# CUTLASS 2.x takes extents as int32.
_MAX_EXTENT = 2**31 - 1


def _check_positive(problem: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(problem, name)
        if not 1 <= value <= _MAX_EXTENT:
            raise InvalidProblemError(
                f"{type(problem).__name__}: {name}={value} is out of range; "
                f"extents are 1 to {_MAX_EXTENT}"
            )


def _check_dtypes(problem: Gemm | BatchedGemm | Conv2d) -> None:
    if problem.in_dtype is not DType.F16:
        raise InvalidProblemError(
            f"{type(problem).__name__}: operands are {problem.in_dtype.value}; "
            "tensor-core kernels take float16: convert the model to FP16 first"
        )
    if (reason := problem.in_dtype.accumulator_rejection(problem.acc_dtype)) is not None:
        raise InvalidProblemError(f"{type(problem).__name__}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Matrix product.

    A: (M, K) row-major. B: (K, N), row-major, or column-major (stored as (N, K)). D: (M, N)
    row-major.

    Raises:
        InvalidProblemError: an extent is not in 1..2**31-1, an operand is not float16, or no
            instruction sums its products in `acc_dtype`.
    """

    m: int
    n: int
    k: int
    b_layout: Layout = Layout.ROW
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        _check_positive(self, ("m", "n", "k"))
        _check_dtypes(self)

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
        """Floating-point operations of the product; a fused multiply-add counts as two."""
        return 2 * self.m * self.n * self.k

    def batched(self, batch: int) -> BatchedGemm:
        """The same as `batch` products, which divides M, of one B."""
        return BatchedGemm(
            batch=batch,
            m=self.m // batch,
            n=self.n,
            k=self.k,
            b_layout=self.b_layout,
            b_batched=False,
            in_dtype=self.in_dtype,
            acc_dtype=self.acc_dtype,
            out_dtype=self.out_dtype,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedGemm:
    """`batch` products of one shape, the matrices of each operand a constant stride apart.

    A: (batch, M, K). B: (batch, K, N), row- or column-major; shared by all products where
    `b_batched` is false. D: (batch, M, N).

    Raises:
        InvalidProblemError: an extent is not in 1..2**31-1, an operand is not float16, or no
            instruction sums its products in `acc_dtype`.
    """

    batch: int
    m: int
    n: int
    k: int
    b_layout: Layout = Layout.ROW
    a_batched: bool = True
    b_batched: bool = True
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        _check_positive(self, ("batch", "m", "n", "k"))
        _check_dtypes(self)
        # The batch index is the grid's z dimension. Source: CUDA C++ Programming Guide,
        # technical specifications (z-dimension of a grid: 65535).
        if self.batch > 65535:
            raise InvalidProblemError(
                f"BatchedGemm: batch={self.batch} exceeds 65535, the grid's z dimension"
            )

    @property
    def plain(self) -> Gemm | None:
        """The one product of more rows that it is where all of the batch share B."""
        is_plain = self.a_batched and not self.b_batched
        return replace(self.gemm, m=self.batch * self.m) if is_plain else None

    @property
    def gemm(self) -> Gemm:
        """One of the products."""
        return Gemm(
            m=self.m,
            n=self.n,
            k=self.k,
            b_layout=self.b_layout,
            in_dtype=self.in_dtype,
            acc_dtype=self.acc_dtype,
            out_dtype=self.out_dtype,
        )

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access."""
        return self.gemm.alignment_a

    @property
    def alignment_b(self) -> int:
        """Elements of B per vector access."""
        return self.gemm.alignment_b

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return self.gemm.alignment_d

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return self.batch * self.gemm.flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Forward convolution (cross-correlation), one group.

    Activation: (N, H, W, C). Weight: (K, R, S, C). Output: (N, P, Q, K). Padding is (top, left,
    bottom, right), in pixels.

    Raises:
        InvalidProblemError: an extent, its own or of its implicit matrix product, is out of range,
            an operand is not float16, no instruction sums its products in `acc_dtype`, or the
            filter does not fit into the padded activation.
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
        _ = self.implicit_gemm  # whose extents are checked when it is made

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
    def implicit_gemm(self) -> Gemm:
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
        return self.implicit_gemm.flops


Problem: TypeAlias = Gemm | BatchedGemm | Conv2d


def describe(problem: Problem) -> str:
    """One line for people: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

    def show(value: object) -> str:
        return str(value.value) if isinstance(value, (DType, Layout)) else str(value)

    shown = ", ".join(f"{f.name}={show(getattr(problem, f.name))}" for f in fields(problem))
    return f"{type(problem).__name__}({shown})"
