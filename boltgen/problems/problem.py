"""The interface of a problem: the computation of one anchor.

Arrow: the middle end makes problems, everything after it reads them. A problem knows its operands,
its sizes at run time and its work, so that nobody who handles one need ask for its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from math import prod
from typing import Any, ClassVar, Protocol, TypeVar

from boltgen.ir.dtypes import BYTES, DType, ElementType
from boltgen.ir.extent import Dim
from boltgen.ir.functions import Array
from boltgen.ir.key import is_shown
from boltgen.problems.gathered import Gathered
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm, packed_weights

_Self = TypeVar("_Self", bound="Problem")


class Problem(Protocol):
    """The work of a kernel: D = A x B, in the sense of one kind of product.

    A problem is a frozen dataclass, valid once it is made. All shapes are in elements, as the
    tensors lie in memory without gaps. `kind` is its name in the profiler.
    """

    kind: ClassVar[str]

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
        """The number of products of the shape of `gemm`."""
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
        """Shape of D; the last extent is N, the extents before it are the batch and M."""
        ...

    @property
    def is_product(self) -> bool:
        """Whether it multiplies A and B; otherwise it has no `gemm`, and an empty B."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether it only moves numbers, so that each kernel's result is the same."""
        ...

    @property
    def storable(self) -> frozenset[DType]:
        """The types that its kernels write."""
        ...

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of D, or of one of its batch."""
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
    def extents(self) -> dict[str, int]:
        """Sizes by the names of the profiler's struct for its kind; booleans are 0 and 1."""
        ...

    @property
    def canonical(self) -> Problem:
        """The simplest problem that computes the same from the same memory."""
        ...

    @property
    def short(self) -> str:
        """Enough for people to know it by: "gemm 64x10x128"."""
        ...

    @property
    def slice_rows(self) -> int:
        """The neighbouring rows of D in a slice, as the rows of an image; 0 without slices."""
        ...

    def in_slices(self: _Self, rows: int) -> _Self:
        """The problem with slices of so many rows; as it is where its shape says which they are."""
        ...

    def resized(self: _Self, channels: int, filters: int) -> _Self:
        """The problem with so many channels of A and of D: the last extents of both."""
        ...

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of B's dimensions if A and D have so many channels more."""
        ...

    def product(self, a: Array, b: Array) -> Array:
        """Return the product in FP64 of A and B in their shapes, of `d_shape`; both products of a
        pair.
        """
        ...


def with_extents(problem: Problem, change: Callable[[Dim], int]) -> Problem:
    """`problem` with each of its symbolic extents changed."""
    kind: Any = problem
    given = {each.name: getattr(problem, each.name) for each in fields(kind)}
    changed = {name: change(value) for name, value in given.items() if isinstance(value, Dim)}
    made: Problem = replace(kind, **changed) if changed else problem
    return made


def gathered(problem: Problem) -> Gathered | None:
    """Return how rows are gathered from A; None where A has them in order."""
    found: Gathered | None = getattr(problem, "gathered", None)
    return found


@dataclass(frozen=True, slots=True)
class FurtherInput:
    """A tensor that a kind of problems takes besides A and B.

    `field` is its name, and the field of the launch's struct that has its address. For trials,
    its elements are drawn from -`most` to `most`; integers from -1 to `most`.
    """

    field: str
    shape: tuple[int, ...]
    dtype: ElementType
    most: float = 1.5

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        return prod(self.shape) * self.dtype.size_bytes


def further_inputs(problem: Problem) -> tuple[FurtherInput, ...]:
    """Return the tensors that a problem takes besides A and B; its kind may have none."""
    found: tuple[FurtherInput, ...] = getattr(problem, "further_inputs", ())
    return found


def element_b(problem: Problem) -> ElementType:
    """The type of B's elements in memory."""
    return problem.in_dtype if packed_weights(problem) is None else BYTES


def describe(problem: Problem) -> str:
    """One line for people: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

    def show(value: object) -> str:
        if isinstance(value, PackedWeights):
            return value.short
        return str(value.value) if isinstance(value, Enum) else str(value)

    kind: Any = problem
    quiet = {"batch", "a_batched", "b_batched"} if problem.batch == 1 else set()
    shown = ", ".join(
        f"{field.name}={show(getattr(problem, field.name))}"
        for field in fields(kind)
        if field.name not in quiet and is_shown(kind, field)
    )
    return f"{type(problem).__name__}({shown})"
