"""The part of the problem's interface that is equal for most problems."""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

from boltgen.ir.dtypes import DType, alignment_elements
from boltgen.problems.checks import storable

_Self = TypeVar("_Self")


class Dense:
    """A base of problems: one product of dense tensors, summed in FP32, whose D has no slices.

    A problem that differs overrides the property. See `problems.problem.Problem` for their meaning.
    """

    __slots__ = ()

    @property
    def in_dtype(self) -> DType:
        """The type of A and B."""
        raise NotImplementedError

    @property
    def acc_dtype(self) -> DType:
        """FP32."""
        return DType.F32

    @property
    def out_dtype(self) -> DType:
        """The type of D."""
        raise NotImplementedError

    @property
    def a_shape(self) -> tuple[int, ...]:
        """Shape of A."""
        raise NotImplementedError

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of B."""
        raise NotImplementedError

    @property
    def d_shape(self) -> tuple[int, ...]:
        """Shape of D."""
        raise NotImplementedError

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the launch's struct."""
        raise NotImplementedError

    @property
    def batch(self) -> int:
        """One."""
        return 1

    @property
    def canonical(self) -> Any:  # a convolution may become a matmul
        """Itself."""
        return self

    @property
    def has_b(self) -> bool:
        """True."""
        return True

    @property
    def is_exact(self) -> bool:
        """False: sums are rounded."""
        return False

    @property
    def storable(self) -> frozenset[DType]:
        """The type of the operands, and FP32; any type of a product of integers."""
        return storable(self.in_dtype)

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access."""
        return alignment_elements(self.in_dtype, self.a_shape[-1])

    @property
    def alignment_b(self) -> int:
        """Elements of B per vector access."""
        return alignment_elements(self.in_dtype, self.b_shape[-1])

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.d_shape[-1])

    @property
    def a_bytes(self) -> int:
        """Bytes of A."""
        return prod(self.a_shape) * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        return prod(self.b_shape) * self.in_dtype.size_bytes

    @property
    def extents(self) -> dict[str, int]:
        """The same as `sizes`: the profiler has no struct for it."""
        return self.sizes

    @property
    def slice_rows(self) -> int:
        """Zero: its rows have no slices."""
        return 0

    def in_slices(self: _Self, rows: int) -> _Self:
        """Return the problem itself: its shape defines its slices."""
        del rows
        return self
