"""Convert indices of torch.export programs, which TVM 0.27's importer takes as NumPy would not.

PyTorch's `select` and `index` count from the end where a number is negative. TVM's importer writes
them as `take` in the mode "fast", which reads before the tensor then. And where some dimensions
have no index, it applies indices one after another, though PyTorch applies them together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from boltgen.frontend.torch.types import Converter, overloads, tensors_of

# Operators whose result has the elements of the first argument, or some of them.
_SAME = overloads(
    ("view reshape unsqueeze expand permute clone _to_copy lift_fresh_copy alias", "default"),
    ("slice", "Tensor"),
    ("squeeze", "dim dims"),
    ("transpose select", "int"),
)
_COUNTS = frozenset(
    ("argmax.default", "argmin.default", "argsort.default", "nonzero.default", "sym_size.int")
)
# Operators whose second result has places.
_PLACES = frozenset(("topk.default", "sort.default", "max.dim", "min.dim"))


def converters(program: Any) -> Mapping[str, Converter]:
    """Return converters of `select` and `index` in `program` for TVM's importer."""
    constants = tensors_of(program)

    def indexed(node: Any, importer: Any) -> relax.Expr:
        return _indexed(node, importer, constants)

    return {"select.int": _selected, "index.Tensor": indexed}


def _selected(node: Any, importer: Any) -> relax.Expr:
    """`select.int`: (x, axis, index); a negative index counts from the end."""
    x, axis, index = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    if isinstance(index, int) and index >= 0:
        return emit(relax.op.take(x, relax.const(index, "int64"), axis))
    extent = importer.shape_of(x)[axis]
    if not isinstance(index, int):  # a number that the program computes
        counted = importer._prim_value_to_scalar_tensor(index, "int64")
        return emit(relax.op.take(x, _from_the_end(emit, counted, extent), axis))
    at = extent + index
    if isinstance(at, int | tvm.tirx.IntImm):
        return emit(relax.op.take(x, relax.const(int(at), "int64"), axis))
    cut = emit(relax.op.strided_slice(x, [axis], [at], [at + 1], assume_inbound=True))
    return emit(relax.op.squeeze(cut, [axis]))


def _indexed(node: Any, importer: Any, constants: Mapping[str, Any]) -> relax.Expr:
    """`index.Tensor`: (x, an index for each dimension or None), as in PyTorch."""
    x, given = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    if any(index is not None and str(index.ty.dtype) in {"bool", "uint8"} for index in given):
        return importer._index_tensor(node)  # truth values choose, and count nothing
    axes = [axis for axis, index in enumerate(given) if index is not None]
    indices = []
    for axis in axes:
        least = _least(node.args[1][axis], constants)
        is_counted = least is not None and least >= 0
        extent = importer.shape_of(x)[axis]
        indices.append(given[axis] if is_counted else _from_the_end(emit, given[axis], extent))
    if len(axes) == 1:
        return emit(relax.op.take(x, indices[0], axes[0]))
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    if is_together and _are_outer([list(index.ty.shape.values) for index in indices]):
        for axis, index in zip(axes, indices, strict=True):
            flat = index if len(index.ty.shape) == 1 else emit(relax.op.reshape(index, (-1,)))
            x = emit(relax.op.take(x, flat, axis))
        return x
    rank = len(x.ty.shape)
    rest = [axis for axis in range(rank) if axis not in axes]
    if axes != list(range(len(axes))):
        x = emit(relax.op.permute_dims(x, [*axes, *rest]))
    taken = emit(relax.op.index_tensor(x, indices))
    before = axes[0] if is_together else 0
    if not before:
        return taken
    made = len(taken.ty.shape) - len(rest)
    own, after = range(made), range(made + before, len(taken.ty.shape))
    return emit(relax.op.permute_dims(taken, [*range(made, made + before), *own, *after]))


def _from_the_end(emit: Callable[..., relax.Var], index: relax.Expr, extent: Any) -> relax.Expr:
    """Return an index whose negative elements count from the end of `extent`."""
    dtype = str(index.ty.dtype)
    if isinstance(extent, int | tvm.tirx.IntImm):
        length = relax.const(int(extent), dtype)
    else:
        one = relax.op.arange(extent, extent + 1, 1, "int64")
        length = emit(relax.op.astype(relax.op.reshape(one, ()), dtype))
    is_before = relax.op.less(index, relax.const(0, dtype))
    return emit(relax.op.where(is_before, relax.op.add(index, length), index))


def _are_outer(shapes: Sequence[Sequence[Any]]) -> bool:
    """Return whether each index varies only along the result's dimension at its own place."""
    rank = max(map(len, shapes))
    return rank == len(shapes) and all(
        place == own or str(extent) == "1"
        for own, shape in enumerate(shapes)
        for place, extent in enumerate(shape, start=rank - len(shape))
    )


def _least(node: Any, constants: Mapping[str, Any]) -> int | None:
    """Return a lower bound of a tensor's elements, or of a number; None if none is known."""
    if isinstance(node, int | float):
        return math.floor(node)
    if not hasattr(node, "op"):
        return None
    if node.op == "placeholder" and node.name in constants:
        tensor = constants[node.name]
        return int(tensor.min()) if tensor.numel() else 0
    if node.op != "call_function":
        return None
    name = getattr(node.target, "__name__", "")
    if name == "arange.start_step":
        start, _, step = (*node.args, 1)[:3]
        is_rising = isinstance(start, int) and isinstance(step, int) and step > 0
        return start if is_rising else None
    if name in {"arange.default", *_COUNTS}:
        return 0
    if node.target is operator.getitem:
        source, place = node.args
        return 0 if place == 1 and getattr(source.target, "__name__", "") in _PLACES else None
    if name in _SAME:
        return _least(node.args[0], constants)
    if name in {"add.Tensor", "mul.Tensor"} and not node.kwargs:
        parts = [_least(each, constants) for each in node.args]
        is_counted = all(part is not None and part >= 0 for part in parts)
        return 0 if is_counted else None
    return None
