"""The text form of a graph, in the syntax of Python: one operator a line.

    n = dim('n', 1, 64)
    def main():
        v0: float32[n, 4] = input()
        v1: float32[4, 8] = constant('9f0c5a1b77de')
        v2: float32[n, 8] = matmul(v0, v1, _observed=(-1.5, 2.0))
        return v2

Keywords are attributes other than the default; `_observed`, `_pinned`, `_reason` and `_scalar` are
fields of the value. A symbolic dimension has a line at the top. A graph within an operator is a
function of its own. Constants of at most 8 elements stand in the text; others are named by a
digest, and `Constants` has the arrays. The author's expressions (`Expr.origin`) are not part of the
text.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import keyword
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import NoReturn, cast

import numpy as np

from boltgen.errors import GraphError, GraphTextError, InvalidProblemError
from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.graph import CONSTANT, Array, Expr, Extents, Graph, Structure, leaves
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim, Symbol, symbolic
from boltgen.problems.gemm.packed import PackedWeights

_MOST_INLINE = 8
_DIGITS = 12
_MAIN = "main"
_NO_DTYPE = "_"
# Classes of attributes' values that are written by their fields.
_RECORDS = {kind.__name__: kind for kind in (PackedWeights,)}
_FLOATS = {"inf": math.inf, "nan": math.nan}


class Constants:
    """The arrays of constants by the digests that name them in a text."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        # The arrays are kept, so that no other one gets their `id`.
        self._digests: dict[int, tuple[str, Array]] = {}

    def digest(self, array: Array) -> str:
        """Return the name of `array`, and remember the array."""
        if id(array) not in self._digests:
            content = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
            content.update(np.ascontiguousarray(array).tobytes())
            digest = content.hexdigest()[:_DIGITS]
            self._digests[id(array)] = digest, array
            self._arrays[digest] = array
        return self._digests[id(array)][0]

    def array(self, digest: str) -> Array | None:
        """Return the array of that digest; None if it is not known."""
        return self._arrays.get(digest)


def print_graph(graph: Graph, constants: Constants | None = None) -> str:
    """Return the text of a graph; `constants` gets the arrays that the text only names."""
    return _Printer(Constants() if constants is None else constants).print(graph)


def print_value(graph: Graph, index: int) -> str:
    """Return the line of one value of a graph."""
    return _Printer(Constants()).line(index, graph[index])


