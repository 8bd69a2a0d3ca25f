"""Give each extent of a function one name.

A model may have two names for one extent: the sum of an upsampled map of 2 h rows and its
neighbour of p rows says that p is 2 h. TVM infers no shape for that sum, and cannot compile it.
Here p becomes 2 h wherever it is, also in the shapes of inputs, which are checked at each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import tvm
from tvm import ir, relax, sym, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from boltgen.errors import ModelImportError
from boltgen.frontend.relax.symbols import (
    Ends,
    Ranges,
    dimensions,
    extent_text,
    ranges_in,
    with_dimensions,
    with_ranges,
)
from boltgen.ir.extent_text import formula_of

# Operators whose operands are broadcast to one shape.
_BROADCASTING = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "power", "mod", "floor_mod"),
        *("maximum", "minimum", "where", "atan2", "log_add_exp", "left_shift", "right_shift"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
# No device holds more along one dimension.
_MOST = (1 << 31) - 1
# Products of this and an extent are exact in FP32.
_MOST_FACTOR = 1 << 8

# Two extents that have to be equal, and the operator that says so.
_Equation = tuple[ir.Expr, ir.Expr, str]


def with_equal_extents(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, whose `main` has one name for each extent, and no extents in floating point.

    Raises:
        ModelImportError: two extents that have to be equal never are, or boltgen cannot solve for
            the dimension of an input; the message has the operator, both, and what to give.
    """
    if not dimensions(module["main"]):
        return module
    module = _simplified(module)
    while (equation := next(_equations(module["main"]), None)) is not None:
        module = _simplified(_substituted(module, *_solution(module["main"], equation)))
    return module


def _shape(type_: object) -> list[ir.Expr] | None:
    if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
        return None
    return list(type_.shape.values)


def _analyzer(function: relax.Function) -> sym.Analyzer:
    """Return an analyzer that simplifies extents by their ranges; at run time no extent is 0."""
    ranges, analyzer = ranges_in(function), sym.Analyzer()
    for var in dimensions(function):
        low, high = ranges.get(str(var.name), (1, None))
        first = tirx.IntImm("int64", low)
        count = tirx.IntImm("int64", (_MOST if high is None else high) - low + 1)
        analyzer.bind(var, ir.Range.from_min_extent(first, count))
    return analyzer


def _equations(function: relax.Function) -> Iterator[_Equation]:
    """Return the pairs of extents that an operator requires to be equal, if TVM cannot prove it."""
    analyzer = _analyzer(function)
    known = dimensions(function)
    calls: list[ir.Call] = []

    def visit(expr: ir.Expr) -> None:
        if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
            calls.append(expr)

    relax.analysis.post_order_visit(function.body, visit)
    for call in calls:
        name = str(call.op.name)
        for left, right in _pairs(name, call):
            numbers = [each for each in (left, right) if isinstance(each, tirx.IntImm)]
            if len(numbers) == 2 or analyzer.can_prove_equal(left, right):
                continue
            unknown = tirx.analysis.undefined_vars(left - right)
            # An extent that depends on the values of tensors is TVM's to check.
            if all(any(var.same_as(each) for each in known) for var in unknown):
                yield left, right, name.removeprefix("relax.")


def _pairs(name: str, call: ir.Call) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    """Yield the extents of a call's operands that have to be equal, two at a time."""
    if name in _BROADCASTING:
        yield from _broadcast([_shape(arg.ty) for arg in call.args])
    elif name == "relax.matmul":
        left, right = (_shape(arg.ty) for arg in call.args)
        if left and right:
            yield left[-1], right[-2 if len(right) > 1 else 0]
            yield from _broadcast([left[:-2], right[:-2]])
    elif name in {"relax.concat", "relax.stack"}:
        first, *others = (_shape(field.ty) for field in _fields(call.args[0]))
        for other in others:
            if first is None or other is None or len(first) != len(other):
                continue
            axis = call.attrs.axis if name == "relax.concat" else None
            place = len(first) if axis is None else int(axis) % len(first)
            yield from (
                pair for each, pair in enumerate(zip(first, other, strict=True)) if each != place
            )


