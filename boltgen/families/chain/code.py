"""Texts that are common to kernels of several layers."""

from __future__ import annotations

from boltgen.ir.dtypes import DType


def problem_text(count: int, in_dtype: DType, out_dtype: DType, *, is_conv: bool) -> str:
    """Return text on the operations, with layouts and types of operands and output."""
    types = f"{in_dtype.value} to {out_dtype.value}, {DType.F16.value} between"
    if is_conv:
        return (
            f"{count} convolutions back to back, A: (N, H, W, C), B0: (K0, R, S, C), "
            f"then 1x1, B: (K, C), D: (N, P, Q, K); {types}"
        )
    return f"{count} GEMMs back to back, A: (M, K), D: (M, N) row-major; {types}"
