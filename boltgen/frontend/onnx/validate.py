"""Refuse models whose parts do not fit together, before anything is computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.order import needed, subgraphs
from boltgen.frontend.onnx.read import onnx_package
from boltgen.frontend.onnx.scope import described
from boltgen.passes.weights.checks import refuse_nan

AGAIN = "Export or download the model again"
STANDARD = ("", "ai.onnx")
# Fields of TensorProto that hold elements.
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def standard_opset(model: Any) -> int:
    """The version of the standard operator set that a model uses.

    Raises:
        ModelImportError: it names none, or two, or a file format that TVM does not read.
    """
    versions = {each.version for each in model.opset_import if each.domain in STANDARD}
    if len(versions) != 1 or min(versions) < 1:
        shown = ", ".join(map(str, sorted(versions))) or "none"
        raise ModelImportError(
            f"the model must use one version of the standard operator set; it has {shown}. {AGAIN}"
        )
    if model.ir_version < 3:
        raise ModelImportError(
            f"the model's file format is of version {model.ir_version}; 3 is the oldest that is "
            "read. Export the model again"
        )
    (opset,) = versions
    return int(opset)


def validate(model: Any, *, allow_nonfinite: bool) -> None:
    """Check tensors and the names of values of a sorted model.

    Constants that are read may be NaN with `allow_nonfinite`; what nothing reads may be anything.

    Raises:
        ModelImportError: naming the tensor or the node.
    """
    if not model.graph.node:
        raise ModelImportError(f"the model has no operators. {AGAIN}")
    if not model.graph.output:
        raise ModelImportError(f"the model has no outputs. {AGAIN}")
    _check_names(model.graph, frozenset())
    for tensor in _tensors(model.graph.initializer, model.graph.node):
        check_tensor(tensor)
    if not allow_nonfinite:
        nodes, names = needed(model.graph.node, [value.name for value in model.graph.output])
        _check_numbers(_tensors([t for t in model.graph.initializer if t.name in names], nodes))


def _tensors(initializers: Iterable[Any], nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield every constant, by a name of its own; a Constant's tensor has its result's name."""
    yield from initializers
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                if node.op_type == "Constant" and node.output:
                    attribute.t.name = node.output[0]
                yield attribute.t
        for inner in subgraphs(node):
            yield from _tensors(inner.initializer, inner.node)


def check_tensor(tensor: Any) -> None:
    """Check that a constant's shape, dtype and data fit together.

    Raises:
        ModelImportError: naming it.
    """
    onnx = onnx_package()
    name = f"initializer {tensor.name!r}"
    proto = onnx.TensorProto
    if tensor.data_type not in proto.DataType.values() or tensor.data_type == proto.UNDEFINED:
        raise ModelImportError(
            f"{name} has the unknown data type {tensor.data_type}. Export the model with numbers "
            "that this version of onnx knows, or update the package"
        )
    if tensor.data_type in {proto.STRING, proto.COMPLEX64, proto.COMPLEX128}:
        kind = proto.DataType.Name(tensor.data_type)
        raise ModelImportError(
            f"{name} is of type {kind}, which no device computes with. Export the model without it"
        )
    if any(extent < 0 for extent in tensor.dims):
        raise ModelImportError(f"{name} has the negative shape {tuple(tensor.dims)}. {AGAIN}")
    if tensor.data_location == proto.EXTERNAL:
        where = next((each.value for each in tensor.external_data if each.key == "location"), "?")
        raise ModelImportError(
            f"{name} has its data in the file {where!r}, which was not loaded; pass the model's "
            "path, or load it with onnx.load, so that the file is found beside it"
        )
    wanted, found, unit = _extents_and_data(onnx, tensor)
    if wanted != found:
        raise ModelImportError(
            f"{name} of shape {tuple(tensor.dims)} needs {wanted} {unit}, and has {found}. {AGAIN}"
        )


def _extents_and_data(onnx: Any, tensor: Any) -> tuple[int, int, str]:
    """Return how much data a tensor needs, how much it has, and the unit."""
    count, proto = prod(tensor.dims), onnx.TensorProto
    fours = {proto.INT4, proto.UINT4, getattr(proto, "FLOAT4E2M1", -1)}
    twos = {getattr(proto, name, -1) for name in ("INT2", "UINT2")}
    bits = 4 if tensor.data_type in fours else 2 if tensor.data_type in twos else 0
    if tensor.HasField("raw_data"):
        if not bits:
            bits = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
        return -(-count * bits // 8), len(tensor.raw_data), "bytes"
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    others = sum(len(getattr(tensor, each)) for each in _FIELDS if each != field)
    wanted = -(-count * bits // 8) if bits else count
    return wanted, len(getattr(tensor, field)) or others, "elements"


def _check_numbers(tensors: Iterable[Any]) -> None:
    onnx = onnx_package()
    proto = onnx.TensorProto
    for tensor in tensors:
        # A single NaN is a number that the author wrote; among others it is a spoilt weight.
        is_float = tensor.data_type in {proto.FLOAT, proto.FLOAT16, proto.DOUBLE}
        if is_float and prod(tensor.dims) > 1:
            refuse_nan(f"initializer {tensor.name!r}", onnx.numpy_helper.to_array(tensor))


def _check_names(graph: Any, outer: frozenset[str]) -> None:
    """Check that every value is made once, before it is read."""
    known: set[str] = set()
    listed = [each.name for each in graph.input]
    stored = [each.name for each in graph.initializer]
    for kind, names in (("input", listed), ("initializer", stored)):
        for name, count in Counter(names).items():
            if count > 1:
                raise ModelImportError(
                    f"{count} values are called {name!r}, each an {kind}. {AGAIN}"
                )
        known.update(names)
    for node in graph.node:
        _check_node(node, known, outer)
    for value in graph.output:
        if value.name not in known and value.name not in outer:
            raise ModelImportError(f"nothing makes the output {value.name!r}. {AGAIN}")


def _check_node(node: Any, known: set[str], outer: frozenset[str]) -> None:
    """Check the values that a node reads, and record the values that it makes."""
    attributes = Counter(attribute.name for attribute in node.attribute)
    if attributes.total() > len(attributes):
        (double, _), *_ = attributes.most_common(1)
        raise ModelImportError(f"{described(node)} has the attribute {double!r} twice. {AGAIN}")
    for name in filter(None, node.input):
        if name not in known and name not in outer:
            raise ModelImportError(
                f"{described(node)} reads {name!r}, which nothing before it makes. {AGAIN}"
            )
    for inner in subgraphs(node):
        _check_names(inner, outer | known)
    for name in filter(None, node.output):
        if name in known:
            raise ModelImportError(
                f"{described(node)} makes {name!r}, which is there already. {AGAIN}"
            )
        known.add(name)
