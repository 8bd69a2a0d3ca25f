"""Checks of every problem's extents and types when it is made."""

from __future__ import annotations

from typing import Protocol

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType

# CUTLASS 2.x takes extents as int32.
MAX_EXTENT = 2**31 - 1


class Typed(Protocol):
    """A problem that sums products of one type in another type, and stores a third."""

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


def check_positive(problem: object, names: tuple[str, ...]) -> None:
    """Check that these extents are in range.

    Raises:
        InvalidProblemError: one is not.
    """
    for name in names:
        value = getattr(problem, name)
        if not 1 <= value <= MAX_EXTENT:
            raise InvalidProblemError(
                f"{type(problem).__name__}: {name}={value} is out of range; "
                f"extents are 1 to {MAX_EXTENT}"
            )


def check_dtypes(problem: Typed) -> None:
    """Check that an instruction sums the operands' products, and that kernels store the result.

    Raises:
        InvalidProblemError: they do not.
    """
    operand = problem.in_dtype
    _ = operand.conversions, problem.out_dtype.conversions
    if not operand.accumulators():
        known = " and ".join(dtype.value for dtype in DType if dtype.accumulators())
        raise InvalidProblemError(
            f"{type(problem).__name__}: operands are {operand.value}; tensor-core kernels take "
            f"{known}: convert the model first"
        )
    if (reason := operand.accumulator_rejection(problem.acc_dtype)) is not None:
        raise InvalidProblemError(f"{type(problem).__name__}: {reason}")
    if problem.out_dtype not in {operand, DType.F32}:
        raise InvalidProblemError(
            f"{type(problem).__name__}: the result is {problem.out_dtype.value}; products of "
            f"{operand.value} are stored in it or in {DType.F32.value}"
        )


def check_slices(problem: object, slice_rows: int, batch: int = 1) -> None:
    """Check the number of rows in a slice of D, for a problem of `batch` products.

    Raises:
        InvalidProblemError: they are negative, or a batch is in slices too.
    """
    if not slice_rows:
        return
    check_positive(problem, ("slice_rows",))
    if batch > 1:
        raise InvalidProblemError(
            f"{type(problem).__name__}: slice_rows={slice_rows} of batch={batch}; slices are of "
            "the rows of one product"
        )
