"""Extents of inputs as text: a dimension's name, or a formula such as "2*h + 1" or "h//2".

A text that is no formula of whole numbers and names, divided by whole numbers alone, is one name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

# A formula with more characters is a name as a whole: parsing nests as deeply as it does.
_MOST_CHARACTERS = 500
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class Formula:
    """An extent in terms of dimensions, parsed from its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree: ast.expr = ast.Name(text)
        self.names: tuple[str, ...] = (text,)
        tree = _parsed(text)
        if tree is not None:
            self._tree = tree
            found = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
            self.names = tuple(sorted(set(found)))

    @property
    def is_name(self) -> bool:
        """Whether it is one dimension, and nothing is computed."""
        return isinstance(self._tree, ast.Name)

    def at(self, values: Mapping[str, int]) -> int:
        """Its value where each of its names has one."""
        return _value(self._tree, values)

    def line(self, name: str, known: Mapping[str, int] | None = None) -> tuple[int, int] | None:
        """Return the factor of `name` in a sum, and the rest; None if it is no such sum.

        The other names are `known`.
        """
        nodes = [node for node in ast.walk(self._tree) if isinstance(node, ast.BinOp)]
        if any(isinstance(node.op, ast.FloorDiv) for node in nodes):
            return None
        base, one, two, three = (self.at({**(known or {}), name: n}) for n in range(4))
        step = one - base
        return (step, base) if two - one == three - two == step else None

    def solved(self, name: str, value: int, known: Mapping[str, int]) -> int | None:
        """Return the value of `name` for which the formula has `value`, or None if no whole number
        is.

        The other names are `known`. Return None if `name` is divided or multiplied by itself.
        """
        step, base = self.line(name, known) or (0, 0)
        return (value - base) // step if step and (value - base) % step == 0 else None


@lru_cache(maxsize=1024)
def formula_of(text: str) -> Formula:
    """Return the formula that a text is; texts are parsed once."""
    return Formula(text)


def _parsed(text: str) -> ast.expr | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if _is_formula(tree) else None


def _is_formula(tree: ast.expr) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.FloorDiv(), right=right):
                if not (
                    isinstance(right, ast.Constant) and type(right.value) is int and right.value
                ):
                    return False
            case ast.BinOp(op=op):
                if type(op) not in _OPERATORS:
                    return False
            case ast.UnaryOp(op=ast.USub()) | ast.Name() | ast.operator() | ast.unaryop():
                pass
            case ast.Constant(value=value):
                if type(value) is not int:
                    return False
            case ast.expr_context():
                pass
            case _:
                return False
    return True


def _value(tree: ast.expr, values: Mapping[str, int]) -> int:
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return values[name]
    raise AssertionError(f"{ast.dump(tree)} is no formula")


def solve(formulas: Iterable[tuple[Formula, int]], known: dict[str, int]) -> None:
    """Add to `known` the dimensions that follow from what formulas are at a run.

    The caller has to find contradictions to known values.
    """
    left = list(formulas)
    while left:
        later = []
        for formula, value in left:
            unknown = [name for name in formula.names if name not in known]
            if len(unknown) > 1:
                later.append((formula, value))
            elif unknown:
                found = formula.solved(unknown[0], value, known)
                if found is not None:
                    known[unknown[0]] = found
        if len(later) == len(left):
            return
        left = later
