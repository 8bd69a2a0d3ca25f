"""Rewrite Einsum as matrix products.

    bhqd,bhkd->bhqk    ij,kj    ...i,ij->...j    ab,bc,cd->ad

Each pair of operands is one product, where its letters fall into four groups: `batch` (in both and
in the result), `left` and `right` (in one operand and in the result), and `summed` (in both alone).
A letter that one operand alone has is summed before. A diagonal stays an Einsum, and so does a
contraction that sums nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from boltgen.frontend.onnx.rewrites.registry import Builder, UnknownError, rewrites

Letters = tuple[str, ...]
_DOTS = "..."


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor, and the letter of each of its axes; each axis of an ellipsis has one of its own.

    An unknown extent is None.
    """

    name: str
    letters: Letters
    extents: tuple[int | None, ...]

    def extent(self, letter: str) -> int | None:
        return self.extents[self.letters.index(letter)]


@rewrites("Einsum", why="it is written as a matrix product")
def einsum(build: Builder) -> str | None:
    """Write a contraction of two operands or more as Transpose, Reshape and MatMul."""
    inputs, arrow, output = build.get("equation").replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) < 2 or not all(map(_is_term, (*terms, output))):
        return None
    operands = [_operand(build, place, term) for place, term in enumerate(terms)]
    if any(len(set(each.letters)) < len(each.letters) for each in operands):
        return None
    wanted = _result(operands, terms, output if arrow else None)
    if len(set(wanted)) < len(wanted) or not _are_alike(operands):
        return None
    count = Counter(letter for each in operands for letter in each.letters)
    shared = {*wanted, *(letter for letter, times in count.items() if times > 1)}
    first, *others = [_summed(build, each, shared) for each in operands]
    while others:
        second, *others = others
        later = {*wanted, *(letter for each in others for letter in each.letters)}
        product = _product(build, first, second, later)
        if product is None:
            return None
        first = product
    if sorted(first.letters) != sorted(wanted):
        return None
    return _transposed(build, first, wanted).name


def _is_term(text: str) -> bool:
    letters = text.replace(_DOTS, "", 1)
    return not letters or (letters.isalpha() and letters.isascii())


def _operand(build: Builder, place: int, term: str) -> _Operand:
    extents = tuple(each if isinstance(each, int) else None for each in build.extents(place))
    before, dots, after = term.partition(_DOTS)
    count = len(extents) - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise UnknownError  # ONNX's checker names such a node
    # The last axes of all ellipses are one another's.
    between = tuple(f"{_DOTS}{number}" for number in range(count, 0, -1))
    return _Operand(build.operand(place), (*before, *between, *after), extents)


def _result(operands: Sequence[_Operand], terms: Sequence[str], output: str | None) -> Letters:
    """Return the letters of the result: without an arrow, the letters that occur once, sorted."""
    between = max(
        (tuple(letter for letter in each.letters if letter.startswith(_DOTS)) for each in operands),
        key=len,
    )
    if output is None:
        once = sorted(
            each for each in set("".join(terms)) - {"."} if "".join(terms).count(each) == 1
        )
        return (*between, *once)
    before, dots, after = output.partition(_DOTS)
    return (*before, *(between if dots else ()), *after)


def _are_alike(operands: Sequence[_Operand]) -> bool:
    """Return whether each letter has one extent; an ellipsis's axis may be 1 in some operands."""
    known: dict[str, set[int]] = {}
    for operand in operands:
        for letter, extent in zip(operand.letters, operand.extents, strict=True):
            if extent is not None and not (letter.startswith(_DOTS) and extent == 1):
                known.setdefault(letter, set()).add(extent)
    return all(len(extents) == 1 for extents in known.values())


def _product(build: Builder, first: _Operand, second: _Operand, later: set[str]) -> _Operand | None:
    """Return the product of two operands, or None if it is none; the letters `later` are still
    needed.
    """
    one, two = first.letters, second.letters
    batch = tuple(each for each in one if each in two and each in later)
    summed = tuple(each for each in one if each in two and each not in later)
    left, right = (
        tuple(each for each in of if each not in other) for of, other in ((one, two), (two, one))
    )
    # An axis of an ellipsis may be 1 in one operand, and is no sum of products there.
    if not summed or any(each.startswith(_DOTS) for each in summed):
        return None
    if not later.issuperset((*left, *right)):
        return None
    # MatMul takes rows of any rank where the second operand is one matrix.
    is_matrix = not batch and len(summed) == 1 and left
    rows = [(each,) for each in left] if is_matrix else [left]
    a = _arranged(build, first, batch, [*rows, summed])
    b = _arranged(build, second, batch, [summed, right])
    name = build.MatMul(a, b)
    letters = (*batch, *left, *right)
    extents = tuple(
        _broadcast(*(each.extent(letter) for each in (first, second) if letter in each.letters))
        for letter in letters
    )
    kept = (*batch, *left) if is_matrix else batch
    if len(right) != 1 or not (is_matrix or len(left) == 1):
        name = _reshaped(build, name, len(kept), extents[len(kept) :])
    return _Operand(name, letters, extents)


def _summed(build: Builder, operand: _Operand, kept: set[str]) -> _Operand:
    """Sum an operand over the axes whose letters are not `kept`."""
    axes = [axis for axis, letter in enumerate(operand.letters) if letter not in kept]
    if not axes:
        return operand
    left = [axis for axis in range(len(operand.letters)) if axis not in axes]
    return _Operand(
        build.ReduceSum(operand.name, axes, keepdims=0),
        tuple(operand.letters[axis] for axis in left),
        tuple(operand.extents[axis] for axis in left),
    )


def _broadcast(*extents: int | None) -> int | None:
    if None in extents:
        return None
    return max(each for each in extents if each is not None)


def _arranged(build: Builder, operand: _Operand, batch: Letters, groups: Sequence[Letters]) -> str:
    """Reshape an operand to the axes of `batch`, then one axis for each group of its letters."""
    order = (*batch, *(letter for group in groups for letter in group))
    moved = _transposed(build, operand, order).name
    if all(len(group) == 1 for group in groups):
        return moved
    joined = [_joined([operand.extent(letter) for letter in group]) for group in groups]
    return _reshaped(build, moved, len(batch), joined)


def _joined(extents: Sequence[int | None]) -> int | None:
    known = [each for each in extents if each is not None]
    return prod(known) if len(known) == len(extents) else None


def _reshaped(build: Builder, name: str, kept: int, extents: Sequence[int | None]) -> str:
    """Reshape a tensor: its first axes are `kept`, the others have these extents.

    Raises:
        UnknownError: two of these are not known.
    """
    if sum(extent is None for extent in extents) > 1:
        raise UnknownError
    return build.Reshape(name, [0] * kept + [-1 if each is None else each for each in extents])


def _transposed(build: Builder, operand: _Operand, order: Letters) -> _Operand:
    axes = [operand.letters.index(letter) for letter in order]
    if axes == sorted(axes):
        return operand
    name = build.Transpose(operand.name, perm=axes)
    return _Operand(name, order, tuple(operand.extents[axis] for axis in axes))
