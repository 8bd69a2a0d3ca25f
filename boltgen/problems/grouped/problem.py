"""Grouped matmuls, each group of rows with its own matrix, as in mixtures of experts.

Arrow: like `problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.dense import Dense
from boltgen.problems.gathered import Gathered, check_gathered
from boltgen.problems.gemm.problem import Gemm

# Each group is at least one tile along M of the grid, and a batch index in the time model.
_MOST_GROUPS = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm(Dense):
    """The matmul of each row of A with the matrix of its group.

    A: (M, K) row-major, its rows sorted by group. B: (groups, K, N), or (groups, N, K) if
    column-major. D: (M, N) row-major. A further tensor `ends`, (groups,) of `ends_dtype`, holds the
    index behind the last row of each group, and is read at run time. A group may be empty. Rows
    behind the last end belong to no group; their result is 0. An end that is less than the end
    before it counts as that end, and an end beyond M counts as M.

    If A is (`a_rows`, K), a tensor `rows`, (M,) of `rows_dtype`, gathers its M rows (see
    `problems.gathered`): for example the rows of tokens, sorted by expert.

    Raises:
        InvalidProblemError: an extent is out of range, there are more than 65535 groups, a `Gemm`
            does not take the types, or only one of `a_rows` and `rows_dtype` is given.
    """

    kind: ClassVar[str] = "grouped gemm"

    groups: int
    m: int
    n: int
    k: int
    b_layout: Layout = Layout.ROW
    ends_dtype: IndexType = IndexType.INT32
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16
    a_rows: int | None = field(default=None, metadata={"absent_at_default": True})
    rows_dtype: IndexType | None = field(default=None, metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        check_positive(self, ("groups", "m", "n", "k"))
        check_dtypes(self)
        check_gathered("GroupedGemm", self.a_rows, self.rows_dtype)
        if self.groups > _MOST_GROUPS:
            raise InvalidProblemError(
                f"GroupedGemm: groups={self.groups}; kernels take {_MOST_GROUPS} at most"
            )

    @property
    def gathered(self) -> Gathered | None:
        """The rows that are gathered from A, or None if A has them in order."""
        if self.a_rows is None or self.rows_dtype is None:
            return None
        return Gathered(rows=self.m, of=self.a_rows, dtype=self.rows_dtype)

    @property
    def gemm(self) -> Gemm:
        """The matmul of all rows with the matrix of one group."""
        return self.of_rows(self.m)

    def of_rows(self, rows: int) -> Gemm:
        """Return the matmul of `rows` rows with the matrix of one group."""
        return Gemm(
            m=rows,
            n=self.n,
            k=self.k,
            b_layout=self.b_layout,
            in_dtype=self.in_dtype,
            acc_dtype=self.acc_dtype,
            out_dtype=self.out_dtype,
        )

    def spans(self, ends: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Yield (first row, row behind the last) per group, then of the rows without a group."""
        begin = 0
        for each in (*ends.tolist(), self.m):
            end = min(max(begin, each), self.m)
            yield begin, end
            begin = end

    @property
    def short(self) -> str:
        """`grouped gemm 64x10x128 of 8 groups`, and the rows of A if they are gathered."""
        taken = "" if self.a_rows is None else f", its rows taken of {self.a_rows}"
        return f"grouped gemm {self.m}x{self.n}x{self.k} of {self.groups} groups{taken}"

    @property
    def storable(self) -> frozenset[DType]:
        """The type of the operands, and FP32."""
        return frozenset({self.in_dtype, DType.F32})

    @property
    def matrix(self) -> tuple[int, int]:
        """(M, N)."""
        return self.m, self.n

    @property
    def is_matrix(self) -> bool:
        """True: A and D are matrices."""
        return True

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(M, K), or (a_rows, K) if rows are gathered."""
        return self.m if self.a_rows is None else self.a_rows, self.k

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(groups, K, N), or (groups, N, K) if column-major."""
        matrix = (self.k, self.n) if self.b_layout is Layout.ROW else (self.n, self.k)
        return (self.groups, *matrix)

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(M, N)."""
        return self.m, self.n

    @property
    def flops(self) -> int:
        """Floating-point operations if every row belongs to a group."""
        return 2 * self.m * self.n * self.k

    @property
    def a_bytes(self) -> int:
        """Bytes of A that are read, each gathered row once, and of the integers of the gather."""
        row_bytes = self.k * self.in_dtype.size_bytes
        if (taken := self.gathered) is None:
            return self.m * row_bytes
        return taken.distinct * row_bytes + taken.bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_grouped_gemm_args`."""
        return {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "groups": self.groups,
            "lda": self.k,
            "ldb": self.b_shape[-1],
            "ldd": self.n,
            "batch_stride_b": self.k * self.n,
        }

    @property
    def extents(self) -> dict[str, int]:
        """Groups and extents; the profiler has no struct for grouped matmuls."""
        return {"groups": self.groups, "m": self.m, "n": self.n, "k": self.k}

    def resized(self, channels: int, filters: int) -> GroupedGemm:
        """Return the matmul with K = `channels` and N = `filters`."""
        return replace(self, k=channels, n=filters)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of B's dimensions; 0 for the groups."""
        by_rows = self.b_layout is Layout.ROW
        return (0, channels, filters) if by_rows else (0, filters, channels)

    def product(self, a: Array, b: Array) -> Array:
        """Raise InvalidProblemError: it needs `ends`; `problems.oracle` computes it by group."""
        raise InvalidProblemError(f"{self.short}: its product is not known without its ends")


def in_groups(problem: object) -> GroupedGemm | None:
    """Return `problem` if it is a grouped matmul, which reads `ends` besides A and B; else None."""
    return problem if isinstance(problem, GroupedGemm) else None
