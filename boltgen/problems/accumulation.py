"""The error of a kernel's sums of products, from the arithmetic of its instructions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.functions import Array
from boltgen.problems.problem import Problem, is_channelwise

# A tensor core adds blocks of products at once: 4 on Volta, more on later GPUs. The sum of a block
# truncates each addend, the accumulator included, by up to one ulp of the largest addend: 5 FP32
# roundings for 4 products. An FP16 accumulator is rounded to FP16 once per block. Source: Fasi,
# Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science
# 2021, sections 3.1 to 3.5.
_BLOCK = 4
# Split-K adds at most this many partial sums.
_MOST_SLICES = 32
# The products of 8-bit floats whose sum is added in FP32, the products of an instruction, and
# the last place of its fraction.
PROMOTED, _ADDED, _UNIT = 128, 32, 2.0**-13


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """The parameters of the error bound of a kernel's accumulated sum.

    With `magnitude` the sum of |a||b|, the error is at most relative * magnitude, plus absolute
    unless the magnitude is 0. It is unbounded if magnitude + error reaches `overflow`.
    """

    relative: float
    absolute: float = 0.0
    overflow: float = math.inf


def accumulation_rounding(problem: Problem) -> Rounding:
    """Return the rounding of the problem's sums; see `reference.error_bound`.

    Raises:
        InvalidProblemError: the rounding depends on each product, or no instruction sums so.
    """
    k = problem.gemm.k
    if problem.in_dtype.is_narrow:
        raise InvalidProblemError(
            f"the rounding of sums of {problem.in_dtype.value} depends on each product"
        )
    if is_channelwise(problem):
        # Each multiply-add rounds once, to nearest, and may underflow.
        return Rounding(
            relative=math.expm1(k * math.log1p(problem.acc_dtype.unit_roundoff)),
            absolute=k * problem.acc_dtype.smallest_normal,
            overflow=problem.acc_dtype.overflow_threshold,
        )
    blocks = -(-k // _BLOCK)
    # Tensor cores truncate, so an addition loses up to a whole ulp, not half an ulp.
    ulp = math.log1p(problem.acc_dtype.ulp)
    match problem.acc_dtype:
        case DType.F32:
            additions = blocks * (_BLOCK + 1) + _MOST_SLICES
            # BF16 has FP32's range: each product and sum may underflow, and an overflow is final.
            return Rounding(
                relative=math.expm1(additions * ulp),
                absolute=(k + additions) * DType.F32.smallest_normal,
                overflow=DType.F32.overflow_threshold,
            )
        case DType.F16:
            additions = blocks + _MOST_SLICES
            # A rounding loses up to one subnormal ulp; an overflow of a partial sum is final.
            return Rounding(
                relative=math.expm1(additions * ulp),
                absolute=additions * DType.F16.smallest_subnormal,
                overflow=DType.F16.overflow_threshold,
            )
        case _:
            sums = problem.acc_dtype.value
            raise InvalidProblemError(f"no tensor-core instruction sums in {sums}")


def narrow_error(problem: Problem, a: Array, b: Array) -> Array:
    """Return the bound of the error of a sum of products of 8-bit floats.

    Raises:
        InvalidProblemError: it is a convolution.
    """
    if not problem.is_matrix:
        raise InvalidProblemError(f"no kernel multiplies images of {problem.in_dtype.value}")
    columns = b if problem.gemm.b_layout is Layout.COLUMN else b.swapaxes(-1, -2)
    error = _cut_off(a, columns, problem.in_dtype)
    return error.reshape(problem.d_shape)


def accumulation_error(problem: Problem, magnitude: Array) -> Array:
    """Return the bound of the accumulated sum's error; `magnitude` is the sum of |a||b|."""
    rounding = accumulation_rounding(problem)
    error = rounding.relative * magnitude + np.where(magnitude > 0.0, rounding.absolute, 0.0)
    return np.where(magnitude + error >= rounding.overflow, np.inf, error)


def _cut_off(a: Array, b: Array, dtype: DType) -> Array:
    """Bound the error of a b^T on sm_90a, of `a` (..., M, K) and `b` (..., N, K) of type `dtype`.

    An instruction adds 32 products to a sum. It cuts each addend off 13 bits behind the largest
    one's exponent, and the total to a fraction of 13 bits. Kernels add the sums of 128 products in
    FP32. Sources: Microsoft's MMA-Sim (github.com/microsoft/MMA-Sim); CUTLASS,
    cutlass/gemm/collective/fp8_accumulation.hpp.
    """
    k = a.shape[-1]
    sizes = [_exponents(x, dtype) for x in (a, b)]
    error = magnitude = np.zeros(())
    for begin in range(0, k, PROMOTED):
        total = off = np.zeros(())
        for at in range(begin, min(begin + PROMOTED, k), _ADDED):
            part = slice(at, min(at + _ADDED, k))
            of_a, of_b = (size[..., part].max(axis=-1) for size in sizes)
            largest = np.maximum(of_a[..., :, None] * of_b[..., None, :], np.abs(total) + off)
            total = total + a[..., part] @ b[..., part].swapaxes(-1, -2)
            off = off + (_ADDED + 1) * _UNIT * largest
            off = off + _UNIT * (np.abs(total) + off)
        error = error + off
        magnitude = magnitude + np.abs(total) + off
    additions = math.ceil(k / PROMOTED) + _MOST_SLICES
    return np.asarray(error + math.expm1(additions * math.log1p(DType.F32.ulp)) * magnitude)


def _exponents(x: Array, dtype: DType) -> Array:
    """Return numbers that are no less than 2 to the power of each element's exponent; 0 of 0.

    A subnormal number has the least exponent of a normal one.
    """
    return np.where(x == 0.0, 0.0, np.maximum(np.abs(x), dtype.smallest_normal))
