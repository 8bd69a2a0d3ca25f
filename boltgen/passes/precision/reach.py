"""Find values that FP16 may not hold: squares, sums, positions, guards, small numbers, and their
kin.

Activations of networks are taken to be within FP16's range; only running the model could tell. The
effect of an operator on ordinary values is known: a square of 300 is beyond, so is a sum of
thousands of them, and a number made from an integer is exact to 2048 only. Downwards it is the
same: a bound of 1e-12 is zero in FP16 and one of 1 - 1e-7 is one, a factor of 1e-6 leaves few bits
of what it multiplies. Such a value stays FP32 until an operator brings it back: a root, a
logarithm, a bounded function, a division by another such value, a factor that makes it large again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boltgen.ir.dtypes import DType
from boltgen.passes.weights.checks import FP16_MAX

# Below it FP16's numbers lose bits; a number up to it is called small.
SMALL = DType.F16.smallest_normal
# No FP32 number but zero is smaller, and no estimate needs to be.
_LEAST = DType.F32.smallest_subnormal


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a value may lie `over` FP16's range or `under` it, and which small numbers matter.

    `size` is the largest magnitude that constants of the model tell of, at most 1 for what is
    computed. `floor` is the least distance from zero or one that a reader has to see; it is a guard
    where it is less than `size`. A `reciprocal` is large where what it multiplies is small.
    """

    over: bool = False
    under: bool = False
    size: float = 1.0
    floor: float = 1.0
    is_reciprocal: bool = False
    is_constant: bool = False

    @property
    def is_small(self) -> bool:
        """Return whether FP16 has few bits of all the value's elements."""
        return self.size < SMALL

    @property
    def has_guard(self) -> bool:
        """Return whether a number that FP16 lacks keeps the value from zero, or from one."""
        return self.floor < SMALL

    @property
    def is_fine(self) -> bool:
        """Return whether FP16 has too few digits near zero, or near one, for the value."""
        return self.is_small or self.has_guard

    @property
    def is_outside(self) -> bool:
        """Return whether most of the value's elements are too large or too small for FP16."""
        return self.over or self.under or self.is_small

    @property
    def is_beyond(self) -> bool:
        """Return whether FP16 may not hold the value."""
        return self.is_outside or self.has_guard

    @property
    def negated(self) -> Reach:
        """The reach of the value's negative."""
        return replace(self, over=self.under, under=self.over)

    @property
    def least(self) -> float:
        """The least magnitude that matters."""
        return min(self.size, self.floor)

    @staticmethod
    def of_constant(array: npt.NDArray[np.generic], precision: DType = DType.F16) -> Reach:
        """Return the reach of a constant, of any dtype, whose readers are in `precision`.

        FP16 holds infinities as they are. In BF16 they are beyond, as every great number is: sums
        with such masks are FP32.
        """
        if str(array.dtype) != "float32":
            return WITHIN  # FP16 already fits, and other types are not narrowed
        known = array[np.isfinite(array)] if precision is DType.F16 else array
        if not known.size:
            return WITHIN
        most, least = float(known.max()), float(known.min())
        size = max(abs(most), abs(least))
        # BF16 has FP32's range: nothing is small in it.
        is_sized = precision is DType.F16 and 0.0 < size < np.inf
        return Reach(
            over=most > FP16_MAX,
            under=least < -FP16_MAX,
            size=size if is_sized else 1.0,
            floor=floor_of(most, precision) if most == least else 1.0,
            is_constant=True,
        )


WITHIN = Reach()
BEYOND = Reach(over=True, under=True)

_Rule = Callable[[Sequence[Reach]], Reach]


def floor_of(number: float, precision: DType) -> float:
    """Return the distance from zero, or from a whole number, that `precision` loses of a number;
    else 1.

    A bound of 1 - 1e-7 keeps 1 - x from zero, and FP16 makes 1 of it.
    """
    if not np.isfinite(number) or number == 0.0:
        return 1.0
    if abs(number) < precision.smallest_normal:
        return abs(number)
    with np.errstate(over="ignore"):  # an overflow to infinity is intended
        narrow = float(np.float32(number).astype(precision.numpy))
    is_whole = abs(narrow) < 1.0 / precision.ulp and narrow == round(narrow)
    return min(abs(number - narrow), SMALL / 2) if is_whole and narrow != number else 1.0


def smallest_floor(array: npt.NDArray[np.generic], precision: DType) -> float:
    """Return the least distance that `precision` loses of the elements of an FP32 constant."""
    if str(array.dtype) != "float32" or not array.size:
        return 1.0
    sizes = np.abs(array[array != 0])
    return floor_of(float(sizes.min()), precision) if sizes.size else 1.0


def any_of(args: Sequence[Reach]) -> Reach:
    """Return the reach of a value that is one of `args`, or their sum."""
    return Reach(
        over=any(each.over for each in args),
        under=any(each.under for each in args),
        size=max((each.size for each in args), default=1.0),
        floor=min((each.floor for each in args), default=1.0),
        is_reciprocal=any(each.is_reciprocal for each in args),
    )


def side_by_side(args: Sequence[Reach]) -> Reach:
    """Return the reach of joined tensors of `args`: small if one of them is."""
    return replace(any_of(args), size=min(each.size for each in args))


