"""The interface of a problem: the computation of one anchor.

Arrow: the middle end makes problems, everything after it reads them. A problem knows its operands,
its sizes at run time and its work, so that no reader needs to know its kind.
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
    """The anchor of a kernel: D = A x B, where x is a matmul, a convolution or another operator.

    A problem is a frozen dataclass, and valid once it is made. Shapes are in elements, of dense
    tensors. `kind` is its name in the profiler.
    """

    kind: ClassVar[str]

    @property
    def in_dtype(self) -> DType:
        """The type of A and B."""
        ...

    @property
    def acc_dtype(self) -> DType:
        """The type in which the sums are accumulated."""
        ...

    @property
    def out_dtype(self) -> DType:
        """The type of D."""
        ...

    @property
    def gemm(self) -> Gemm:
        """The matmul that computes it, or one matmul of its batch."""
        ...

    @property
    def batch(self) -> int:
        """The number of matmuls with the shape of `gemm`."""
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
    def has_b(self) -> bool:
        """Whether it multiplies A and B; otherwise `gemm` raises an error and B is empty."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether it only moves or converts numbers, so that all kernels give equal results."""
        ...

    @property
    def storable(self) -> frozenset[DType]:
        """The types that its kernels write."""
        ...

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of D, or of D of one matmul of its batch."""
        ...

    @property
    def is_matrix(self) -> bool:
        """Whether A and D are matrices, whose rows may have several dimensions."""
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
        """Bytes of A that are read, each counted once."""
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
        """A short name for people: "gemm 64x10x128"."""
        ...

    @property
    def slice_rows(self) -> int:
        """The number of neighbouring rows of D in a slice, such as an image; 0 without slices."""
        ...

    def in_slices(self: _Self, rows: int) -> _Self:
        """Return the problem with slices of `rows` rows; itself if its shape defines slices."""
        ...

    def resized(self: _Self, channels: int, filters: int) -> _Self:
        """Return the problem with A's last extent `channels` and D's last extent `filters`."""
        ...

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of B if A gets `channels` and D gets `filters` more channels."""
        ...

    def product(self, a: Array, b: Array) -> Array:
        """Return D, of `d_shape`, in FP64 for A and B in their shapes; both matmuls of a pair."""
        ...


def with_extents(problem: Problem, change: Callable[[Dim], int]) -> Problem:
    """Return `problem` with each symbolic extent replaced by `change(extent)`."""
    kind: Any = problem
    given = {each.name: getattr(problem, each.name) for each in fields(kind)}
    changed = {name: change(value) for name, value in given.items() if isinstance(value, Dim)}
    made: Problem = replace(kind, **changed) if changed else problem
    return made


def gathered(problem: Problem) -> Gathered | None:
    """Return the rows that are gathered from A; None if A has them in order."""
    found: Gathered | None = getattr(problem, "gathered", None)
    return found


def is_channelwise(problem: Problem) -> bool:
    """Return whether each channel of D is of one channel of A: no tensor core sums such products,
    and A and D have their channels together.
    """
    return bool(getattr(problem, "is_channelwise", False))


def can_write_input(problem: Problem) -> bool:
    """Return whether D could begin with the channels of A itself, and does not."""
    has_place = bool(getattr(problem, "has_place_for_input", False))
    return has_place and not writes_input(problem)


def writes_input(problem: Problem) -> bool:
    """Return whether D begins with the channels of A itself."""
    return bool(getattr(problem, "with_input", False))


def has_groups(problem: Problem) -> bool:
    """Return whether a group of D's channels is of a group of A's, so that both change together."""
    return is_channelwise(problem) or int(getattr(problem, "groups", 1)) > 1


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
    """Return the type of B's elements in memory."""
    return problem.in_dtype.weight if packed_weights(problem) is None else BYTES


def describe(problem: Problem) -> str:
    """Describe a problem in one line: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

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
