"""Which values FP16 may not hold: squares, sums, positions, and their kin.

Activations of networks are taken to be within FP16's range; nothing can be known of them without
running the model. What an operator does to ordinary values is known: a square of 300 is beyond, so
is a sum of thousands of them, and a number made of an integer is exact to 2048 only. Such a value
stays FP32 until an operator brings it back: a root, a logarithm, a bounded function, a division by
another such value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boltgen.frontend.weights import FP16_MAX


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a value may lie `over` FP16's range, or `under` it."""

    over: bool = False
    under: bool = False

    @property
    def is_beyond(self) -> bool:
        """Whether FP16 may not hold the value."""
        return self.over or self.under

    def __or__(self, other: Reach) -> Reach:
        return Reach(self.over or other.over, self.under or other.under)

    @property
    def negated(self) -> Reach:
        """The reach of the value's negative."""
        return Reach(self.under, self.over)

    @staticmethod
    def of_constant(array: npt.NDArray[np.generic]) -> Reach:
        """The reach of a constant, of any dtype."""
        if str(array.dtype) != "float32" or not array.size:
            return WITHIN  # what is FP16 already fits, and what is no float is not narrowed
        return Reach(bool(array.max() > FP16_MAX), bool(array.min() < -FP16_MAX))


WITHIN = Reach()
BEYOND = Reach(over=True, under=True)

_Rule = Callable[[Sequence[Reach]], Reach]


def any_of(args: Sequence[Reach]) -> Reach:
    """The reach of what is one or the other of `args`, or their sum."""
    reach = WITHIN
    for each in args:
        reach |= each
    return reach


def _multiplied(args: Sequence[Reach]) -> Reach:
    return BEYOND if any(each.is_beyond for each in args) else WITHIN


def _divided(args: Sequence[Reach]) -> Reach:
    # By something large nothing becomes larger.
    return BEYOND if args[0].is_beyond and not args[1].is_beyond else WITHIN


def _above_zero(args: Sequence[Reach]) -> Reach:
    return Reach(over=args[0].over)


_RULES: Mapping[str, _Rule] = {
    "subtract": lambda args: args[0] | args[1].negated,
    "negative": lambda args: args[0].negated,
    "abs": lambda args: Reach(over=args[0].is_beyond),
    "multiply": _multiplied,
    "divide": _divided,
    "maximum": lambda args: Reach(args[0].over or args[1].over, args[0].under and args[1].under),
    "minimum": lambda args: Reach(args[0].over and args[1].over, args[0].under or args[1].under),
    "square": lambda args: Reach(over=True),
    "power": lambda args: BEYOND,
    "tan": lambda args: BEYOND,
    "where": lambda args: args[1] | args[2],
    **dict.fromkeys(("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus"), _above_zero),
    **dict.fromkeys(
        ("log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "sign"),
        lambda args: WITHIN,
    ),
}


def reach_of(name: str, args: Sequence[Reach]) -> Reach:
    """The reach of an elementwise operator's result, from those of its operands."""
    return _RULES.get(name, any_of)(args)


def power_reach(exponent: float | None, base: Reach) -> Reach:
    """The reach of a power; `exponent` is None where it is not known."""
    if exponent is None:
        return BEYOND
    if exponent <= 0.5:
        return WITHIN
    if exponent <= 1.0:
        return base
    return Reach(over=True, under=exponent % 2 == 1)


def clipped_reach(low: float, high: float, x: Reach) -> Reach:
    """The reach of `x` between two bounds."""
    return Reach(x.over and high > FP16_MAX, x.under and low < -FP16_MAX)
