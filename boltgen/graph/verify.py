"""The rules of a graph, checked between passes.

1. An operator reads values of lines above it only.
2. Results and escaping values exist, and results escape.
3. An operator has the attributes of `attributes.KINDS`, and as many operands as `ops` says.
4. Shape and dtype of a value are what its record infers.
5. A constant's array has the constant's shape and dtype.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NoReturn

from boltgen.errors import GraphError
from boltgen.graph.attribute_kinds import mistyped
from boltgen.graph.attributes import KINDS, Attributes, Axis
from boltgen.graph.graph import CONSTANT, PART, Expr, Graph, leaves
from boltgen.graph.ops import OPERATORS, OperandError, differs
from boltgen.graph.text import print_value
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim

_BFLOAT16 = DType.BF16.value


class Verifier:
    """Verifies one graph after another; operators that were right before are not checked again."""

    def __init__(self) -> None:
        # The attributes are kept, so that no others get their `id`.
        self._right: dict[Hashable, object] = {}

    def verify(self, graph: Graph) -> None:
        """Check `graph`.

        Raises:
            GraphError: it breaks a rule; the message has the rule and the operator's line.
        """
        exprs = graph.exprs
        types = [(expr.shape, expr.dtype) for expr in exprs]
        right = self._right
        for index, expr in enumerate(exprs):
            args = expr.args
            if args and not (min(args) >= 0 and max(args) < index):
                _broken(graph, index, "an operator reads values of lines above it")
            key = (
                expr.op,
                id(expr.attrs),
                types[index],
                id(expr.array),
                *[types[arg] for arg in args],
            )
            if key not in right:
                _check(graph, index)
                if expr.op == PART:  # its shape follows from more than its operand's
                    continue
                right[key] = expr.attrs, expr.array
        count, results = len(exprs), set(leaves(graph.results))
        for index in (*results, *graph.escaping):
            if not 0 <= index < count:
                raise GraphError(f"the value v{index} is a result or escapes, and does not exist")
        if not results <= graph.escaping:
            _broken(graph, min(results - graph.escaping), "a result is an escaping value")


def _check(graph: Graph, index: int) -> None:
    """Check one operator by its record."""
    expr = graph[index]
    if expr.op == CONSTANT and (problem := _of_array(expr)):
        _broken(graph, index, problem)
    kinds = KINDS.get(expr.op, (Attributes,))
    if type(expr.attrs) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        _broken(graph, index, f"{expr.op} has the attributes {wanted}")
    if (problem := mistyped(expr.attrs)) is not None:
        _broken(graph, index, f"{expr.op}'s {problem}")
    if expr.op == PART and (problem := _of_split(graph, expr)):
        _broken(graph, index, problem)
    record = OPERATORS.get(expr.op)
    if record is None:
        return
    count = len(expr.args)
    if count < record.least or (record.most is not None and count > record.most):
        most = "any number" if record.most is None else record.most
        _broken(graph, index, f"{expr.op} has {record.least} to {most} operands")
    if count == 0 or expr.shape is None:
        return
    args = [graph[arg] for arg in expr.args]
    try:
        dtype = record.dtype(expr, [arg.dtype for arg in args])
        known = all(arg.is_static for arg in args)
        shape = record.shape(expr, [arg.static_shape for arg in args]) if known else None
    except OperandError as error:
        _broken(graph, index, f"{expr.op}: {error}")
    if dtype is not None and dtype != expr.dtype:
        _broken(graph, index, f"{expr.op}'s result is {dtype}")
    if shape is None:
        return
    is_equal = len(shape) == len(expr.shape) and not any(
        isinstance(own, int) and made is not None and differs(own, made)
        for own, made in zip(expr.shape, shape, strict=True)
    )
    if not is_equal:
        said = ", ".join("?" if each is None else str(each) for each in shape)
        _broken(graph, index, f"{expr.op}'s result has the shape ({said})")


def _of_split(graph: Graph, part: Expr) -> str | None:
    """The rule that a part of a split breaks."""
    split = graph[part.args[0]]
    whole = graph[split.args[0]] if split.op == "split" else None
    if whole is None or not whole.is_static or not part.is_static:
        return None
    shape, made = whole.static_shape, part.static_shape
    try:
        axis = split.attrs.of(Axis).at(len(shape))
    except ValueError as error:
        return str(error)
    is_beside = len(made) == len(shape) and not any(
        differs(own, of_whole)
        for at, (own, of_whole) in enumerate(zip(made, shape, strict=True))
        if at != axis
    )
    is_within = is_beside and (
        isinstance(shape[axis] - made[axis], Dim) or made[axis] <= shape[axis]
    )
    return None if is_within else f"a part of {shape} along axis {axis} has its other extents"


def _of_array(expr: Expr) -> str | None:
    """The rule that a constant's array breaks."""
    array = expr.array
    if array is None:
        return None
    if array.shape != expr.shape:
        return f"the array of a constant has its shape, not {array.shape}"
    # NumPy has no name of its own for bfloat16.
    if str(array.dtype) != expr.dtype and expr.dtype != _BFLOAT16:
        return f"the array of a constant has its dtype, not {array.dtype}"
    if array.size == 1 and expr.scalar is None:
        return "a constant of one element has a scalar"
    return None


def _broken(graph: Graph, index: int, rule: str) -> NoReturn:
    raise GraphError(
        f"operator {graph[index].op} breaks the rule '{rule}': {print_value(graph, index)}"
    )