def _fields(arg: ir.Expr) -> Sequence[ir.Expr]:
    return list(arg.fields) if isinstance(arg, ir.Tuple) else ()


def _broadcast(
    shapes: Sequence[Sequence[ir.Expr] | None],
) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    known = [shape for shape in shapes if shape is not None]
    for behind in range(1, max(map(len, known), default=0) + 1):
        extents = [shape[-behind] for shape in known if len(shape) >= behind]
        first, *others = [each for each in extents if not _is_one(each)] or [None]
        yield from ((first, other) for other in others)


def _is_one(extent: ir.Expr) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent.value) == 1


def _solution(function: relax.Function, equation: _Equation) -> tuple[tirx.Var, ir.Expr]:
    """Solve for a dimension of an input: return it, and its formula of the others."""
    left, right, operator = equation
    analyzer = _analyzer(function)
    difference = analyzer.simplify(left - right)
    # The last ones first: the names of the first input are what its user knows.
    for var in reversed(dimensions(function)):
        for side, other in ((left, right), (right, left)):
            if side.same_as(var) and not _has(other, var):
                return var, analyzer.simplify(other)
        found = sym.detect_linear_equation(difference, [var])
        if not found or not isinstance(found[0], tirx.IntImm) or not int(found[0].value):
            continue
        factor, rest = found
        if analyzer.can_prove_equal(tirx.floormod(rest, factor), 0):
            return var, analyzer.simplify(tirx.floordiv(rest * -1, factor))
    sides = [extent_text(each) for each in (left, right)]
    names = sorted({str(each.name) for each in tirx.analysis.undefined_vars(left - right)})
    inputs = [
        str(param.name)
        for param in function.params
        if any(str(v.name) in names for e in _shape(param.ty) or () for v in _variables(e))
    ]
    problem = "never are" if not tirx.analysis.undefined_vars(difference) else "may be others"
    raise ModelImportError(
        f"the model's {operator} takes the extents {sides[0]} and {sides[1]} for equal, and they "
        f"{problem}: give the dimensions {', '.join(names)} fixed sizes, in the shapes of the "
        f"inputs {', '.join(inputs)} (--shape, or shapes= in Python)"
    )


def _variables(expr: ir.Expr) -> Sequence[tirx.Var]:
    return list(tirx.analysis.undefined_vars(expr))


def _has(expr: ir.Expr, var: tirx.Var) -> bool:
    return any(each.same_as(var) for each in _variables(expr))


def _substituted(module: tvm.IRModule, var: tirx.Var, value: ir.Expr) -> tvm.IRModule:
    """`module`, where the dimension `var` of `main` is `value`, in the range of both."""
    name, ranges = str(var.name), dict(ranges_in(module["main"]))
    made = with_dimensions(module, {name: value})
    if name not in ranges:
        return made
    return with_ranges(made, ranges_of_formula(name, ranges[name], extent_text(value), ranges))


