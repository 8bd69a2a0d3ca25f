"""The sums of wgmma over products of 8-bit floats, by integers.

Source: Microsoft's MMA-Sim (github.com/microsoft/MMA-Sim), which was compared with an H100.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.driver import Array

# The fraction bits that an addend and the total keep, and the least exponents of normal numbers.
FRACTION_BITS = 13
LEAST = {"float8_e4m3fn": -6, "float8_e5m2": -14, "float32": -126, "float16": -14}


def _split(x: Array, least: int) -> tuple[Array, Array]:
    """Return significands, as floats below 2, and exponents; a subnormal number has the least."""
    wide = x.astype(np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 1, least)
    return np.ldexp(wide, -exponent), exponent


def narrow_sums(a: Array, b: Array, c: Array) -> Array:
    """Return c + a b^T of one instruction: `a` is [m, k], `b` [n, k], `c` [m, n] of the sums' type.

    All are finite.
    """
    (sa, ea), (sb, eb) = (_split(x, LEAST[x.dtype.name]) for x in (a, b))
    sc, ec = _split(c, LEAST[c.dtype.name])
    parts = np.concatenate([sa[:, None] * sb[None], sc[..., None]], axis=2)
    exponents = np.concatenate([ea[:, None] + eb[None], ec[..., None]], axis=2)
    exponents = np.where(parts == 0.0, -2000, exponents)
    largest = exponents.max(axis=2, keepdims=True)
    pieces = np.trunc(np.ldexp(parts, exponents - largest + FRACTION_BITS)).astype(np.int64)
    total = np.ldexp(pieces.sum(axis=2).astype(np.float64), largest[..., 0] - FRACTION_BITS)
    if c.dtype == np.float16:
        half: Array = total.astype(np.float16)
        return half
    significand, exponent = _split(total, LEAST["float32"])
    kept = np.trunc(significand * 2.0**FRACTION_BITS) * 2.0**-FRACTION_BITS
    wide: Array = np.ldexp(kept, exponent).astype(np.float32)
    return wide
