"""The source positions of a nearest-neighbour resize, in exact arithmetic.

TVM computes them in FP32 at run time. CUDA contracts `x * scale - 0.5` to one rounding, which
selects the wrong neighbour if a coordinate lies halfway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

# (position, extent of the input, extent of the result) -> coordinate in the input.
_COORDINATES: Mapping[str, Callable[[int, int, int], Fraction]] = {
    "half_pixel": lambda x, n, m: Fraction((2 * x + 1) * n - m, 2 * m),
    "pytorch_half_pixel": lambda x, n, m: Fraction((2 * x + 1) * n - m if m > 1 else 0, 2 * m),
    "tf_half_pixel_for_nn": lambda x, n, m: Fraction((2 * x + 1) * n, 2 * m),
    "asymmetric": lambda x, n, m: Fraction(x * n, m),
    "align_corners": lambda x, n, m: Fraction(x * (n - 1), max(m - 1, 1)),
}
_HALF = Fraction(1, 2)
_ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - _HALF),
    "round_prefer_ceil": lambda x: math.floor(x + _HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


def nearest(mode: str, rounding: str, extent: int, size: int) -> list[int] | None:
    """Return the source position, among `extent` elements, of each of `size` results.

    Return None if the tables lack the mode or the rounding.
    """
    if mode not in _COORDINATES or rounding not in _ROUNDINGS:
        return None
    coordinate, rounded = _COORDINATES[mode], _ROUNDINGS[rounding]
    places = (rounded(coordinate(x, extent, size)) for x in range(size))
    return [min(max(place, 0), extent - 1) for place in places]


def is_exact(extent: int, size: int) -> bool:
    """Return whether the ratio of the extents is a power of two, so that FP32 is exact."""
    ratio = Fraction(extent, size)
    return all(part & (part - 1) == 0 for part in (ratio.numerator, ratio.denominator))
