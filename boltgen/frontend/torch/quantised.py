"""Convert the quantisations of torch.export programs: pt2e's, and torchao's affine operators.

Both become `quantize` and `dequantize`, whose scales and zero points are constants where
the program's are. PyTorch multiplies by 1 / scale where `quantize` divides by the scale, as ONNX
does: where a quotient is next to a half, a number may be rounded to the other neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.torch.types import Converter, tensors_of
from boltgen.ir.quantisation import axis_fault, scale_fault, zero_point_fault

_AFFINE = ("quantize_affine.default", "dequantize_affine.default")
_TAKEN = frozenset({"int8", "uint8", "int16", "uint16", "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The scales and zero points of a tensor, tensors or numbers, along an axis of `shape`.

    The tensor has the shape `shape` while it is quantised. Integers are of type `dtype`, and from
    `least` to `most`; both are None for the type's own ends.
    """

    scale: Any
    zero: Any
    axis: int
    shape: Sequence[Any] | None
    dtype: str
    least: int | None
    most: int | None


def converters(program: Any) -> Mapping[str, Converter]:
    """Return the converters of quantisations in `program` for TVM's importer."""
    constants = tensors_of(program)

    def known(value: Any) -> Any:
        """Return a number, the array of a constant, or None for a computed tensor."""
        if value is None or isinstance(value, int | float):
            return value
        tensor = constants.get(value.name)
        return None if tensor is None else tensor.detach().cpu().numpy()

    def made(read: Callable[[Any, Any], _Steps], convert: Callable[..., Any]) -> Converter:
        def converter(node: Any, importer: Any) -> relax.Expr:
            steps = read(node, importer)
            return convert(node, importer, steps, known)

        return converter

    ours = {
        f"{verb}_per_{kind}.{overload}": made(read, convert)
        for verb, convert in (("quantize", _quantised), ("dequantize", _dequantised))
        for kind, overload, read in (
            ("tensor", "default", _per_tensor),
            ("tensor", "tensor", _per_tensor),
            ("tensor", "tensor2", _per_tensor),
            ("channel", "default", _per_channel),
        )
    }
    return {
        **ours,
        **{
            name: made(_affine, convert)
            for name, convert in zip(_AFFINE, (_quantised, _dequantised), strict=True)
        },
    }


def kept_quantisations(program: Any) -> set[Any]:
    """Return torchao's quantisations in `program`, which have a decomposition of many operators."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    return {node.target for node in nodes if getattr(node.target, "__name__", "") in _AFFINE}


def _per_tensor(node: Any, importer: Any) -> _Steps:
    """`(de)quantize_per_tensor`: (x, scale, zero point, least, most, dtype)."""
    _, scale, zero, least, most, dtype = node.args
    name = importer._convert_data_type(str(dtype), importer.env)
    ends = _number(node, least), _number(node, most)
    return _Steps(scale=scale, zero=zero, axis=0, shape=None, dtype=name, least=ends[0],
                  most=ends[1])  # fmt: skip


def _number(node: Any, end: Any) -> int | None:
    if end is None or isinstance(end, int | float):
        return None if end is None else int(end)
    raise ModelImportError(
        f"{node.name!r} of the torch.export program has a computed end of its integers: give "
        "quant_min and quant_max as numbers"
    )


def _per_channel(node: Any, importer: Any) -> _Steps:
    """`(de)quantize_per_channel`: (x, scales, zero points, axis, least, most, dtype)."""
    _, scale, zero, axis, least, most, dtype = node.args
    name = importer._convert_data_type(str(dtype), importer.env)
    rank = len(node.args[0].meta["val"].shape)
    if not -rank <= axis < rank:
        fault = axis_fault(axis, rank, {}, None)
        assert fault is not None
        raise _named(node, fault)
    return _Steps(scale=scale, zero=zero, axis=axis % rank, shape=None, dtype=name, least=least,
                  most=most)  # fmt: skip


def _affine(node: Any, importer: Any) -> _Steps:
    """`(de)quantize_affine`: (x, block, scale, zero point, dtype, least, most).

    Raises:
        ModelImportError: the blocks are neither the tensor, rows, nor runs of one axis.
    """
    x, block, scale, zero, dtype, least, most = (*node.args, None, None)[:7]
    shape, block = list(x.meta["val"].shape), list(block)
    name = importer._convert_data_type(str(dtype), importer.env)
    single = [axis for axis, extent in enumerate(block) if extent != shape[axis]]
    plain = {"scale": scale, "zero": zero, "dtype": name, "least": least, "most": most}
    if not single:
        return _Steps(**plain, axis=0, shape=None)
    if len(single) == 1 and block[single[0]] == 1:
        return _Steps(**plain, axis=single[0], shape=None)
    # Blocks that lie one after another are rows of a matrix.
    first = next((axis for axis, extent in enumerate(block) if extent != 1), len(block))
    if all(isinstance(each, int) for each in shape) and block[first + 1 :] == shape[first + 1 :]:
        return _Steps(**plain, axis=0, shape=(-1, prod(block[first:])))
    raise ModelImportError(
        f"{node.name!r} of the torch.export program has blocks of {tuple(block)} in a tensor of "
        f"{tuple(shape)}: quantise per tensor, per channel, per row, or in runs of the last axis"
    )


def _named(node: Any, fault: tuple[str, str]) -> ModelImportError:
    what, remedy = fault
    return ModelImportError(f"{node.name!r} of the torch.export program: {what}; {remedy}")


def _operands(node: Any, importer: Any, steps: _Steps, known: Callable[[Any], Any]) -> list[Any]:
    """Return the scale and the zero point, as constants where they are known.

    Raises:
        ModelImportError: a type, a scale or a zero point means nothing, or there are too many.
    """
    if steps.dtype not in _TAKEN:
        raise ModelImportError(
            f"{node.name!r} of the torch.export program is of {steps.dtype}: quantise to int8 or "
            "uint8"
        )
    scale = known(steps.scale)
    zero = 0 if steps.zero is None else known(steps.zero)
    is_weight = "dequantize" in node.target.__name__ and known(node.args[0]) is not None
    faults = [
        None if scale is None or is_weight else scale_fault(np.asarray(scale, np.float32)),
        None if zero is None else zero_point_fault(np.asarray(zero), steps.dtype),
        _count_fault(node, steps, {"scales": scale, "zero points": zero}),
    ]
    for fault in filter(None, faults):
        raise _named(node, fault)
    emit = importer.block_builder.emit
    made = []
    for given, value, dtype in (
        (steps.scale, scale, "float32"),
        (steps.zero, zero, steps.dtype),
    ):
        if value is not None:
            array = np.asarray(value).astype(dtype)
            made.append(relax.const(array.reshape(-1) if array.size > 1 else array.reshape(())))
            continue
        one = emit(relax.op.astype(importer.env[given], dtype))
        is_one = all(extent == 1 for extent in given.meta["val"].shape)
        made.append(emit(relax.op.reshape(one, () if is_one else (-1,))))
    return made


def _count_fault(node: Any, steps: _Steps, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with the number of scales or zero points, or None."""
    counts = {name: np.size(value) for name, value in values.items() if value is not None}
    shape = node.args[0].meta["val"].shape
    extent = shape[steps.axis] if shape else 1
    if steps.shape is not None:
        extent = prod(shape) // steps.shape[-1]
    if all(count == 1 for count in counts.values()):
        return None
    return axis_fault(steps.axis, len(shape), counts, extent if isinstance(extent, int) else None)


