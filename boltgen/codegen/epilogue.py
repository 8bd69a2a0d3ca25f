"""Emit an epilogue graph as the body of a C++ functor in SSA form, one line per node."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from boltgen.codegen.cpp_names import OPERAND
from boltgen.codegen.cpp_text import float_literal
from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Reduction,
    Scalar,
    Softmax,
    Store,
    Unary,
)

_INFIX = {
    BinaryOp.ADD: "+",
    BinaryOp.SUBTRACT: "-",
    BinaryOp.MULTIPLY: "*",
    BinaryOp.DIVIDE: "/",
}


_REDUCTION = {
    Reduction.SUM: "boltgen::Sum",
    Reduction.SUM_OF_SQUARES: "boltgen::SumOfSquares",
    Reduction.MAXIMUM: "boltgen::Maximum",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueCode:
    """The parts of the functor, which a template arranges.

    `operands` is a C++ type that lists the loads and the further results. `parameters` is the
    formatted list of parameters: the accumulators, the loads and an array for the further results.
    Each of the `statements` defines one value or stores one in that array. If it `reduces`, a
    kernel must clear memory before.
    """

    formula: tuple[str, ...]
    operands: str
    parameters: str
    statements: tuple[str, ...]
    result: str
    result_type: str
    is_long: str
    reduces: bool


def emit_epilogue(
    epilogue: ElementwiseGraph, masks: Mapping[int, float] | None = None
) -> EpilogueCode:
    """Emit the functor of `epilogue`; values are named by operator and node: `add2`, `relu3`.

    `masks` are the `key_masks` of a graph whose kernel skips keys.

    Raises:
        InvalidProblemError: see `ElementwiseGraph.typed_results`; or a reduction that is no sum of
            columns is not in FP32.
    """
    names: list[str] = []
    parameters = ["acc", "acc2"] if epilogue.is_paired else ["acc"]
    statements: list[str] = []
    seen = dict.fromkeys(LoadKind, 0)
    for index, node in enumerate(epilogue.nodes):
        match node:
            case Accumulator(second=second):
                names.append("acc2" if second else "acc")
            case Load(kind=kind):
                names.append(f"{kind.value}{seen[kind]}")
                seen[kind] += 1
                parameters.append(names[-1])
            case Scalar(value=value):
                names.append(float_literal(value))
            case Unary() | Binary() | Cast():
                name = _name(node, index)
                comment = _constants_comment(node, epilogue.nodes)
                of = "int" if epilogue.is_whole(index) else "float"
                made = _expression(epilogue, node, names)
                statements.append(f"{of} const {name} = {made};{comment}")
                names.append(name)
            case Softmax():
                raise InvalidProblemError(
                    f"a function of one element has no softmax: {epilogue.describe()}"
                )
            case _:
                assert_never(node)
    whole = {names[i] for i in range(len(epilogue.nodes)) if epilogue.is_whole(i)}
    parameters = [f"{'int' if name in whole else 'float'} {name}" for name in parameters]
    if further := epilogue.further:
        parameters.append(f"float (&further)[{len(further)}]")
        statements += [f"further[{i}] = {names[store.x]};" for i, (store, _) in enumerate(further)]
    return EpilogueCode(
        formula=tuple(textwrap.wrap(epilogue.formula, 96)),
        operands=_operands(epilogue, masks or {}),
        parameters=_list(parameters, 6),
        statements=tuple(statements),
        result=names[epilogue.typed_results[0].x],
        result_type="int" if epilogue.is_whole(epilogue.typed_results[0].x) else "float",
        is_long="true" if any(map(_is_long, epilogue.nodes)) else "false",
        reduces=bool(epilogue.added_up),
    )


def _operands(epilogue: ElementwiseGraph, masks: Mapping[int, float]) -> str:
    """Return the C++ type list of a launch's arguments besides A, B and D."""
    loads = [
        _mask(load, masks[place]) if place in masks else _operand(load)
        for place, load in enumerate(epilogue.loads)
    ]
    if not epilogue.further:
        return f"boltgen::Operands<{_list(loads, 6)}>"
    loaded = f"boltgen::Operands<{_list(loads, 10)}>"
    between = ",\n      " if epilogue.reductions else ", "
    results = between.join(_result(store, dtype) for store, dtype in epilogue.further)
    return f"boltgen::OperandsAndResults<\n      {loaded},\n      {results}>"


