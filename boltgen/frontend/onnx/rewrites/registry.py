"""The table of rewrites: operators that a converter lacks or gets wrong, as standard operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from boltgen.frontend.onnx.inline import function_nodes
from boltgen.frontend.onnx.scope import Array, Extents, Scope, attribute, operand

# The operator set whose forms old nodes are lifted to.
LIFTED_TO = 13


_T = TypeVar("_T")


class UnsupportedError(Exception):
    """A form of an operator that no converter takes as ONNX has it: `what` it is, and a remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


class UnknownError(Exception):
    """A rule needs a type, a shape or a number that is not known: it does not apply."""


class Builder:
    """Answer queries about a node, and make the nodes that take its place.

    `build.MatMul(a, b)` adds a node and gives the name of its result. An operand is a name, "" or
    None if it is left out, or a value that becomes a constant: an array, or whole numbers.
    """

    def __init__(self, scope: Scope, node: Any) -> None:
        self.scope = scope
        self.node = node
        self.nodes: list[Any] = []
        self.opset = LIFTED_TO  # of the nodes
        self._hint = next(filter(None, node.output), node.op_type)

    @property
    def x(self) -> str:
        """The name of the node's first operand, which it must have."""
        return str(self.node.input[0])

    def get(self, name: str, default: Any = None) -> Any:
        """The value of the node's attribute."""
        return attribute(self.node, name, default)

    def operand(self, place: int) -> str:
        """Return the name of the node's operand, or "" if it is left out."""
        return operand(self.node, place)

    def known(self, place: int) -> Array | None:
        """Return the node's operand if it is a constant."""
        return self.scope.constant(self.operand(place))

    def dtype(self, place: int = 0) -> np.dtype[Any]:
        """The dtype of the node's operand, which must be known."""
        return _known(self.scope.dtype(self.operand(place)))

    def extents(self, place: int = 0) -> Extents:
        """The shape of the node's operand, whose rank must be known."""
        return _known(self.scope.extents(self.operand(place)))

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """The shape of the node's operand, which must be known."""
        return _known(self.scope.shape(self.operand(place)))

    def __getattr__(self, operator: str) -> Callable[..., str]:
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *operands, **attributes: self.many(operator, operands, 1, **attributes)[0]

    def many(
        self, operator: str, operands: Sequence[Any], results: int | Sequence[str], **more: Any
    ) -> list[str]:
        """Add a node with so many results, or results of these names; an attribute may be None."""
        inputs = [self._name(each) for each in operands]
        while inputs and not inputs[-1]:
            inputs.pop()
        if isinstance(results, int):
            results = [self.scope.fresh(f"{self._hint}_{operator}") for _ in range(results)]
        given = {key: value for key, value in more.items() if value is not None}
        made = self.scope.onnx.helper.make_node(operator, inputs, results, name=results[0], **given)
        self.nodes.append(made)
        return list(results)

    def split(self, value: str, lengths: Sequence[int]) -> list[str]:
        """Parts of these lengths of a value's last axis."""
        if len(lengths) == 1:
            return [value]
        return self.many("Split", [value, lengths], len(lengths), axis=-1)

    def again(self, operands: Sequence[Any] | None = None, **changed: Any) -> list[str]:
        """Add the node itself, with other operands and attributes; None removes an attribute."""
        node = self.node
        attributes = {each.name: attribute(node, each.name) for each in node.attribute} | changed
        operands = list(node.input) if operands is None else operands
        return self.many(node.op_type, operands, list(node.output), **attributes)

    def defined(self) -> list[str] | None:
        """Add the nodes that ONNX defines the operator by, if it does."""
        found = function_nodes(self.node, self.scope)
        if found is None:
            return None
        self.nodes, self.opset = found
        return list(self.node.output)

    def constant(self, value: Any) -> str:
        """The name of a new constant."""
        dtype = None if isinstance(value, (np.ndarray, np.generic)) else np.int64
        name = self.scope.fresh(f"{self._hint}_constant")
        self.scope.add_array(name, np.asarray(value, dtype))
        return name

    def _name(self, value: Any) -> str:
        if value is None:
            return ""
        return value if isinstance(value, str) else self.constant(value)

    def finish(self, results: str | Sequence[str]) -> None:
        """Give results the names of the node's own results; "" marks a result that is left out."""
        named: dict[str, str] = {}
        values = [results] if isinstance(results, str) else results
        for value, out in zip(values, self.node.output, strict=False):
            if not value or not out or value == out:
                continue
            source = named.get(value, value)
            if source == value and any(value in made.output for made in self.nodes):
                named[value] = out
                for made in self.nodes:
                    _replace(made.input, value, out)
                    _replace(made.output, value, out)
                    made.name = out if made.name == value else made.name
            else:
                self.many("Identity", [source], [out])


def _known(value: _T | None) -> _T:
    if value is None:
        raise UnknownError
    return value


def _replace(names: Any, old: str, new: str) -> None:
    for place, name in enumerate(names):
        if name == old:
            names[place] = new


# Writes the nodes that take a node's place, and names the results; None leaves the node as it is.
# Raises `UnsupportedError` if a converter would compute other numbers than ONNX does.
Rewriting: TypeAlias = Callable[[Builder], "str | Sequence[str] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewriting of one operator.

    `why` is a sentence for people; it is "" where the rule only refuses some forms. With `below`,
    it lifts nodes of operator sets older than that to the form of set 13. `only` names the one
    importer that wants it.
    """

    apply: Rewriting
    why: str
    below: int = 0
    only: str = ""


RULES: dict[str, list[Rule]] = {}
# The rule that is tried last, for any operator that the importer lacks.
AS_DEFINED = Rule(apply=Builder.defined, why="it is written as ONNX defines it")


def rewrites(
    *operators: str, why: str = "", below: int = 0, only: str = ""
) -> Callable[[Rewriting], Rewriting]:
    """Enter a rewriting into the table, for the operators that it takes.

    One of another operator set than ONNX's has its domain and a point before its name.
    """

    def enter(apply: Rewriting) -> Rewriting:
        for operator in operators:
            rule = Rule(apply=apply, why=why, below=below, only=only)
            RULES.setdefault(operator, []).append(rule)
        return apply

    return enter
