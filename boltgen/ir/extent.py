"""Extents that are not known before a model runs: a `Dim` stands for one in shapes and problems.

Arrow: a frontend makes them of a model's symbolic shapes; a region's kernels are chosen for sizes
within their ranges, and its call reads their values off its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, TypeAlias

from boltgen.errors import InvalidProblemError

# The greatest value of an extent of which a model says nothing: the product of two of them is an
# extent that kernels take.
MOST_UNKNOWN = 1 << 15


class UndecidedExtentError(InvalidProblemError):
    """A question about a symbolic extent has two answers over its range, or no answer."""


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """One unknown of a model: its name, and its least and its greatest value."""

    name: str
    low: int = 1
    high: int = MOST_UNKNOWN

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise InvalidProblemError(
                f"dimension {self.name!r} goes from {self.low} to {self.high}; it has to be 1 or "
                "more, the least value first"
            )


# A product of symbols, in order; the empty one is 1.
Monomial: TypeAlias = tuple[Symbol, ...]


class Dim(int):
    """A sum of products of symbols, which is an int to all that only multiplies, adds and compares.

    A comparison that holds for some of its values and not for others raises, as does a division
    that is not exact for all; two are equal where they are the same sum. The int itself is -1,
    which no extent is: what reads it past these operators, as numpy does, is refused there.

    Raises:
        UndecidedExtentError: what an operator is asked has no one answer.
    """

    _terms: tuple[tuple[Monomial, int], ...]

    def __new__(cls, terms: Mapping[Monomial, int]) -> Dim:
        """The sum of `terms`: the number that multiplies each product of symbols."""
        made = super().__new__(cls, -1)
        made._terms = tuple(sorted((key, value) for key, value in terms.items() if value))
        return made

    def __reduce__(self) -> tuple[type[Dim], tuple[dict[Monomial, int]]]:
        return Dim, (dict(self._terms),)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols that it depends on, in order."""
        return tuple(sorted({symbol for monomial, _ in self._terms for symbol in monomial}))

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        """Each product of symbols, and the number that multiplies it."""
        return self._terms

    @property
    def bounds(self) -> tuple[int, int]:
        """A least and a greatest value; exact where no number is negative."""
        low = high = 0
        for monomial, number in self._terms:
            ends = [number * prod(s.low for s in monomial), number * prod(s.high for s in monomial)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def of(self, values: Mapping[Symbol, int]) -> int:
        """Its value where the symbols have these, which may be extents of other symbols."""
        terms = [number * prod(values[s] for s in monomial) for monomial, number in self._terms]
        return sum(terms[1:], start=terms[0])

    def __add__(self, other: int) -> int:
        return _sum([*self._terms, *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> int:
        return self * -1

    def __sub__(self, other: int) -> int:
        return self + other * -1

    def __rsub__(self, other: int) -> int:
        return self * -1 + other

    def __mul__(self, other: int) -> int:
        return _sum(
            (tuple(sorted(left + right)), a * b)
            for left, a in self._terms
            for right, b in _terms(other)
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        found = _quotient(self, other)
        return found if found is not None else self._undecided(f"// {other}")

    def __rfloordiv__(self, other: int) -> int:
        found = _quotient(other, self)
        return found if found is not None else self._undecided(f"as the divisor of {other}")

    def __mod__(self, other: int) -> int:
        return 0 if _quotient(self, other) is not None else self._undecided(f"% {other}")

    def __rmod__(self, other: int) -> int:
        return 0 if _quotient(other, self) is not None else self._undecided(f"in {other} % {self}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self._terms == other._terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._terms)

    def __lt__(self, other: int) -> bool:
        return self._decided(other - self, f"< {other}")

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __gt__(self, other: int) -> bool:
        return self._decided(self - other, f"> {other}")

    def __le__(self, other: int) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self > 0 or self < 0

    def _decided(self, positive: int, asked: str) -> bool:
        """Whether `positive` is above 0, for all values or for none."""
        low, high = positive.bounds if isinstance(positive, Dim) else (positive, positive)
        if low > 0:
            return True
        return False if high <= 0 else self._undecided(asked)

    def _undecided(self, asked: str) -> NoReturn:
        low, high = self.bounds
        raise UndecidedExtentError(
            f"the symbolic extent {self}, from {low} to {high}, does not decide '{asked}': give "
            "its dimensions another range, or fixed sizes"
        )

    def _no_number(self, *_: object) -> Any:
        self._undecided("as a number")

    def __ceil__(self) -> int:
        return self

    __floor__ = __trunc__ = __ceil__
    __int__ = __index__ = __float__ = __truediv__ = __rtruediv__ = __divmod__ = _no_number
    __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _no_number
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __round__ = _no_number

    def __str__(self) -> str:
        texts = []
        is_alone = len(self._terms) == 1 and self._terms[0][1] == len(self._terms[0][0]) == 1
        for monomial, number in self._terms:
            names = [_factor(symbol.name, is_alone=is_alone) for symbol in monomial]
            factors = [str(number)] if number != 1 or not names else []
            texts.append("*".join([*factors, *names]))
        return " + ".join(texts)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def _factor(name: str, *, is_alone: bool) -> str:
    """Return a symbol's name within a sum; a formula, as "h // 2", gets brackets."""
    return name if is_alone or name.isidentifier() else f"({name})"


def symbolic(symbol: Symbol) -> int:
    """The extent that a symbol is; one value is a number."""
    return symbol.low if symbol.low == symbol.high else Dim({(symbol,): 1})


def has_dynamic(extents: Iterable[int]) -> bool:
    """Return whether any extent is dynamic."""
    return any(isinstance(extent, Dim) for extent in extents)


def greatest(extent: int) -> int:
    """An extent where each symbol has its greatest value."""
    return extent.of({s: s.high for s in extent.symbols}) if isinstance(extent, Dim) else extent


def typical(extent: int) -> int:
    """An extent in the middle of its symbols' ranges, in logarithms."""
    if not isinstance(extent, Dim):
        return extent
    return extent.of({s: round(math.sqrt(s.low * s.high)) for s in extent.symbols})


def divides(width: int, extent: int) -> bool:
    """Whether `width` divides an extent, whatever the values of its symbols."""
    if not isinstance(extent, Dim) and not isinstance(width, Dim):
        return width != 0 and extent % width == 0  # most are numbers, and there are many
    if isinstance(extent, Dim) and extent.bounds[0] == extent.bounds[1]:
        return extent.bounds[0] % width == 0
    return _quotient(extent, width) is not None


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which tensors of these shapes are broadcast; a symbolic extent is never 1.

    Raises:
        ValueError: they do not broadcast.
    """
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    found = []
    for extents in zip(*full, strict=True):
        others = dict.fromkeys(extent for extent in extents if extent != 1)
        if len(others) > 1:
            raise ValueError(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
        found.append(next(iter(others), 1))
    return tuple(found)


def _terms(value: int) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), value),)


def _sum(terms: Any) -> int:
    total: dict[Monomial, int] = {}
    for monomial, number in terms:
        total[monomial] = total.get(monomial, 0) + number
    if not any(number and monomial for monomial, number in total.items()):
        return total.get((), 0)
    return Dim(total)


def _quotient(left: int, right: int) -> int | None:
    """`left` divided by a product of symbols, where that is exact for all values; else None."""
    divisor = _terms(right)
    if len(divisor) != 1 or divisor[0][1] == 0:
        return None
    (factor, number) = divisor[0]
    found = []
    for monomial, count in _terms(left):
        rest = list(monomial)
        for symbol in factor:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if count % number:
            return None
        found.append((tuple(rest), count // number))
    return _sum(found)