def _quantised(node: Any, importer: Any, steps: _Steps, known: Callable[[Any], Any]) -> relax.Expr:
    """Quantise to integers, which may be fewer than the type's: then the floats are clipped."""
    x, emit = importer.env[node.args[0]], importer.block_builder.emit
    scale, zero = _operands(node, importer, steps, known)
    own = importer.shape_of(x)
    if str(x.ty.dtype) != "float32":
        x = emit(relax.op.astype(x, "float32"))
    if steps.shape is not None:
        x = emit(relax.op.reshape(x, steps.shape))
    ends = np.iinfo(steps.dtype)
    least = ends.min if steps.least is None else max(int(steps.least), ends.min)
    most = ends.max if steps.most is None else min(int(steps.most), ends.max)
    if (least, most) != (ends.min, ends.max):
        x = _clipped(node, importer, x, steps, known, (least, most))
    made = emit(relax.op.quantize(x, scale, zero, axis=steps.axis, out_dtype=steps.dtype))
    return made if steps.shape is None else emit(relax.op.reshape(made, own))


def _clipped(  # noqa: PLR0917
    node: Any,
    importer: Any,
    x: Any,
    steps: _Steps,
    known: Callable[[Any], Any],
    ends: tuple[int, int],
) -> relax.Expr:
    """Return floats that are quantised to integers between two ends.

    (end - zero point) * scale in FP32 is the nearest float to a whole number of steps, so that it
    is quantised to the end again.
    """
    scale, zero = known(steps.scale), 0 if steps.zero is None else known(steps.zero)
    if np.size(scale) != 1 or np.size(zero) != 1 or scale is None or zero is None:
        raise ModelImportError(
            f"{node.name!r} of the torch.export program quantises to integers from {ends[0]} to "
            f"{ends[1]} by computed or several scales: give a constant scale per tensor, or all "
            f"integers of {steps.dtype}"
        )
    step = np.float32(np.asarray(scale).reshape(()))
    low, high = (np.float32(end - int(np.asarray(zero).reshape(()))) * step for end in ends)
    return importer.block_builder.emit(relax.op.clip(x, float(low), float(high)))


def _dequantised(
    node: Any, importer: Any, steps: _Steps, known: Callable[[Any], Any]
) -> relax.Expr:
    """(x - zero point) * scale, in the type that the program gives it."""
    x, emit = importer.env[node.args[0]], importer.block_builder.emit
    scale, zero = _operands(node, importer, steps, known)
    own, dtype = importer.shape_of(x), str(x.ty.dtype)
    if dtype != steps.dtype:
        fault = (f"its integers are {dtype}, and it says {steps.dtype}", "give both one type")
        raise _named(node, fault)
    if steps.shape is not None:
        x = emit(relax.op.reshape(x, steps.shape))
    made = emit(relax.op.dequantize(x, scale, zero, axis=steps.axis, out_dtype="float32"))
    if steps.shape is not None:
        made = emit(relax.op.reshape(made, own))
    wanted = importer._convert_data_type(str(node.meta["val"].dtype), importer.env)
    return made if wanted == "float32" else emit(relax.op.astype(made, wanted))
