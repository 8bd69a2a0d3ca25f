"""Write the nodes of a function or a branch into the graph that calls it, under fresh names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from boltgen.frontend.onnx.scope import Scope


def branch_nodes(graph: Any, node: Any, scope: Scope) -> list[Any]:
    """The nodes of a branch without inputs, whose results take the names of the node's."""
    names: dict[str, str] = {}
    _enter_constants(graph, names, scope)
    results = [each.name for each in graph.output]
    return _renamed(graph.node, results, caller=node, scope=scope, names=names)


def body_nodes(
    graph: Any, given: Sequence[str], node: Any, scope: Scope
) -> tuple[list[Any], list[str]]:
    """Copy a body's nodes for values of its inputs; return them and the names of its results."""
    names = {each.name: value for each, value in zip(graph.input, given, strict=True)}
    _enter_constants(graph, names, scope)
    hint = node.output[0] or node.op_type
    for name in dict.fromkeys(name for inner in graph.node for name in inner.output if name):
        names[name] = scope.fresh(f"{hint}_{name}")
    nodes = [_copy(inner, names, {}) for inner in graph.node]
    return nodes, [names.get(each.name, each.name) for each in graph.output]


def _enter_constants(graph: Any, names: dict[str, str], scope: Scope) -> None:
    """Make the initialisers of a graph constants of the scope, and note their new names."""
    for tensor in graph.initializer:
        kept = type(tensor)()
        kept.CopyFrom(tensor)
        kept.name = names[tensor.name] = scope.fresh(tensor.name)
        scope.add_tensor(kept)


def function_nodes(node: Any, scope: Scope) -> tuple[list[Any], int] | None:
    """Return the nodes by which ONNX defines an operator, and their operator set; None without a
    definition.
    """
    onnx = scope.onnx
    try:
        schema = onnx.defs.get_schema(node.op_type, scope.opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    function = onnx.FunctionProto()
    version = 0
    if schema.has_function:
        version = _newest(schema.function_opset_versions, scope)
        function.ParseFromString(schema.get_function_with_opset_version(version))
    elif schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, scope)
        types = [(scope.type(name) or onnx.TypeProto()).SerializeToString() for name in node.input]
        function.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
        )
    if not function.node:
        return None
    given = dict.fromkeys(function.input, "") | dict(zip(function.input, node.input, strict=False))
    defaults = {name: each.default_value for name, each in schema.attributes.items()}
    attributes = {name: each for name, each in defaults.items() if each.name}
    attributes |= {each.name: each for each in node.attribute}
    results = list(function.output)
    nodes = _renamed(
        function.node, results, caller=node, scope=scope, names=given, attributes=attributes
    )
    opset = next((each.version for each in function.opset_import if not each.domain), version)
    return nodes, opset


def _newest(versions: list[int], scope: Scope) -> int:
    """The newest of the versions that the model's operator set has, else the oldest."""
    return max([each for each in versions if each <= scope.opset], default=versions[0])


def _renamed(
    nodes: Iterable[Any],
    results: list[str],
    *,
    caller: Any,
    scope: Scope,
    names: dict[str, str],
    attributes: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Copies of nodes under fresh names, whose `results` take the names of the caller's.

    `names` has what values are called that the nodes read. A result that no node makes, or that
    is wanted twice, gets an Identity.
    """
    made = {name for node in nodes for name in node.output if name}
    aliases: dict[str, str] = {}
    for inner, outer in zip(results, caller.output, strict=False):
        if outer and inner in made and inner not in names:
            names[inner] = outer
        elif outer:
            aliases[outer] = inner
    hint = caller.output[0] or caller.op_type
    for name in sorted(made - names.keys()):
        names[name] = scope.fresh(f"{hint}_{name}")
    written = [_copy(node, names, attributes or {}) for node in nodes]
    return written + [
        scope.onnx.helper.make_node("Identity", [names.get(inner, inner)], [outer])
        for outer, inner in aliases.items()
    ]


def _copy(node: Any, names: Mapping[str, str], attributes: Mapping[str, Any]) -> Any:
    """A node with its values renamed, in its graphs too, and attributes of the caller filled in."""
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.input[:], copy.output[:], copy.attribute[:]
    copy.input.extend(names.get(name, name) for name in node.input)
    copy.output.extend(names.get(name, name) for name in node.output)
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = attributes.get(attribute.ref_attr_name)
            if source is None:
                continue
            filled = copy.attribute.add()
            filled.CopyFrom(source)
            filled.name = attribute.name
            continue
        kept = copy.attribute.add()
        kept.CopyFrom(attribute)
        if kept.HasField("g"):
            inner = [_copy(each, names, attributes) for each in kept.g.node]
            del kept.g.node[:]
            kept.g.node.extend(inner)
            for value in kept.g.output:
                value.name = names.get(value.name, value.name)
    return copy
