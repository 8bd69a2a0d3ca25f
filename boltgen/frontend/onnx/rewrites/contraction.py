"""Einsum of two operands as a matrix product."""

from __future__ import annotations

from math import prod

from boltgen.frontend.onnx.rewrites.registry import Builder, rewrites


@rewrites("Einsum", why="it is written as a matrix product")
def einsum(build: Builder) -> str | None:
    """Write a contraction of two operands of known shapes as Transpose, Reshape and MatMul."""
    inputs, arrow, output = build.get("equation").replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != 2 or not all(each.isalpha() for each in (*terms, output)):
        return None
    first, second = terms
    if any(len(set(term)) < len(term) for term in (first, second, output)):
        return None
    # Letters by what they do, in order of the first operand that has them.
    batch = "".join(each for each in first if each in second and each in output)
    left = "".join(each for each in first if each not in second)
    summed = "".join(each for each in first if each in second and each not in output)
    right = "".join(each for each in second if each not in first)
    order = batch + left + right
    if not summed or sorted(order) != sorted(output):
        return None
    extents: dict[str, int] = {}
    for place, term in enumerate(terms):
        shape = build.shape(place)
        if len(shape) != len(term):
            return None
        for letter, extent in zip(term, shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                return None

    def arranged(place: int, *groups: str) -> str:
        """An operand with its letters in order of groups, one axis for each of the last two."""
        axes = [terms[place].index(letter) for group in groups for letter in group]
        name = build.operand(place)
        moved = name if axes == sorted(axes) else build.Transpose(name, perm=axes)
        joined = [prod(extents[letter] for letter in group) for group in groups[1:]]
        return build.Reshape(moved, [extents[letter] for letter in groups[0]] + joined)

    product = build.MatMul(arranged(0, batch, left, summed), arranged(1, batch, summed, right))
    shaped = build.Reshape(product, [extents[each] for each in order])
    return build.Transpose(shaped, perm=[order.index(each) for each in output])
