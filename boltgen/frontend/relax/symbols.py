"""The symbolic dimensions of a Relax function: as extents of the neutral graph, and back in TIR.

A sum of products of variables is one in the graph too. Any other expression of variables ("n // 2")
is a symbol of its own there, which stands for TVM's expression. An extent that depends on data, as
the number of nonzero elements, has no range and may be 0: it is a string, and no kernel has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax, sym, tirx

from boltgen.frontend.imported import TensorType
from boltgen.ir.extent import MOST_UNKNOWN, Dim, Symbol, symbolic

# A least value, and a greatest one where there is any.
Ends: TypeAlias = tuple[int, "int | None"]
Ranges: TypeAlias = Mapping[str, Ends]

# The attribute in which TVM keeps the ranges of variables, by name: its memory planner reads it.
LOW, HIGH = "tir_var_lower_bound", "tir_var_upper_bound"


def with_ranges(module: tvm.IRModule, ranges: Ranges) -> tvm.IRModule:
    """`module`, whose `main` says that its variables have these ranges, by their names.

    A formula of variables may have a range too; only boltgen reads it.
    """
    if not ranges:
        return module
    main = module["main"]
    attributes = dict((main.attrs or {}).items())
    for key, end in ((LOW, 0), (HIGH, 1)):
        known = {str(name): int(value) for name, value in attributes.get(key, {}).items()}
        given = {name: value for name, ends in ranges.items() if (value := ends[end]) is not None}
        main = main.with_attr(key, known | given)
    return _with_main(module, main)


def ranges_in(function: relax.Function) -> dict[str, Ends]:
    """The ranges that a function says its variables have, by their names."""
    attributes = dict((function.attrs or {}).items())
    low = {str(name): int(value) for name, value in attributes.get(LOW, {}).items()}
    high = {str(name): int(value) for name, value in attributes.get(HIGH, {}).items()}
    names = dict.fromkeys((*high, *(name for name, value in low.items() if value > 1)))
    return {name: (max(low.get(name, 1), 1), high.get(name)) for name in names}


def dimensions(function: relax.Function) -> list[tirx.Var]:
    """Return the variables in the shapes of a function's inputs; bare extents come first."""
    types = (param.ty for param in function.params)
    tensors = (type_ for type_ in types if isinstance(type_, relax.TensorType))
    extents = [e for each in tensors if each.shape is not None for e in each.shape.values]
    alone = [extent for extent in extents if isinstance(extent, tirx.Var)]
    within = [var for extent in extents for var in tirx.analysis.undefined_vars(extent)]
    return list(dict.fromkeys((*alone, *within)))


def with_dimensions(module: tvm.IRModule, values: Mapping[str, Any]) -> tvm.IRModule:
    """`module`, where the dimensions of `main` with these names have these values."""
    main = module["main"]
    bound = {var: values[str(var.name)] for var in dimensions(main) if str(var.name) in values}
    if not bound:
        return module
    # TVM binds what is an extent of an input, and no variable of a formula.
    last = relax.Var("dimensions", relax.ShapeType(list(bound)))
    made = _with_main(module, _with_params(main, [*main.params, last]))
    made = relax.transform.BindSymbolicVars(bound, "main")(made)
    return _with_main(made, _with_params(made["main"], made["main"].params[:-1]))


def _with_params(function: relax.Function, params: Sequence[relax.Var]) -> relax.Function:
    return relax.Function(params, function.body, function.ret_ty, function.is_pure, function.attrs)


def _with_main(module: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = main
    return tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)


def extent_text(expr: object) -> str:
    """An extent as people write it: TVM names the type of each number."""
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(expr))


