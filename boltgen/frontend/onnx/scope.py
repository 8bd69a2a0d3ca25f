"""The known facts about a graph's values while it is rewritten: types and constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.read import onnx_package

Array: TypeAlias = npt.NDArray[Any]
# An unknown extent is a name, or None without a name.
Extents: TypeAlias = "tuple[int | str | None, ...]"

# A value larger than this is an error in the file: no device holds it.
MOST_ELEMENTS = 1 << 34


class Scope:
    """The values of one graph, and through `outer` the values of the graphs around it."""

    def __init__(self, opset: int, outer: Scope | None = None) -> None:
        self.onnx = onnx_package()
        self.opset = opset
        self.outer = outer
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}  # TensorProto by name
        self.types: dict[str, Any] = {}  # TypeProto by name
        # One-dimensional values of which some elements are names of extents.
        self.partial: dict[str, tuple[int | str, ...]] = {}
        # Names of extents that the file has as 0, which some exporters write for an open one.
        self.zeros: set[str] = outer.zeros if outer else set()
        # Whether matrices of whole numbers with scales stay so: a pass packs them later.
        self.packs_weights: bool = outer.packs_weights if outer else False
        self._made_by: dict[str, Any] = {}
        self._arrays: dict[str, Array] = {}
        self._names: set[str] = outer._names if outer else set()
        self.read: set[str] = outer.read if outer else set()  # names that the file's nodes read

    def reserve(self, names: Iterable[str]) -> None:
        """Keep `fresh` from giving these names."""
        self._names.update(names)

    def fresh(self, hint: str) -> str:
        """A name that no value of the model has."""
        name, number = hint, 0
        while name in self._names:
            number += 1
            name = f"{hint}_{number}"
        self._names.add(name)
        return name

    def around(self) -> Iterator[Scope]:
        """Yield this scope and its outer scopes, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def add_tensor(self, tensor: Any) -> None:
        """Make a TensorProto a constant under its name."""
        self.tensors[tensor.name] = tensor
        self._arrays.pop(tensor.name, None)
        self.types[tensor.name] = self.onnx.helper.make_tensor_type_proto(
            tensor.data_type, list(tensor.dims)
        )

    def add_array(self, name: str, array: Array) -> None:
        """Make an array a constant under a name."""
        self.add_tensor(self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        self._arrays[name] = np.asarray(array)

    def append(self, node: Any) -> None:
        """Add a node to the graph."""
        self.nodes.append(node)
        self._made_by.update(dict.fromkeys(node.output, node))

    def producer(self, name: str) -> Any:
        """The node of this graph that makes a value, or None."""
        return self._made_by.get(name)

    def tensor(self, name: str) -> Any:
        """The TensorProto of a constant, or None."""
        return next((each.tensors[name] for each in self.around() if name in each.tensors), None)

    def constant(self, name: str) -> Array | None:
        """Return the array of a constant, or None if the value is computed or absent ("")."""
        for scope in self.around():
            if name in scope._arrays:
                return scope._arrays[name]
            if name in scope.tensors:
                tensor = scope.tensors[name]
                array: Array = self.onnx.numpy_helper.to_array(tensor)
                scope._arrays[name] = array
                return array
        return None

    def elements(self, name: str) -> tuple[int | str, ...] | None:
        """A one-dimensional value of integers, element by element, as far as extents are names."""
        for scope in self.around():
            if name in scope.partial:
                return scope.partial[name]
        array = self.constant(name)
        if array is None or array.ndim > 1 or array.size > 64 or array.dtype.kind not in "iu":
            return None
        return tuple(int(each) for each in array.reshape(-1))

    def type(self, name: str) -> Any:
        """The TypeProto of a value, or None."""
        return next((each.types[name] for each in self.around() if name in each.types), None)

    def extents(self, name: str) -> Extents | None:
        """Return the known part of a tensor's shape, or None if its rank is unknown."""
        known = self.type(name)
        if known is None or not known.HasField("tensor_type"):
            return None
        tensor = known.tensor_type
        if not tensor.HasField("shape"):
            return None
        return tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in tensor.shape.dim
        )

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor, or None if an extent is unknown."""
        extents = self.extents(name)
        known = [extent for extent in extents or () if isinstance(extent, int)]
        return None if extents is None or len(known) < len(extents) else tuple(known)

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """Return the dtype of a tensor, or None if it is unknown."""
        known = self.type(name)
        if known is None or not known.tensor_type.elem_type:
            return None
        found: np.dtype[Any] = self.onnx.helper.tensor_dtype_to_np_dtype(
            known.tensor_type.elem_type
        )
        return found

    def infer(self, node: Any) -> None:
        """Add the types of a node's outputs, as far as ONNX's shape inference knows them.

        Raises:
            ModelImportError: an output has more elements than any device holds.
        """
        for name, known in self._inferred(node).items():
            self.types[name] = known
            shape = self.shape(name)
            if shape is not None and np.prod(shape, dtype=object) > MOST_ELEMENTS:
                raise ModelImportError(
                    f"{described(node)} makes {name!r} of shape {shape}, which no device holds; "
                    "check the constants that its shape comes from"
                )

    def _inferred(self, node: Any) -> dict[str, Any]:
        types, data = {}, {}
        for name in filter(None, node.input):
            known = self.type(name)
            if known is None:
                return {}
            types[name] = known
            tensor = self.tensor(name)
            if tensor is not None and len(tensor.dims) <= 1 and sum(tensor.dims) <= 64:
                data[name] = tensor
        # ONNX Runtime and TVM take operators of newer sets in a model of an old one.
        defs = self.onnx.defs
        version = self.opset if defs.has(node.op_type, self.opset) else defs.onnx_opset_version()
        try:
            found: dict[str, Any] = self.onnx.shape_inference.infer_node_outputs(
                defs.get_schema(node.op_type, version, node.domain),
                node,
                types,
                data,
                opset_imports=[self.onnx.helper.make_opsetid("", version)],
            )
        except Exception:  # its errors have no common base; other types stay unknown
            return {}
        return found


def described(node: Any) -> str:
    """Describe a node in messages: by its name, or by the values that it makes."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    made = ", ".join(repr(name) for name in node.output)
    return f"the {node.op_type} that makes {made}"


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, strings decoded, tensors and graphs as protos."""
    for each in node.attribute:
        if each.name == name:
            value = onnx_package().helper.get_attribute_value(each)
            if isinstance(value, bytes):
                return value.decode()
            if isinstance(value, list) and value and isinstance(value[0], bytes):
                return [element.decode() for element in value]
            return value
    return default


def operand(node: Any, place: int) -> str:
    """The name of a node's operand, "" where it is left out."""
    return node.input[place] if place < len(node.input) else ""
