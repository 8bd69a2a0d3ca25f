"""Reads ONNX files, and says what is wrong with one before TVM meets it. IR-neutral."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boltgen.errors import ModelImportError
from boltgen.frontend.weights import check_weight

# Operators whose constant operands become FP16 operands of a kernel, and those that pass one on.
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"})
_PASSING = frozenset({"Transpose", "Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze"})

Shapes = Mapping[str, tuple[int, ...]]


def onnx_package() -> Any:
    """The package onnx.

    Raises:
        ModelImportError: it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415
    except ImportError as error:
        raise ModelImportError(
            "reading an ONNX model needs the onnx package: pip install 'boltgen[onnx]'"
        ) from error
    return onnx


def read_onnx(path: Path) -> Any:
    """The ModelProto in a file, with the data that it refers to.

    Raises:
        ModelImportError: the file is missing, unreadable, truncated, or no ONNX model.
    """
    onnx = onnx_package()
    if not path.is_file():
        raise ModelImportError(f"{path}: there is no such file")
    try:
        model = onnx.load(path)
    except (OSError, onnx.checker.ValidationError) as error:
        raise ModelImportError(f"{path}: cannot be read: {error}") from error
    except Exception as error:  # protobuf's DecodeError, and a codec's for .textproto and .json
        raise ModelImportError(
            f"{path}: not an ONNX model, or a truncated one ({path.stat().st_size} bytes; the "
            f"parser says: {error}). Export or download it again"
        ) from error
    if not model.graph.node or not model.opset_import:
        raise ModelImportError(
            f"{path}: not an ONNX model: it has no operators. Export or download it again"
        )
    return model


def graph_inputs(model: Any) -> list[Any]:
    """The model's inputs, without the initialisers that old exporters list among them."""
    known = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in known]


def check_operators(model: Any, known: Collection[str]) -> None:
    """Refuse a model with operators that are not among the `known` ones, which TVM converts.

    Raises:
        ModelImportError: naming each, and a node that has it.
    """
    unknown: dict[str, str] = {}
    for position, node in enumerate(model.graph.node):
        if node.op_type not in known:
            name = f"node {node.name!r}" if node.name else f"node number {position}"
            domain = f", domain {node.domain!r}" if node.domain else ""
            unknown.setdefault(node.op_type, f"{node.op_type} ({name}{domain})")
    if unknown:
        raise ModelImportError(
            f"TVM cannot import these ONNX operators: {', '.join(unknown.values())}. Export the "
            "model without them, for instance as the standard operators they stand for"
        )


def fixed_shapes(model: Any, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Every input's shape, `shapes` deciding where the model leaves it open.

    Raises:
        ModelImportError: a dimension stays open, or `shapes` contradicts the model.
    """
    inputs = graph_inputs(model)
    names = [value.name for value in inputs]
    for name in shapes:
        if name not in names:
            raise ModelImportError(
                f"shapes names the input {name!r}, which the model does not have; it has "
                f"{', '.join(map(repr, names))}"
            )
    fixed = {}
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise ModelImportError(f"input {value.name!r} is no tensor; only tensors are supported")
        tensor = value.type.tensor_type
        declared: list[int | str] | None = None
        if tensor.HasField("shape"):
            declared = [
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value > 0
                else (dim.dim_param or "?")
                for dim in tensor.shape.dim
            ]
        fixed[value.name] = fix_shape(value.name, declared, shapes.get(value.name))
    return fixed


def fix_shape(
    name: str, declared: list[int | str] | None, given: tuple[int, ...] | None
) -> tuple[int, ...]:
    """An input's shape from what the model declares and what the user gives.

    Raises:
        ModelImportError: a dimension stays open, or the two contradict each other.
    """
    if given is None:
        open_axes = [axis for axis, e in enumerate(declared or []) if isinstance(e, str)]
        if declared is not None and not open_axes:
            return tuple(extent for extent in declared if isinstance(extent, int))
        what = "an unknown rank"
        example: tuple[int, ...] = (1, 3, 224, 224)
        if declared is not None:
            axis = open_axes[0]
            shown = ", ".join(map(str, declared))
            what = f"the dynamic dimension '{declared[axis]}' (axis {axis} of ({shown}))"
            example = tuple(extent if isinstance(extent, int) else 1 for extent in declared)
        text = ",".join(map(str, example))
        raise ModelImportError(
            f"input {name!r} has {what}; kernels are chosen for known sizes. Give it a shape, for "
            f"instance shapes={{{name!r}: {example}}}, or on the command line --shape {name}={text}"
        )
    fits = declared is None or (
        len(given) == len(declared)
        and all(isinstance(d, str) or d == g for d, g in zip(declared, given, strict=True))
    )
    if not fits or min(given, default=1) < 1:
        shown = "any rank" if declared is None else f"({', '.join(map(str, declared))})"
        raise ModelImportError(
            f"the shape {given} given for input {name!r} does not fit the model's {shown}"
        )
    return given


def check_weights(model: Any) -> None:
    """Refuse weights that are not finite in FP16.

    Raises:
        ModelImportError: naming the first.
    """
    onnx = onnx_package()
    weights: set[str] = set()
    for node in reversed(model.graph.node):
        if node.op_type in _WEIGHTED or (
            node.op_type in _PASSING and weights.intersection(node.output)
        ):
            weights.update(node.input)
    for name, tensor in _constants(model):
        if tensor.data_type in {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}:
            array: npt.NDArray[np.float32] = onnx.numpy_helper.to_array(tensor)
            check_weight(f"initializer {name!r}", array, is_weight=name in weights)


def _constants(model: Any) -> Iterator[tuple[str, Any]]:
    for tensor in model.graph.initializer:
        yield tensor.name, tensor
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield node.output[0], attribute.t


def import_failure(model: Any, operator: str, error: Exception) -> ModelImportError:
    """What TVM's converter of `operator` ("" where it is not known which) raised, for people."""
    nodes = [repr(node.name) for node in model.graph.node if node.op_type == operator]
    where = (
        f"the ONNX operator {operator} (one of {', '.join(nodes[:8])})" if operator else "the model"
    )
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    invalid = _invalidity(onnx_package(), model)
    advice = f" (the ONNX checker says: {invalid})" if invalid else ""
    return ModelImportError(f"TVM cannot import {where}: {first_line}{advice}")


def _invalidity(onnx: Any, model: Any) -> str:
    """What the ONNX checker says of the model; only asked where the import failed.

    It also refuses what imports well, such as results without a declared shape.
    """
    try:
        if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        return str(error).strip().splitlines()[0]
    return ""