class Symbols:
    """The symbols of `function`, whose ranges its attributes have."""

    def __init__(self, function: relax.Function) -> None:
        self._ranges = ranges_in(function)
        self._exprs: dict[str, tirx.PrimExpr] = {}
        self._names: dict[Any, str] = {}
        self._of_data: set[Any] = set()
        self._analyzer = sym.Analyzer()
        for param in function.params:
            self._meet(param.ty)
        body = function.body
        for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
            for binding in block.bindings:
                if isinstance(binding, relax.MatchCast):
                    self._of_data.update(_variables(binding.ty) - self._names.keys())
                self._meet(binding.var.ty)

    def extent(self, expr: object) -> int | str:
        """An extent of TVM's as one of the graph."""
        is_known = not self._of_data or isinstance(expr, tirx.IntImm)
        if is_known or not self._of_data.intersection(tirx.analysis.undefined_vars(expr)):
            return self._sum(expr)
        return self._name(expr if isinstance(expr, tirx.Var) else str(expr), expr)

    def _sum(self, expr: object) -> int:
        match expr:
            case tirx.IntImm():
                return int(expr.value)
            case tirx.Add():
                return self._sum(expr.a) + self._sum(expr.b)
            case tirx.Sub():
                return self._sum(expr.a) - self._sum(expr.b)
            case tirx.Mul():
                return self._sum(expr.a) * self._sum(expr.b)
            case tirx.Var():
                return self._symbol(expr, expr, str(expr.name))
        simple = self._analyzer.simplify(expr)
        if isinstance(simple, (tirx.IntImm, tirx.Add, tirx.Sub, tirx.Mul, tirx.Var)):
            return self._sum(simple)
        # One name for (s - 1)//2 and (-1 + s)//2.
        written = extent_text(expr)
        text = written if written in self._ranges else extent_text(simple)
        return self._symbol(str(simple), simple, text)

    def has(self, expr: object) -> bool:
        """Whether an operator's argument is a symbol, as `arange` has one: it is no value."""
        return isinstance(expr, tirx.Var) and expr in self._names

    def tensor_type(self, type_: object) -> TensorType:
        """Shape and dtype of a type, whose symbolic extents are the graph's."""
        if not isinstance(type_, relax.TensorType):
            return None, ""
        if not isinstance(type_.shape, relax.ShapeExpr):
            return None, str(type_.dtype)
        return tuple(map(self.extent, type_.shape.values)), str(type_.dtype)

    def shape(self, extents: Sequence[int | str]) -> list[Any]:
        """A shape of the graph as TVM's."""
        return [self._expr(extent) for extent in extents]

    def _expr(self, extent: int | str) -> Any:
        if isinstance(extent, str):
            return self._exprs[extent]
        if not isinstance(extent, Dim):
            return extent
        total = None
        for monomial, number in extent.terms:
            term = None
            for symbol in monomial:
                factor = self._exprs[symbol.name]
                term = factor if term is None else term * factor
            if term is None:
                term = tirx.IntImm("int64", number)
            elif number != 1:
                term = term * tirx.IntImm("int64", number)
            total = term if total is None else total + term
        return total

    def _symbol(self, key: object, expr: tirx.PrimExpr, text: str) -> int:
        low, high = self._ranges.get(text, (1, None))
        most = max(low, MOST_UNKNOWN) if high is None else high
        return symbolic(Symbol(self._name(key, expr), low, most))

    def _name(self, key: object, expr: tirx.PrimExpr) -> str:
        """The name of an expression, which no other one has."""
        if key not in self._names:
            text = str(expr.name) if isinstance(expr, tirx.Var) else extent_text(expr)
            name, number = text, 1
            while name in self._exprs:
                name, number = f"{text}_{number}", number + 1
            self._names[key] = name
            self._exprs[name] = expr
        return self._names[key]

    def _meet(self, type_: object) -> None:
        """Name the symbols of a type, in the order in which they are met."""
        if isinstance(type_, relax.TupleType):
            for field in type_.fields:
                self._meet(field)
        self.tensor_type(type_)


def _variables(type_: object) -> set[Any]:
    """The variables of TIR in a type."""
    match type_:
        case relax.TupleType():
            return set().union(*map(_variables, type_.fields))
        case relax.ShapeType():
            extents = type_.values or ()
        case relax.TensorType():
            extents = type_.shape.values if isinstance(type_.shape, relax.ShapeExpr) else ()
        case _:
            extents = ()
    return {var for extent in extents for var in tirx.analysis.undefined_vars(extent)}
