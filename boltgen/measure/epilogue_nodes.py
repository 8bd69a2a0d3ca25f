"""Translate an epilogue's graph to the nodes of the profiler's reference (`profiler_node`)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from boltgen.errors import assert_never
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Scalar,
    Softmax,
    Unary,
)
from boltgen.ir.functions import UnaryOp
from boltgen.ir.interval import BINARY_ULPS, as_float32


class Node(ctypes.Structure):
    """`profiler_node`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("op", "x", "y", "dtype")),
        ("pointer", ctypes.c_void_p),
        ("batch_elements", ctypes.c_uint64),
        ("constants", ctypes.c_double * 2),
        *((name, ctypes.c_double) for name in ("turn", "ulps", "input_ulps", "unit_ulps")),
    )


# In the order of the enumeration in profiler.h.
_ACCUMULATOR, _LOAD, _SCALAR, _CAST, _BINARY = 0, 1, 6, 7, 8
_LOAD_KINDS = (
    LoadKind.TENSOR,
    LoadKind.ROW,
    LoadKind.SLICE_ROW,
    LoadKind.POSITION_ROW,
    LoadKind.COLUMN,
)
_BINARY_OPS = (
    BinaryOp.ADD,
    BinaryOp.SUBTRACT,
    BinaryOp.MULTIPLY,
    BinaryOp.DIVIDE,
    BinaryOp.MAXIMUM,
    BinaryOp.MINIMUM,
)
_UNARY = _BINARY + len(_BINARY_OPS)
_UNARY_OPS = tuple(UnaryOp)


def epilogue_nodes(
    epilogue: ElementwiseGraph,
    pointers: Sequence[int],
    batch_elements: Sequence[int],
    slice_rows: int = 0,
) -> list[Node]:
    """Return the nodes of `epilogue`; its loads read `pointers`, `batch_elements` apart in a batch.

    The last node is the result. `slice_rows` rows are a slice.

    Raises:
        InvalidProblemError: the graph does not store exactly one full tensor.
    """
    _ = epilogue.result
    operands = iter(zip(pointers, batch_elements, strict=True))
    nodes = []
    for node in epilogue.nodes:
        made = Node(turn=math.nan)
        match node:
            case Accumulator(second=second):
                made.op, made.x = _ACCUMULATOR, int(second)
            case Load(kind=kind, dtype=dtype):
                made.op = _LOAD + _LOAD_KINDS.index(kind)
                made.dtype = dtype.profiler
                made.pointer, made.batch_elements = next(operands)
                made.x = slice_rows if kind.is_of_slices else 0
            case Scalar(value=value):
                made.op = _SCALAR
                made.constants[0] = as_float32(value)
            case Cast(x=x, dtype=dtype):
                made.op, made.x, made.dtype = _CAST, x, dtype.profiler
            case Binary(op=bop, lhs=lhs, rhs=rhs):
                made.op, made.x, made.y = _BINARY + _BINARY_OPS.index(bop), lhs, rhs
                made.ulps = BINARY_ULPS[bop]
            case Unary():
                _fill_unary(made, node)
            case Softmax():
                raise AssertionError(f"no function of one element: {epilogue.describe()}")
            case _:
                assert_never(node)
        nodes.append(made)
    return nodes


def _fill_unary(made: Node, node: Unary) -> None:
    function = node.op.function
    constants = tuple(as_float32(value) for value in node.params)
    made.op, made.x = _UNARY + _UNARY_OPS.index(node.op), node.x
    made.constants = (ctypes.c_double * 2)(*constants)
    # Each function has at most one turning point; a test checks it.
    made.turn = function.turns[0] if function.turns else math.nan
    made.ulps, made.input_ulps = function.ulps, function.input_ulps
    made.unit_ulps = function.unit_ulps(*constants)
