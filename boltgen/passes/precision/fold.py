"""Evaluate operators on constants with NumPy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from boltgen.errors import InterpretError
from boltgen.graph.facts import POINTWISE
from boltgen.graph.graph import Array
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.numpy_semantics.operators import compute
from boltgen.ir.extent import has_dynamic
from boltgen.passes.precision.call import OperatorCall

# A result that is larger than this, and larger than its operands, is computed at run time.
_MOST_ELEMENTS = 1 << 22
# Operators that models apply to their weights and to their sizes. TVM computes all others.
_FOLDED = POINTWISE.union(
    {
        *("mod", "erf", "matmul", "dequantize"),
        *("sum", "mean", "max", "min", "cumsum", "full_like", "triu", "tril"),
        *("reshape", "broadcast_to", "permute_dims"),
        *("concat", "stack", "strided_slice", "slice_scatter", "gather_elements", "take"),
    }
)


def evaluate(call: OperatorCall) -> Array | None:
    """Return the value of an operator whose tensors are all constants, or None if only TVM can
    compute it.
    """
    known = [value.constant for value in call.tensors if value.constant is not None]
    if len(known) != len(call.args) or has_dynamic(call.shape) or _grows(call, known):
        return None
    return applied(
        Operation(name=call.name, attrs=call.attrs, shape=call.shape, dtype=call.dtype), known
    )


def applied(operation: Operation, arrays: Sequence[Array]) -> Array | None:
    """Return the result of an operator on `arrays`, or None if only TVM can compute it."""
    if operation.name not in _FOLDED:
        return None
    try:
        return compute(operation, arrays)
    except InterpretError:  # NumPy has no result of this type, which is for TVM to compute
        return None


def _grows(call: OperatorCall, arrays: Sequence[Array]) -> bool:
    size = prod(call.shape)
    return size > _MOST_ELEMENTS and size > sum(array.size for array in arrays)