def _ranged(rule: Callable[[Sequence[Reach]], tuple[bool, bool]]) -> _Rule:
    """Return a rule that tells whether a result as large as its operands is over and under."""

    def reach(args: Sequence[Reach]) -> Reach:
        over, under = rule(args)
        return replace(any_of(args), over=over, under=under)

    return reach


def _size(magnitude: float, most: float = 1.0) -> float:
    """Estimate a size within bounds: a computed value is taken for no larger than 1."""
    return max(_LEAST, min(most, magnitude))


def multiplied(args: Sequence[Reach]) -> Reach:
    """Return the reach of an elementwise product of two values."""
    a, b = args
    size = _size(a.size * b.size)
    floor = min(_scaled_floor(a, b.size), _scaled_floor(b, a.size))
    if a.is_reciprocal != b.is_reciprocal:
        other = b if a.is_reciprocal else a
        if not other.is_constant:  # a division, spelled otherwise
            return Reach(size=size, floor=_scaled_floor(other, 1.0))
    wide = any(each.over or each.under for each in args)
    if any(x.is_constant and y.is_small and not y.over for x, y in ((a, b), (b, a))):
        wide = a.size * b.size > FP16_MAX  # a large number makes the small ones ordinary
    is_reciprocal = a.is_reciprocal or b.is_reciprocal
    if is_reciprocal:
        size = _size(a.size * b.size, 1.0 / _LEAST)
    return Reach(over=wide, under=wide, size=size, floor=floor, is_reciprocal=is_reciprocal)


def _scaled_floor(x: Reach, factor: float) -> float:
    """Return the floor of a value with a guard after a factor."""
    return _size(x.floor * factor) if x.floor < min(1.0, x.size) else 1.0


def _divided(args: Sequence[Reach]) -> Reach:
    a, b = args
    if a.is_constant and not b.is_constant:
        return _reciprocal(b.least, b.size, a.size)
    # By something large nothing becomes larger.
    is_over = (a.over or a.under) and not (b.over or b.under)
    size = _size(a.size / b.size)
    return Reach(
        over=is_over,
        under=is_over,
        size=size,
        floor=_scaled_floor(a, 1.0 / b.size),
        is_reciprocal=is_over and a.is_reciprocal,
    )


def _reciprocal(least: float, size: float, number: float = 1.0) -> Reach:
    """Return the reach of a number divided by a value of such magnitudes."""
    if number > FP16_MAX * least:
        return Reach(
            over=True, under=True, size=_size(number / size, 1.0 / _LEAST), is_reciprocal=True
        )
    return Reach(size=_size(number / size))


def _bounded(args: Sequence[Reach]) -> Reach:
    """Return the reach of a bounded function that is near its argument for small arguments."""
    (x,) = args
    return Reach(size=_size(x.size), floor=x.floor)


_RULES: Mapping[str, _Rule] = {
    "subtract": lambda args: any_of((args[0], args[1].negated)),
    "negative": lambda args: args[0].negated,
    "abs": _ranged(lambda args: (args[0].over or args[0].under, False)),
    "multiply": multiplied,
    "divide": _divided,
    "maximum": _ranged(
        lambda args: (args[0].over or args[1].over, args[0].under and args[1].under)
    ),
    "minimum": _ranged(
        lambda args: (args[0].over and args[1].over, args[0].under or args[1].under)
    ),
    "square": lambda args: power_reach(2.0, args[0]),
    "power": lambda args: BEYOND,
    "tan": lambda args: BEYOND,
    "where": lambda args: any_of(args[1:]),
    "sqrt": lambda args: power_reach(0.5, args[0]),
    "rsqrt": lambda args: power_reach(-0.5, args[0]),
    "exp": lambda args: Reach(over=args[0].over),
    **dict.fromkeys(
        ("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu"),
        _ranged(lambda args: (args[0].over, False)),
    ),
    "nn.softplus": lambda args: Reach(over=args[0].over),
    **dict.fromkeys(("tanh", "erf", "sin"), _bounded),
    **dict.fromkeys(("log", "sigmoid", "cos", "sign"), lambda args: WITHIN),
}


def reach_of(name: str, args: Sequence[Reach]) -> Reach:
    """Return the reach of an elementwise operator's result, from its operands' reaches."""
    return _RULES.get(name, any_of)(args)


def power_reach(exponent: float | None, base: Reach) -> Reach:
    """Return the reach of a power; `exponent` is None if it is unknown."""
    if exponent is None:
        return BEYOND
    size, floor = (
        _size(_size(each) ** abs(exponent)) for each in (base.size, _scaled_floor(base, 1.0))
    )
    if exponent < 0.0:
        return _reciprocal(min(size, floor), size)
    made = Reach(size=size, floor=floor)
    if exponent <= 0.5:
        return made
    if exponent <= 1.0:
        return replace(made, over=base.over, under=base.under)
    return replace(made, over=True, under=exponent % 2 == 1)


def clipped_reach(low: float, high: float, x: Reach, precision: DType) -> Reach:
    """Return the reach of `x` between two bounds, if its readers are in `precision`."""
    return replace(
        x,
        over=x.over and high > FP16_MAX,
        under=x.under and low < -FP16_MAX,
        floor=min(x.floor, *(floor_of(bound, precision) for bound in (low, high))),
        is_reciprocal=False,
        is_constant=False,
    )
