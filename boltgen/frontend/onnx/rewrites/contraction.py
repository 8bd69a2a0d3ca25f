"""Einsum of two operands as a matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from boltgen.frontend.onnx.rewrites.registry import rewrites
from boltgen.frontend.onnx.scope import Builder, attribute


@dataclass(frozen=True, slots=True)
class _Axes:
    """The letters of a contraction by what they do, each in order of the first operand with it."""

    batch: str
    left: str
    summed: str
    right: str


@rewrites("Einsum", why="it is written as a matrix product")
def einsum(node: Any, build: Builder) -> bool:
    """Write a contraction of two operands of known shapes as Transpose, Reshape and MatMul."""
    terms = attribute(node, "equation").replace(" ", "")
    axes = _axes(terms)
    if axes is None:
        return False
    inputs, output = terms.split("->")
    first, second = inputs.split(",")
    extents: dict[str, int] = {}
    for term, name in zip((first, second), node.input, strict=True):
        shape = build.scope.shape(name)
        if shape is None or len(shape) != len(term):
            return False
        for letter, extent in zip(term, shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                return False
    a = _arranged(build, node.input[0], first, (axes.batch, axes.left, axes.summed), extents)
    b = _arranged(build, node.input[1], second, (axes.batch, axes.summed, axes.right), extents)
    product = build("MatMul", [a, b])
    order = axes.batch + axes.left + axes.right
    shaped = build("Reshape", [product, build.constant([extents[each] for each in order])])
    build("Transpose", [shaped], out=node.output[0], perm=[order.index(each) for each in output])
    return True


def _axes(terms: str) -> _Axes | None:
    """What each letter does, or None where the equation is no product of two matrices."""
    inputs, arrow, output = terms.partition("->")
    parts = inputs.split(",")
    if not arrow or len(parts) != 2 or not all(each.isalpha() for each in (*parts, output)):
        return None
    first, second = parts
    if any(len(set(term)) < len(term) for term in (first, second, output)):
        return None
    axes = _Axes(
        batch="".join(each for each in first if each in second and each in output),
        left="".join(each for each in first if each not in second),
        summed="".join(each for each in first if each in second and each not in output),
        right="".join(each for each in second if each not in first),
    )
    whole = sorted(axes.batch + axes.left + axes.right) == sorted(output)
    return axes if whole and axes.summed else None


def _arranged(
    build: Builder,
    name: str,
    term: str,
    groups: tuple[str, str, str],
    extents: Mapping[str, int],
) -> str:
    """An operand with its letters in order of groups, one axis for each of the last two."""
    order = [term.index(letter) for group in groups for letter in group]
    moved = name if order == sorted(order) else build("Transpose", [name], perm=order)
    shape = [extents[letter] for letter in groups[0]]
    shape += [prod(extents[letter] for letter in group) for group in groups[1:]]
    return build("Reshape", [moved, build.constant(shape)])