def ranges_of_formula(name: str, ends: Ends, text: str, known: Ranges) -> Ranges:
    """Return the ranges of dimensions that keep their formula `text`, of `name`, within `ends`.

    If no single dimension's range says so, return the formula's range.

    Raises:
        ModelImportError: no value of its dimension is in the range.
    """
    formula, (low, high) = formula_of(text), ends
    line = formula.line(formula.names[0]) if len(formula.names) == 1 else None
    if formula.names and (line is None or line[0] < 1):
        return {text: ends}
    most: int | None
    if line is None:
        value = formula.at({})
        least, most = max(value, low), value if high is None else min(value, high)
    else:
        step, base = line
        least, most = known.get(formula.names[0], (1, None))
        least = max(least, -((base - low) // step))
        if high is not None:
            highest = (high - base) // step
            most = highest if most is None else min(most, highest)
    if most is not None and least > most:
        shown = f"{low} or more" if high is None else f"{low} to {high}"
        raise ModelImportError(
            f"the dimension {name!r} is given the range {shown}, and the model takes it for "
            f"{text}: give it another range"
        )
    return {formula.names[0]: (least, most)} if formula.names else {}


def _simplified(module: tvm.IRModule) -> tvm.IRModule:
    """`module` with the extents of `main` in their simplest form, and its types inferred anew."""
    analyzer = _analyzer(module["main"])
    functions = dict(module.functions.items())
    gvar = module.get_global_var("main")
    functions[gvar] = _Simplifying(module, analyzer).visit_expr(functions[gvar])
    return tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)


@mutator
class _Simplifying(PyExprMutator):  # type: ignore[misc]
    """Simplifies extents, and infers the type of each call anew."""

    def __init__(self, module: tvm.IRModule, analyzer: sym.Analyzer) -> None:
        super().__init__(module)
        self._analyzer = analyzer

    def visit_shape_expr_(self, shape: relax.ShapeExpr) -> ir.Expr:
        """The shape, in whole numbers."""
        return relax.ShapeExpr([self._analyzer.simplify(_whole(each)) for each in shape.values])

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        """The call on new operands, without the type that it had."""
        args = [self.visit_expr(arg) for arg in call.args]
        if isinstance(call.op, ir.Op) and call.op.name == "relax.strided_slice":
            bounded = self._bounded(call, args)
            if bounded is not None:
                return bounded
        return ir.Call(self.visit_expr(call.op), args, call.attrs, call.ty_args)

    def _bounded(self, call: ir.Call, args: Sequence[ir.Expr]) -> ir.Expr | None:
        """A slice of neighbours whose ends are known to be within its operand, else None.

        TVM has a minimum for an end beyond the extent, which is equal to no other extent.
        """
        shape = _shape(args[0].ty)
        if shape is None or call.attrs.assume_inbound or len(args) not in {4, 5}:
            return None
        parts = [list(_fields(arg)) for arg in args[1:]]
        axes, begins, ends, *steps = parts
        if not all(isinstance(each, tirx.IntImm) for part in parts for each in part):
            return None
        if any(int(step.value) != 1 for each in steps for step in each):
            return None
        places = [int(axis.value) % len(shape) for axis in axes]
        if all(isinstance(shape[place], tirx.IntImm) for place in places):
            return None
        bounds: list[list[ir.Expr]] = [[], []]
        for place, *ends_of in zip(places, begins, ends, strict=True):
            for found, end in zip(bounds, ends_of, strict=True):
                found.append(self._within(int(end.value), shape[place]))
        if any(not self._analyzer.can_prove(b <= e) for b, e in zip(*bounds, strict=True)):
            return None
        return relax.op.strided_slice(args[0], places, *bounds, assume_inbound=True)

    def _within(self, end: int, extent: ir.Expr) -> ir.Expr:
        """A begin or an end of Python's, between 0 and the extent."""
        number = tirx.IntImm("int64", end)
        counted = number + extent if end < 0 else number
        zero = tirx.IntImm("int64", 0)
        return self._analyzer.simplify(tirx.Max(zero, tirx.Min(counted, extent)))


def _whole(expr: ir.Expr) -> ir.Expr:
    """Return an extent without floating point, if TVM multiplies it by a short binary number."""
    match expr:
        case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.FloorDiv() | tirx.Min() | tirx.Max():
            return type(expr)(_whole(expr.a), _whole(expr.b))
        case tirx.Cast(value=tirx.Mul() as product) if str(expr.ty) == "int64":
            for number, cast in ((product.a, product.b), (product.b, product.a)):
                if not isinstance(number, tirx.FloatImm) or not isinstance(cast, tirx.Cast):
                    continue
                factor = Fraction(float(number.value))
                if 0 < factor.numerator < _MOST_FACTOR and factor.denominator < _MOST_FACTOR:
                    return tirx.floordiv(_whole(cast.value) * factor.numerator, factor.denominator)
    return expr
