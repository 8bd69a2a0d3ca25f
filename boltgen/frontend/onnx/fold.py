"""Compute beforehand all that depends on constants and known shapes: exporters' shape arithmetic.

Only operators whose results ONNX's reference computes exactly as any device does, or in FP32, are
folded, and nothing that grows a model. `onnxslim` was tried: it folds a broadcast zero into 64 MB,
fuses operators unasked, and needs sympy, so this small folder on ONNX's own reference is kept.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from boltgen.frontend.onnx.scope import Array, Scope, attribute, operand

# Operators that are computed if their results are small.
SMALL = frozenset(
    {
        "Abs", "Add", "And", "Ceil", "ConstantOfShape", "Cos", "CumSum", "Div", "Equal", "Exp",
        "Expand", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual",
        "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or",
        "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Round",
        "ScatterElements", "ScatterND", "Sign", "Sin", "Size", "Sqrt", "Sub", "Tile", "TopK",
        "Trilu", "Where", "Xor",
    }
)  # fmt: skip
# Operators that only move or convert elements: their operands may be large weights.
MOVES = frozenset(
    {
        "Cast", "Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip
# Operators that are computed for constants of any size: the steps of a weight's dequantisation.
PER_ELEMENT = frozenset({"Mul", "Sub"})
# Elements of a value of shape arithmetic, or of a table of positions, at most.
MOST_SMALL = 1 << 16


def fold(node: Any, scope: Scope) -> bool:
    """Make a node's results constants of the scope if they can be known; tell whether they are."""
    if node.domain not in {"", "ai.onnx"}:
        return False
    if node.op_type == "Constant":
        return _constant(node, scope)
    if node.op_type in {"Shape", "Size"} and _measured(node, scope):
        return True
    if _traced(node, scope):
        return True
    if node.op_type not in SMALL | MOVES or not all(
        name == "" or scope.tensor(name) is not None for name in node.input
    ):
        return False
    scope.infer(node)
    if not _fits(node, scope, any_size=node.op_type in MOVES | PER_ELEMENT):
        return False
    results = evaluated(node, scope)
    if results is None:
        return False
    for name, array in zip(node.output, results, strict=True):
        if name:
            scope.add_array(name, array)
    return True


def _constant(node: Any, scope: Scope) -> bool:
    (given,) = node.attribute
    value = scope.onnx.helper.get_attribute_value(given)
    name = node.output[0]
    if given.name == "value":
        tensor = type(value)()
        tensor.CopyFrom(value)
        tensor.name = name
        scope.add_tensor(tensor)
        return True
    if given.name not in {"value_int", "value_ints", "value_float", "value_floats"}:
        return False
    dtype = np.int64 if "int" in given.name else np.float32
    scope.add_array(name, np.asarray(value, dtype))
    return True


def _measured(node: Any, scope: Scope) -> bool:
    extents = scope.extents(node.input[0])
    if extents is None:
        return False
    if node.op_type == "Size":
        shape = scope.shape(node.input[0])
        if shape is None:
            return False
        scope.add_array(node.output[0], np.asarray(prod(shape), np.int64))
        return True
    wanted = extents[slice(attribute(node, "start", 0), attribute(node, "end", None))]
    numbers = [extent for extent in wanted if isinstance(extent, int)]
    if len(numbers) < len(wanted):
        names = enumerate(wanted)
        scope.partial[node.output[0]] = tuple(
            f"?{node.output[0]}_{place}" if each is None else each for place, each in names
        )
        return False
    scope.add_array(node.output[0], np.asarray(numbers, np.int64))
    return True


def _traced(node: Any, scope: Scope) -> bool:
    """Fold a number that is read from a shape, even if other extents of the shape are unknown."""
    if len(node.output) != 1 or not any(name in scope.partial for name in node.input):
        return False
    known = _followed(node, scope, [scope.elements(name) for name in node.input])
    numbers = [each for each in known or () if isinstance(each, int)]
    if not numbers or known is None or len(numbers) < len(known):
        return False
    scope.infer(node)
    shape, dtype = scope.shape(node.output[0]), scope.dtype(node.output[0])
    if shape is None or dtype is None or prod(shape) != len(numbers):
        return False
    scope.add_array(node.output[0], np.asarray(numbers, dtype).reshape(shape))
    return True


def _fits(node: Any, scope: Scope, *, any_size: bool) -> bool:
    """Return whether results are known to be small, or no larger than their operands."""
    sizes: list[int] = [prod(scope.tensor(name).dims) for name in node.input if name]
    if node.op_type == "NonZero":
        return max(sizes) <= MOST_SMALL
    if node.op_type in PER_ELEMENT:
        allowed = max([MOST_SMALL, *sizes])
    else:
        allowed = max(MOST_SMALL, sum(sizes) if any_size else 0)
    shapes = [scope.shape(name) for name in node.output if name]
    return all(shape is not None and bool(prod(shape) <= allowed) for shape in shapes)


def evaluated(node: Any, scope: Scope) -> list[Array] | None:
    """Return the results of a node of constants by ONNX's reference, or None if it lacks it."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    onnx = scope.onnx
    names = list(dict.fromkeys(filter(None, node.input)))
    kept = [name for name in node.output if name]
    graph = onnx.helper.make_graph(
        [node],
        "folded",
        [onnx.helper.make_value_info(name, scope.type(name)) for name in names],
        [onnx.helper.make_empty_tensor_value_info(name) for name in kept],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", scope.opset)])
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(
                None, {name: scope.constant(name) for name in names}
            )
    except Exception:  # the reference lacks it at this operator set: TVM may still have it
        return None
    by_name = dict(zip(kept, found, strict=True))
    arrays = [np.asarray(by_name.get(name, 0)) for name in node.output]
    wanted = [scope.dtype(name) if name else None for name in node.output]
    pairs = zip(arrays, wanted, strict=True)
    return [array if dtype is None else array.astype(dtype) for array, dtype in pairs]


def follow(node: Any, scope: Scope) -> None:
    """Keep the known part of a shape whose extents are names: it is not folded, but not lost."""
    elements = [scope.elements(name) for name in node.input]
    known = _followed(node, scope, elements)
    if known is not None:
        scope.partial[node.output[0]] = known


def _followed(
    node: Any, scope: Scope, elements: list[tuple[int | str, ...] | None]
) -> tuple[int | str, ...] | None:
    if not elements or elements[0] is None:
        return None
    match node.op_type:
        case "Identity" | "Cast" | "Unsqueeze" | "Squeeze" | "Reshape":
            return elements[0]
        case "Concat":
            parts = [part for part in elements if part is not None]
            return sum(parts, ()) if len(parts) == len(elements) else None
        case "Gather":
            places = elements[1]
            numbers = [place for place in places or () if isinstance(place, int)]
            count = len(elements[0])
            if places is None or any(not -count <= place < count for place in numbers):
                return None
            return tuple(elements[0][place] for place in numbers)
        case "Slice":
            step = scope.elements(operand(node, 4)) if operand(node, 4) else (1,)
            first, last = elements[1] or (), elements[2] or ()
            if step != (1,) or len(first) != 1 or len(last) != 1:
                return None
            if isinstance(first[0], int) and isinstance(last[0], int):
                return elements[0][first[0] : last[0]]
            return None
        case "Add" | "Sub" | "Mul" | "Div":
            single = all(each is not None and len(each) == 1 for each in elements)
            return (f"?{node.output[0]}",) if single else None
    return None