class _Printer:
    """One text under way: its symbolic dimensions, and the graphs within its operators."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._dims: dict[Symbol, str] = {}
        self._functions: list[str] = []
        self._numbers = itertools.count()

    def print(self, graph: Graph) -> str:
        main = self._function(_MAIN, graph)
        dims = [f"{name} = dim({s.name!r}, {s.low}, {s.high})" for s, name in self._dims.items()]
        return "\n".join([*dims, *self._functions, main]) + "\n"

    def line(self, index: int, expr: Expr) -> str:
        parts = [f"v{arg}" for arg in expr.args]
        if expr.op == CONSTANT:
            parts += self._elements(expr)
        elif expr.scalar is not None:
            parts.append(f"_scalar={self._value(expr.scalar)}")
        for each in fields(expr.attrs):
            value = getattr(expr.attrs, each.name)
            if value != each.default:
                parts.append(f"{each.name}={self._value(value)}")
        if expr.observed is not None:
            parts.append(f"_observed={self._value(expr.observed)}")
        if expr.pinned:
            parts.append("_pinned=True")
        if expr.reason:
            parts.append(f"_reason={self._value(expr.reason)}")
        return f"v{index}: {self._type(expr)} = {_operator(expr.op)}({', '.join(parts)})"

    def _function(self, name: str, graph: Graph) -> str:
        lines = [self.line(index, expr) for index, expr in enumerate(graph.exprs)]
        if graph.escaping != frozenset(leaves(graph.results)):
            lines.append(f"escaping({', '.join(f'v{each}' for each in sorted(graph.escaping))})")
        lines.append(f"return {_structure(graph.results)}")
        return "\n    ".join([f"def {name}():", *lines])

    def _elements(self, expr: Expr) -> Iterator[str]:
        array = expr.array
        if array is None:
            if expr.scalar is not None:
                yield f"_scalar={self._value(expr.scalar)}"
        elif _is_short(array):
            yield self._value(_nested(array.tolist()))
        else:
            yield repr(self._constants.digest(array))

    def _type(self, expr: Expr) -> str:
        dtype = expr.dtype or _NO_DTYPE
        dtype = dtype if _is_name(dtype) else repr(dtype)
        if expr.shape is None:
            return dtype
        return f"{dtype}[{', '.join(map(self._value, expr.shape)) or '()'}]"

    def _value(self, value: object) -> str:
        match value:
            case Dim():
                return self._dim(value)
            case DType():
                return f"dtype({value.value!r})"
            case bool() | int() | None:
                return repr(value)
            case float():
                return float.__repr__(value)  # NumPy's float64 is a float with another `repr`
            case str():
                return str.__repr__(value)
            case tuple():
                inner = ", ".join(map(self._value, value))
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case Graph():
                name = f"inside{next(self._numbers)}"
                self._functions.append(self._function(name, value))
                return name
        if is_dataclass(value) and type(value).__name__ in _RECORDS:
            pairs = [f"{f.name}={self._value(getattr(value, f.name))}" for f in fields(value)]
            return f"{type(value).__name__}({', '.join(pairs)})"
        return f"unknown({type(value).__name__!r}, {str(value)!r})"

    def _dim(self, value: Dim) -> str:
        terms = []
        for monomial, number in value.terms:
            names = [self._symbol(symbol) for symbol in monomial]
            terms.append("*".join([str(number)] * (number != 1 or not names) + names))
        return " + ".join(terms)

    def _symbol(self, symbol: Symbol) -> str:
        if symbol not in self._dims:
            is_free = _is_name(symbol.name) and symbol.name not in self._dims.values()
            own = is_free and symbol.name not in _FLOATS
            self._dims[symbol] = symbol.name if own else f"dim{len(self._dims)}"
        return self._dims[symbol]


def parse_graph(text: str, constants: Constants | None = None) -> Graph:
    """Return the graph of a text.

    Without `constants`, a constant that the text only names has no array.

    Raises:
        GraphTextError: the text is not one of a graph, `constants` lacks an array, or an attribute
            has a value that a text cannot hold.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise GraphTextError(f"line {error.lineno} of a graph's text: {error.msg}") from None
    parser = _Parser(constants)
    for node in tree.body:
        parser.read(node)
    if _MAIN not in parser.graphs:
        raise GraphTextError(f"a graph's text defines no function '{_MAIN}': add it")
    return parser.graphs[_MAIN]


