"""Compute dimensions from input extents that are formulas of them, such as 2 h or h + 1.

TVM reads a dimension's value from an input that has it as an extent. If inputs have only formulas
of it, the compiled function takes extents of any value and computes the dimensions from them first.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax, sym, tirx

from boltgen.errors import ModelImportError
from boltgen.frontend.relax.symbols import extent_text, ranges_in, with_ranges
from boltgen.ir.extent_text import formula_of


def with_computed_dimensions(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, whose functions compute each dimension that no input has as its extent.

    A function checks every formula when it runs, and raises where an extent has no solution.

    Raises:
        ModelImportError: a dimension does not follow from the inputs' extents; the message has it.
    """
    functions = dict(module.functions.items())
    ranges = {}
    for gvar, function in module.functions.items():
        if isinstance(function, relax.Function):
            solving = _Solving(function)
            if solving.dimensions:
                functions[gvar] = solving.function()
                if gvar.name_hint == "main":
                    ranges = solving.ranges()
    made = tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)
    return with_ranges(made, ranges)


class _Solving:
    """One function: its extents that are formulas, and the dimensions that follow from them."""

    def __init__(self, function: relax.Function) -> None:
        self._function = function
        shapes = [_extents(param) for param in function.params]
        self._known = [each for shape in shapes for each in shape if isinstance(each, tirx.Var)]
        self._formulas = [
            (place, axis, each, tirx.Var(f"{param.name}_extent_{axis}", "int64"))
            for place, (param, shape) in enumerate(zip(function.params, shapes, strict=True))
            for axis, each in enumerate(shape)
            if not isinstance(each, (tirx.Var, tirx.IntImm))
        ]
        self.dimensions: list[tirx.Var] = []
        self._values: list[ir.Expr] = []
        left = [each for each in self._formulas if self._unknown(each[2])]
        while left:
            later = [each for each in left if not self._solve(each[2], each[3])]
            if len(later) == len(left):
                raise self._refusal(*later[0])
            left = [each for each in later if self._unknown(each[2])]

    def _unknown(self, formula: ir.Expr) -> list[tirx.Var]:
        known = (*self._known, *self.dimensions)
        return [
            var
            for var in tirx.analysis.undefined_vars(formula)
            if not any(var.same_as(each) for each in known)
        ]

    def _solve(self, formula: ir.Expr, extent: tirx.Var) -> bool:
        """Add the one dimension that is unknown in a formula, if there is one and it is linear."""
        unknown = self._unknown(formula)
        if len(unknown) != 1:
            return not unknown
        found = sym.detect_linear_equation(formula, unknown)
        if not found or not isinstance(found[0], tirx.IntImm) or not int(found[0].value):
            return False
        factor, rest = found
        self._values.append(tirx.floordiv(extent - rest, factor))
        self.dimensions.append(unknown[0])
        return True

    def _refusal(
        self, place: int, axis: int, formula: ir.Expr, extent: tirx.Var
    ) -> ModelImportError:
        name = self._function.params[place].name
        unknown = ", ".join(str(var.name) for var in self._unknown(formula))
        return ModelImportError(
            f"input {name!r} has the extent {extent_text(formula)} at axis {axis}, from which "
            f"{unknown} does not follow: give the input a fixed shape, or make {unknown} an extent "
            "of an input"
        )

    def ranges(self) -> dict[str, tuple[int, int | None]]:
        """Return the ranges of the new extents, as far as their dimensions' ranges are known."""
        known = ranges_in(self._function)
        found: dict[str, tuple[int, int | None]] = {}
        for _, _, formula, extent in self._formulas:
            parsed = formula_of(extent_text(formula))
            lows = {name: known.get(name, (1, None))[0] for name in parsed.names}
            highs = {name: known.get(name, (1, None))[1] for name in parsed.names}
            whole = {name: high for name, high in highs.items() if high is not None}
            if len(whole) == len(highs) and "-" not in parsed.text:
                found[str(extent.name)] = (parsed.at(lows), parsed.at(whole))
        return found

    def function(self) -> relax.Function:
        """The function that computes its dimensions first, and checks every formula."""
        function = self._function
        params: list[relax.Var] = []
        bindings: list[relax.Binding] = []
        for dimension, value in zip(self.dimensions, self._values, strict=True):
            shape, type_ = relax.ShapeExpr([value]), relax.ShapeType([dimension])
            computed = relax.Var("computed", shape.ty)
            bindings.append(relax.VarBinding(computed, shape))
            bindings.append(relax.MatchCast(relax.Var("dimension", type_), computed, type_))
        for place, param in enumerate(function.params):
            replaced = {axis: extent for at, axis, _, extent in self._formulas if at == place}
            if not replaced:
                params.append(param)
                continue
            extents = [replaced.get(axis, each) for axis, each in enumerate(_extents(param))]
            params.append(relax.Var(param.name, relax.TensorType(extents, param.ty.dtype)))
            bindings.append(relax.MatchCast(param, params[-1], param.ty))
        body = function.body
        blocks = [relax.BindingBlock(bindings), *body.blocks]
        made = relax.SeqExpr(blocks, body.body)
        result = _without_shapes(function.ret_ty)
        return relax.Function(params, made, result, function.is_pure, function.attrs)


def _extents(param: relax.Var) -> Sequence[ir.Expr]:
    type_ = param.ty
    is_known = isinstance(type_, relax.TensorType) and isinstance(type_.shape, relax.ShapeExpr)
    return list(type_.shape.values) if is_known else ()


def _without_shapes(type_: ir.Type) -> ir.Type:
    """A result's type without the extents that are computed within the function."""
    if isinstance(type_, relax.TupleType):
        return relax.TupleType([_without_shapes(field) for field in type_.fields])
    if isinstance(type_, relax.TensorType) and isinstance(type_.shape, relax.ShapeExpr):
        return relax.TensorType(dtype=type_.dtype, ndim=type_.ndim)
    return type_
