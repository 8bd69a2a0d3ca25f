"""Translate calls of functions that multiply rows in groups: to one operator of the graph, or to
TVM's own.

Two functions are known: the one that `torch_operators` calls for PyTorch's, and TVM's own runtime
function of CUTLASS, which its wheels do not have. Source: mlc_llm/op/cutlass.py, group_gemm; x is
(M, K), its weight (groups, N, K), and indptr has the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from boltgen.graph.graph import GROUPED, Expr, GraphBuilder
from boltgen.ir.dtypes import IndexType

# (a, b, ends), with B as (groups, K, N).
_OF_TORCH = "boltgen.grouped_matmul"
# (x, weight, indptr, workspace).
_OF_CUTLASS = "cutlass.group_gemm"
_INDICES = frozenset(each.value for each in IndexType)


def grouped_matmul(builder: GraphBuilder, call: ir.Call, args: Sequence[int]) -> int | None:
    """Return the result of a call, or None if it calls another function or shapes are unknown."""
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_dps_packed":
        return None
    callee = str(getattr(call.args[0], "global_symbol", ""))
    if (callee, len(args)) not in {(_OF_TORCH, 3), (_OF_CUTLASS, 4)}:
        return None
    a, b, ends = args[:3]
    if not all(builder[each].is_static for each in (a, b, ends)):
        return None
    ranks = tuple(len(builder.shape(each)) for each in (a, b, ends))
    if ranks != (2, 3, 1) or builder.dtype(ends) not in _INDICES:
        return None
    if callee == _OF_CUTLASS:
        b = builder.permute_dims(b, (0, 2, 1))
    (m, k), (groups, depth, n) = builder.shape(a), builder.shape(b)
    if k != depth or builder.shape(ends) != (groups,):
        return None
    return builder.operator(GROUPED, (a, b, ends), (m, n), str(call.ty.dtype))


def by_groups(expr: Expr, args: Sequence[Any]) -> relax.Expr:
    """Write a grouped matmul without a kernel in TVM's operators: multiply each row by all
    matrices, then select its group's result, or a row of zeros that lies before them.
    """
    a, b, ends = args
    op, m = relax.op, a.ty.shape.values[0]
    groups, k, n = (int(each) for each in b.ty.shape.values)
    side_by_side = op.reshape(op.permute_dims(b, (1, 0, 2)), (k, groups * n))
    products = op.reshape(op.matmul(a, side_by_side, out_dtype="float32"), (m * groups, n))
    zeros = relax.const(np.zeros((1, n), np.float32))
    rows = op.arange(0, m, 1, "int64")
    is_before = op.less(op.expand_dims(rows, 1), op.astype(ends, "int64"))
    is_before = op.astype(is_before, "int64")
    place = op.add(op.multiply(rows, relax.const(groups, "int64")), op.argmax(is_before, 1))
    place = op.add(place, relax.const(1, "int64"))
    own = op.multiply(place, op.max(is_before, 1))  # no end is behind a row of no group
    return op.astype(op.take(op.concat([zeros, products], 0), own, 0), expr.dtype)


def call_of_torch(a: ir.Expr, b: ir.Expr, ends: ir.Expr, dtype: str) -> ir.Call:
    """The call that `grouped_matmul` knows PyTorch's operator by."""
    shape = (a.ty.shape.values[0], b.ty.shape.values[2])
    result = relax.TensorType(shape, dtype)
    return relax.call_dps_packed(relax.ExternFunc(_OF_TORCH), ir.Tuple([a, b, ends]), out_ty=result)
