"""Floating-point operations by exact arithmetic, from bits to bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests.vgpu.rounding import Format

Reference = Callable[..., int]


def _special(fmt: Format, op: str, *bits: int) -> int | None:
    """The result where an operand is NaN or infinite, by Python's doubles; None elsewhere."""
    if any(fmt.is_nan(b) for b in bits):
        return fmt.nan
    if not any(fmt.is_inf(b) for b in bits):
        return None
    values = [
        (-math.inf if fmt.split(b)[0] else math.inf)
        if fmt.is_inf(b)
        else math.copysign(1.0, float(fmt.value(b)) or (-1 if fmt.split(b)[0] else 1))
        * (0.0 if fmt.value(b) == 0 else 1.0)
        for b in bits
    ]
    if op == "add":
        value = values[0] + values[1]
    elif op == "sub":
        value = values[0] - values[1]
    elif op == "div":
        if math.isinf(values[1]):
            if math.isinf(values[0]):
                return fmt.nan
            sign = fmt.split(bits[0])[0] ^ fmt.split(bits[1])[0]
            return sign << (fmt.bits - 1)
        sign = fmt.split(bits[0])[0] ^ fmt.split(bits[1])[0]
        return sign << (fmt.bits - 1) | fmt.exponent_mask << fmt.mantissa
    else:
        value = values[0] * values[1]
        if op == "fma":
            value += values[2]
    if math.isnan(value):
        return fmt.nan
    if math.isinf(value):
        return int(value < 0) << (fmt.bits - 1) | fmt.exponent_mask << fmt.mantissa
    return fmt.round(Fraction(value))


def arithmetic(fmt: Format, op: str, mode: str = "rn") -> Reference:
    """add, sub, mul, div or fma, rounded by `mode`."""

    def reference(*bits: int) -> int:
        special = _special(fmt, op, *bits)
        if special is not None:
            return special
        values = [fmt.value(b) for b in bits]
        signs = [fmt.split(b)[0] for b in bits]
        if op in ("add", "sub"):
            if op == "sub":
                values[1], signs[1] = -values[1], signs[1] ^ 1
            exact = values[0] + values[1]
            negative = (signs[0] and signs[1]) or (mode == "rm" and (signs[0] or signs[1]))
        elif op == "mul":
            exact = values[0] * values[1]
            negative = signs[0] ^ signs[1]
        elif op == "div":
            negative = signs[0] ^ signs[1]
            if values[1] == 0:
                if values[0] == 0:
                    return fmt.nan
                return negative << (fmt.bits - 1) | fmt.exponent_mask << fmt.mantissa
            exact = values[0] / values[1]
        else:
            product = values[0] * values[1]
            exact = product + values[2]
            sign = signs[0] ^ signs[1]
            negative = (sign and signs[2]) or (mode == "rm" and (sign or signs[2]))
        if exact == 0 and op in ("add", "sub") and any(values):
            negative = mode == "rm"
        if exact == 0 and op == "fma" and values[0] * values[1] != 0:
            negative = mode == "rm"
        return fmt.round(exact, mode, negative_zero=bool(negative))

    return reference


def extreme(fmt: Format, *, largest: bool, nan: bool) -> Reference:
    """min or max; `nan`: a NaN operand gives NaN, as .NaN says."""

    def order(bits: int) -> int:
        sign = bits >> (fmt.bits - 1)
        magnitude = bits & ((1 << (fmt.bits - 1)) - 1)
        return -magnitude - 1 if sign else magnitude

    def reference(a: int, b: int) -> int:
        if fmt.is_nan(a) or fmt.is_nan(b):
            if nan or (fmt.is_nan(a) and fmt.is_nan(b)):
                return fmt.nan
            return b if fmt.is_nan(a) else a
        return (max if largest else min)(a, b, key=order)

    return reference