def _operand(load: Load) -> str:
    """Return the C++ type of an operand."""
    if load.parts > 1:
        return f"boltgen::Parts<{load.dtype.cutlass}, {load.parts}>"
    return f"{OPERAND[load.kind]}<{load.dtype.cutlass}>"


def _mask(load: Load, hidden: float) -> str:
    """Return the type of a row that hides keys, by numbers up to `hidden` or only by -inf."""
    least = f", /*Hidden=*/{hidden:.0f}" if isfinite(hidden) else ""
    return f"boltgen::KeyMask<{load.dtype.cutlass}{least}>"


def _result(store: Store, dtype: DType) -> str:
    """Return the type of a further result.

    Raises:
        InvalidProblemError: it reduces to a type other than FP32, and is no sum of columns.
    """
    if store.reduction is None:
        return dtype.cutlass
    is_sum = store.kind is LoadKind.ROW and store.reduction is Reduction.SUM
    if dtype is not DType.F32 and not is_sum:
        raise InvalidProblemError(
            f"a {store.reduction.value} in {dtype.value}: kernels round only sums of columns"
        )
    span = f"{OPERAND[store.kind]}<{dtype.cutlass}>"
    if store.columns:
        span = f"boltgen::Columns<{dtype.cutlass}, {store.columns}>"
    return f"boltgen::Reduced<{span}, {_REDUCTION[store.reduction]}>"


def _is_long(node: Node) -> bool:
    """Return whether the graph is too long to unroll the loop of the threadblock epilogue.

    Unrolling repeats the function's code for up to 16 iterations.
    """
    return isinstance(node, Unary) and node.op.function.is_long


def _list(items: list[str], indent: int) -> str:
    """Join the items with commas, on one line if it is short, else on filled lines of their own."""
    line = ", ".join(items)
    if len(line) <= 60:
        return line
    margin = " " * indent
    return "\n" + textwrap.fill(
        line,
        width=99,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
    )


def _name(node: Unary | Binary | Cast, index: int) -> str:
    """Return the name of a node's value: `add2`; `relu6_3`, because `relu63` could be node 63."""
    if isinstance(node, Cast):
        return f"{'sum' if node.dtype is DType.F32 else 'rounded'}{index}"
    stem = node.op.value
    return f"{stem}_{index}" if stem[-1].isdigit() else f"{stem}{index}"


# Each operation of an epilogue of integers rounds on its own: the compiler fuses none.
_ROUNDING = {
    BinaryOp.ADD: "__fadd_rn",
    BinaryOp.SUBTRACT: "__fsub_rn",
    BinaryOp.MULTIPLY: "__fmul_rn",
    BinaryOp.DIVIDE: "__fdiv_rn",
}


def _expression(epilogue: ElementwiseGraph, node: Unary | Binary | Cast, names: list[str]) -> str:
    match node:
        case Unary(op=op, x=x, params=params):
            arguments = ", ".join((names[x], *map(float_literal, params)))
            return f"boltgen::{op.value}({arguments})"
        case Binary(op=(BinaryOp.MAXIMUM | BinaryOp.MINIMUM) as op, lhs=lhs, rhs=rhs):
            return f"boltgen::{op.value}({names[lhs]}, {names[rhs]})"
        case Binary(op=op, lhs=lhs, rhs=rhs) if epilogue.is_of_integers and not (
            epilogue.is_whole(lhs)
        ):
            return f"{_ROUNDING[op]}({names[lhs]}, {names[rhs]})"
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return f"{names[lhs]} {_INFIX[op]} {names[rhs]}"
        case Cast(x=x) if epilogue.is_whole(x):
            return f"__int2float_rn({names[x]})"
        case Cast(x=x, dtype=dtype):
            rounding = dtype.conversions.rounding
            return f"{rounding}({names[x]})" if rounding else names[x]
        case _:
            assert_never(node)


def _constants_comment(node: Node, nodes: tuple[Node, ...]) -> str:
    """Return the decimal values of the constants in a statement, as a comment for readers."""
    match node:
        case Unary(params=params):
            values = list(params)
        case Binary(lhs=lhs, rhs=rhs):
            values = [n.value for n in (nodes[lhs], nodes[rhs]) if isinstance(n, Scalar)]
        case _:
            values = []
    return "  // " + ", ".join(f"{value:g}" for value in values) if values else ""
