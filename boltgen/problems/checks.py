"""Checks of every problem's extents and types when it is made."""

from __future__ import annotations

from typing import Protocol

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import FLOAT_TYPES, DType

# CUTLASS 2.x takes extents as int32.
MAX_EXTENT = 2**31 - 1


class Typed(Protocol):
    """A problem with one type for operands, one for sums and one for the result."""

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
    """Check that these extents are from 1 to `MAX_EXTENT`.

    Raises:
        InvalidProblemError: an extent is out of range.
    """
    for name in names:
        value = getattr(problem, name)
        if not 1 <= value <= MAX_EXTENT:
            raise InvalidProblemError(
                f"{type(problem).__name__}: {name}={value} is out of range; "
                f"extents are 1 to {MAX_EXTENT}"
            )


def check_dtypes(problem: Typed) -> None:
    """Check that a tensor-core instruction takes the types, and that kernels store the result's.

    Raises:
        InvalidProblemError: a type is not supported.
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
    stored = storable(operand)
    if problem.out_dtype not in stored:
        known = " or ".join(dtype.value for dtype in DType if dtype in stored)
        raise InvalidProblemError(
            f"{type(problem).__name__}: the result is {problem.out_dtype.value}; kernels with "
            f"{operand.value} operands store {known}"
        )


def check_read_floats(problem: Typed) -> None:
    """Check that a problem without a product reads floats of 16 bits or more, and stores these or
    bytes of integers.

    Raises:
        InvalidProblemError: its kernels do not read or write a type.
    """
    name, read, stored = type(problem).__name__, problem.in_dtype, problem.out_dtype
    if read.is_whole or read.is_narrow:
        raise InvalidProblemError(
            f"{name}: {read.value}; its kernels read wider floats: dequantise the tensor first"
        )
    if stored is DType.I32 or stored.is_narrow:
        raise InvalidProblemError(
            f"{name}: {stored.value}; its kernels store int8, uint8 and wider floats: quantise to "
            "int8"
        )


def storable(operand: DType) -> frozenset[DType]:
    """Return the types of results of products of `operand`.

    Integers become any type but floats of 8 bits; these become themselves or wider floats.
    """
    if operand.is_whole:
        return frozenset(dtype for dtype in DType if not dtype.is_narrow)
    return frozenset({operand, *FLOAT_TYPES} if operand.is_narrow else {operand, DType.F32})


def check_slices(problem: object, slice_rows: int, batch: int = 1) -> None:
    """Check the number of rows in a slice of D, for a problem with `batch` matmuls.

    Raises:
        InvalidProblemError: `slice_rows` is negative, or a batch has slices.
    """
    if not slice_rows:
        return
    check_positive(problem, ("slice_rows",))
    if batch > 1:
        raise InvalidProblemError(
            f"{type(problem).__name__}: slice_rows={slice_rows} of batch={batch}; slices are of "
            "the rows of one product"
        )