class _Parser:
    """The definitions of a text so far: dimensions, and functions as `graphs`."""

    def __init__(self, constants: Constants | None) -> None:
        self.graphs: dict[str, Graph] = {}
        self._constants = constants
        self._dims: dict[str, int] = {}

    def read(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Call(ast.Name("dim"), args)):
                label, low, high = (self._value(each) for each in args)
                symbol = Symbol(cast("str", label), cast("int", low), cast("int", high))
                self._dims[name] = symbolic(symbol)
            case ast.FunctionDef():
                self.graphs[node.name] = self._graph(node)
            case _:
                _refuse(node, "is neither a dimension nor a function")

    def _graph(self, function: ast.FunctionDef) -> Graph:
        exprs: list[Expr] = []
        escaping: frozenset[int] | None = None
        for node in function.body:
            match node:
                case ast.AnnAssign(ast.Name(name), kind, ast.Call() as call):
                    if name != f"v{len(exprs)}":
                        _refuse(node, f"defines {name} where v{len(exprs)} is next")
                    exprs.append(self._expr(kind, call, len(exprs)))
                case ast.Expr(ast.Call(ast.Name("escaping"), args)):
                    escaping = frozenset(_place(each, len(exprs)) for each in args)
                case ast.Return(ast.expr() as value):
                    results = _parsed_structure(value, len(exprs))
                    own = frozenset(leaves(results)) if escaping is None else escaping
                    return Graph(tuple(exprs), own, results)
                case _:
                    _refuse(node, "is no operator")
        _refuse(function, "returns nothing")

    def _expr(self, kind: ast.expr, call: ast.Call, count: int) -> Expr:
        op = call.func.value if isinstance(call.func, ast.Constant) else ast.unparse(call.func)
        named = {str(each.arg): self._value(each.value) for each in call.keywords}
        observed, pinned = named.pop("_observed", None), named.pop("_pinned", False)
        scalar = cast("float | None", named.pop("_scalar", None))
        reason = str(named.pop("_reason", ""))
        try:
            attrs = attributes_of(str(op), named)
        except GraphError as error:
            _refuse(call, f"is no operator: {error}")
        dtype, shape = self._parsed_type(kind)
        array = None
        if op == CONSTANT and call.args:
            array = self._array(call.args[0], dtype, shape)
            if array is not None and array.size == 1:
                scalar = float(array.reshape(()))
        return Expr(
            op=str(op),
            args=() if op == CONSTANT else tuple(_place(each, count) for each in call.args),
            shape=shape,
            dtype=dtype,
            attrs=attrs,
            scalar=scalar,
            array=array,
            pinned=bool(pinned),
            observed=cast("tuple[float, float] | None", observed),
            reason=reason,
        )

    def _parsed_type(self, node: ast.expr) -> tuple[str, Extents | None]:
        match node:
            case ast.Subscript(kind, ast.Tuple(extents)):
                pass
            case ast.Subscript(kind, extent):
                extents = [extent]
            case _:
                return _dtype(node), None
        shape = cast("Extents", tuple(self._value(each) for each in extents))
        if any(not isinstance(each, (int, str)) for each in shape):
            _refuse(node, "has an extent that is neither a number nor a name")
        return _dtype(kind), shape

    def _array(self, node: ast.expr, dtype: str, shape: Extents | None) -> Array | None:
        value = self._value(node)
        if not isinstance(value, str):
            try:
                return np.array(value, dtype).reshape(cast("tuple[int, ...]", shape))
            except (TypeError, ValueError) as error:
                _refuse(node, f"is no constant of its type: {error}")
        if self._constants is None:
            return None
        array = self._constants.array(value)
        if array is None:
            _refuse(node, f"names the constant {value}, whose elements are not given")
        return array

    def _value(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value):
                return value
            case ast.Tuple(elements):
                return tuple(self._value(each) for each in elements)
            case ast.Name(name) if name in _FLOATS:
                return _FLOATS[name]
            case ast.Name(name) if name in self._dims:
                return self._dims[name]
            case ast.Name(name) if name in self.graphs:
                return self.graphs[name]
            case ast.UnaryOp(ast.USub(), operand):
                return -self._number(operand)
            case ast.BinOp(left, ast.Add(), right):
                return self._number(left) + self._number(right)
            case ast.BinOp(left, ast.Mult(), right):
                return self._number(left) * self._number(right)
            case ast.Call(ast.Name("dtype"), [ast.Constant(str(name))]):
                return DType(name)
            case ast.Call(ast.Name(name), [], keywords) if name in _RECORDS:
                return self._record(
                    node, name, {str(k.arg): self._value(k.value) for k in keywords}
                )
        _refuse(node, "is no value that a graph's text can hold")

    def _number(self, node: ast.expr) -> int:
        value = self._value(node)
        if not isinstance(value, (int, float)):
            _refuse(node, "is no number")
        return cast("int", value)

    def _record(self, node: ast.expr, name: str, given: Mapping[str, object]) -> object:
        try:
            return _RECORDS[name](**given)  # type: ignore[arg-type]
        except (TypeError, InvalidProblemError) as error:
            _refuse(node, f"is no {name}: {error}")


def _operator(name: str) -> str:
    return name if all(map(_is_name, name.split("."))) else repr(name)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_short(array: Array) -> bool:
    """Whether the elements of an array stand in the text: few, and exact there."""
    if array.size > _MOST_INLINE or array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        return False
    return array.size > 0 and not bool(np.isnan(array).any())


def _nested(value: object) -> object:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _structure(structure: Structure) -> str:
    if isinstance(structure, int):
        return f"v{structure}"
    inner = ", ".join(map(_structure, structure))
    return f"({inner},)" if len(structure) == 1 else f"({inner})"


def _parsed_structure(node: ast.expr, count: int) -> Structure:
    if isinstance(node, ast.Tuple):
        return tuple(_parsed_structure(each, count) for each in node.elts)
    return _place(node, count)


def _place(node: ast.expr, count: int) -> int:
    """The index of the value that a name means, one of `count` before it."""
    name = node.id if isinstance(node, ast.Name) else ""
    if not (name.startswith("v") and name[1:].isdecimal() and int(name[1:]) < count):
        _refuse(node, "is no value of a line above")
    return int(name[1:])


def _dtype(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return "" if name == _NO_DTYPE else name
        case ast.Constant(str(name)):
            return name
    _refuse(node, "is no dtype")


def _refuse(node: ast.AST, why: str) -> NoReturn:
    line = getattr(node, "lineno", 0)
    raise GraphTextError(f"line {line} of a graph's text: '{ast.unparse(node)[:80]}' {why}")
