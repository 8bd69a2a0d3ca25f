"""Matmuls: the problem to which all other multiplying problems are reduced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import VECTOR_BYTES, DType, Layout, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import (
    MAX_EXTENT,
    check_dtypes,
    check_positive,
    check_slices,
)
from boltgen.problems.dense import Dense
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.pair import halves, run_of

# The largest magnitude of a product of an activation and a weight of 8 bits: 255 times 128.
_LARGEST_PRODUCT = 255 * 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Dense):
    """`batch` matmuls of one shape, whose matrices lie at constant strides.

    A: (M, K) row-major. B: (K, N) row-major, or column-major (stored as (N, K)). D: (M, N)
    row-major. If the batch exceeds 1, D has a leading batch dimension, and so do A and B unless all
    matmuls share the matrix (`a_batched`, `b_batched` are False). Packed `weights` are a matrix of
    bytes, (N, row_bytes), for one column-major B; kernels unpack it before they multiply.

    If it is `paired`, an epilogue combines two matmuls of one A into D. B has the 2 N columns of
    both: `run` columns of the first alternate with `run` columns of the second.

    Every `slice_rows` neighbouring rows of D are a slice, for example the rows of one sequence; an
    epilogue may load one row per slice. The last slice may be shorter. 0 means that D is not
    divided.

    Raises:
        InvalidProblemError: an extent is not in 1..2**31-1; the batch is 1 and shares A or B; no
            instruction multiplies `in_dtype` or sums in `acc_dtype`; no kernel stores `out_dtype`;
            sums of integers may exceed 32 bits; packed `weights` come with a batch, a row-major B,
            a pair or a type other than FP16; a batch is paired or has slices.
    """

    kind: ClassVar[str] = "gemm"

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
    weights: PackedWeights | None = field(default=None, metadata={"absent_at_default": True})
    paired: bool = field(default=False, metadata={"absent_at_default": True})
    slice_rows: int = field(default=0, metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        check_positive(self, ("m", "n", "k", "batch"))
        check_dtypes(self)
        if self.in_dtype.is_whole and self.k * _LARGEST_PRODUCT > DType.I32.largest:
            raise InvalidProblemError(
                f"Gemm: k={self.k}; sums of so many products of {self.in_dtype.value} may exceed "
                "int32: keep the layer in float16"
            )
        if self.paired and (self.batch > 1 or self.weights is not None):
            raise InvalidProblemError("Gemm: a pair has batch=1 and weights that are not packed")
        self._check_packed()
        check_slices(self, self.slice_rows, self.batch)
        if self.batch == 1 and not (self.a_batched and self.b_batched):
            raise InvalidProblemError("Gemm: batch=1 has no other product to share A or B with")

    def _check_packed(self) -> None:
        if self.weights is None:
            return
        taken = {
            f"batch={self.batch}": self.batch == 1,
            f"b_layout={self.b_layout.value}": self.b_layout is Layout.COLUMN,
            f"in_dtype={self.in_dtype.value}": self.in_dtype is DType.F16,
        }
        for shown, is_taken in taken.items():
            if not is_taken:
                raise InvalidProblemError(
                    f"Gemm: {shown}; packed weights need batch=1, a column-major B and float16"
                )

    @property
    def gemm(self) -> Gemm:
        """One matmul of the batch."""
        if self.batch == 1:
            return self
        return replace(self, batch=1, a_batched=True, b_batched=True)

    def as_batch(self, batch: int) -> Gemm:
        """Return the same as `batch` matmuls that share B; `batch` divides M."""
        return replace(self, batch=batch, m=self.m // batch, b_batched=False)

    @property
    def columns_of_b(self) -> int:
        """N, or 2 N of a pair."""
        return 2 * self.n if self.paired else self.n

    @property
    def run(self) -> int:
        """Neighbouring columns of B that belong to one matmul of a pair; they divide N."""
        return run_of(self.n)

    @property
    def unpaired(self) -> Gemm:
        """The single matmul with all columns of B."""
        return replace(self, n=self.columns_of_b, paired=False) if self.paired else self

    @property
    def short(self) -> str:
        """`gemm 64x10x128`; `6 x` in front for a batch, `2 x` for a pair."""
        batch = f"{self.batch} x " if self.batch > 1 else "2 x " if self.paired else ""
        packed = f" of {self.weights.short}" if self.weights else ""
        return f"{batch}gemm {self.m}x{self.n}x{self.k}{packed}"

    @property
    def is_foldable(self) -> bool:
        """Whether the batch shares B but not A, and its rows fit into one matmul."""
        shares = self.batch > 1 and self.a_batched and not self.b_batched
        return shares and self.batch * self.m <= MAX_EXTENT

    @property
    def folded(self) -> Gemm:
        """The single matmul with the rows of a whole batch that shares B."""
        return replace(self.gemm, m=self.batch * self.m)

    @property
    def canonical(self) -> Gemm:
        """The same matmul, with its batch folded into rows if possible."""
        return self.folded if self.is_foldable else self

    @property
    def matrix(self) -> tuple[int, int]:
        """(M, N)."""
        return self.m, self.n

    @property
    def is_matrix(self) -> bool:
        """True."""
        return True

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(M, K), or (batch, M, K)."""
        return self._batched((self.m, self.k), self.a_batched)

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(K, N), or (N, K) if column-major, after the batch; (N, row bytes) for packed weights."""
        if self.weights is not None:
            return self.n, self.weights.row_bytes(self.k)
        n = self.columns_of_b
        matrix = (self.k, n) if self.b_layout is Layout.ROW else (n, self.k)
        return self._batched(matrix, self.b_batched)

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(M, N), or (batch, M, N)."""
        return self._batched((self.m, self.n), True)

    def _batched(self, matrix: tuple[int, int], is_batched: bool) -> tuple[int, ...]:
        return (self.batch, *matrix) if self.batch > 1 and is_batched else matrix

    @property
    def alignment_b(self) -> int:
        """Elements of B per vector access; bytes if B is packed."""
        if self.weights is not None:
            return VECTOR_BYTES
        contiguous = self.columns_of_b if self.b_layout is Layout.ROW else self.k
        return alignment_elements(self.in_dtype, contiguous)

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return self.run if self.paired else alignment_elements(self.out_dtype, self.n)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.batch * self.m * self.columns_of_b * self.k

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        if self.weights is not None:
            return self.n * self.weights.row_bytes(self.k)
        batch = self.batch if self.b_batched else 1
        return batch * self.k * self.columns_of_b * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_gemm_args`."""
        m, n, k, is_batch = self.m, self.n, self.k, self.batch > 1
        packed = self.weights.row_bytes(k) if self.weights else 0
        return {
            "m": m,
            "n": n,
            "k": k,
            "batch": self.batch,
            "lda": k,
            "ldb": packed or (self.columns_of_b if self.b_layout is Layout.ROW else k),
            "ldd": n,
            "batch_stride_a": m * k if is_batch and self.a_batched else 0,
            "batch_stride_b": n * k if is_batch and self.b_batched else 0,
            "batch_stride_d": m * n if is_batch else 0,
        }

    @property
    def extents(self) -> dict[str, int]:
        """The sizes of `profiler_gemm`; `run` is absent, and so 0, without a pair."""
        runs = {"run": self.run} if self.paired else {}
        return runs | {
            "batch": self.batch,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "b_is_column": int(self.b_layout is Layout.COLUMN),
            "a_batched": int(self.batch > 1 and self.a_batched),
            "b_batched": int(self.batch > 1 and self.b_batched),
        }

    def in_slices(self, rows: int) -> Gemm:
        """Return the matmul with slices of `rows` rows; 0 means without slices."""
        return self if rows == self.slice_rows else replace(self, slice_rows=rows)

    def resized(self, channels: int, filters: int) -> Gemm:
        """Return the matmul with K = `channels` and N = `filters`."""
        return replace(self, k=channels, n=filters)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of B's dimensions for a K and an N increased by so much.

        Raises:
            InvalidProblemError: B is packed.
        """
        if self.weights is not None:
            raise InvalidProblemError(f"{self.short}: packed weights are not padded")
        return (channels, filters) if self.b_layout is Layout.ROW else (filters, channels)

    def product(self, a: Array, b: Array) -> Array:
        """Return the matmul in FP64, or both of a pair; packed weights come unpacked, (N, K)."""
        stored = b if self.b_layout is Layout.ROW else np.swapaxes(b, -1, -2)
        whole = np.asarray(np.matmul(a, stored), dtype=np.float64)
        return halves(whole, self.run) if self.paired else whole


def packed_weights(problem: object) -> PackedWeights | None:
    """Return the format of a packed B, or None."""
    return problem.weights if isinstance(problem, Gemm) else None


def is_paired(problem: object) -> bool:
    """Return whether an epilogue combines two matmuls of one A into D."""
    return isinstance(problem, Gemm) and problem.paired
