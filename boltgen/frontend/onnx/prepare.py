"""Rewrite an ONNX model of any form so that a TVM converter takes it, and report the changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import first_line
from boltgen.frontend.onnx.importers import Importer
from boltgen.frontend.onnx.order import made_names, sort_nodes
from boltgen.frontend.onnx.read import onnx_package
from boltgen.frontend.onnx.rewriter import NOT_KNOWN, Record, Refusal, Rewriter, write_graph
from boltgen.frontend.onnx.rewrites.registry import LIFTED_TO
from boltgen.frontend.onnx.scope import Scope
from boltgen.frontend.onnx.shapes import Extent, Shapes, graph_inputs, input_shapes
from boltgen.frontend.onnx.validate import STANDARD, standard_opset, validate

# Operator sets below this broadcast by other rules; ONNX's own converter knows them.
OLDEST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A model for TVM's converter, its inputs' shapes, and sentences on what was changed."""

    model: Any
    shapes: dict[str, tuple[Extent, ...]]
    notes: tuple[str, ...]


def prepare(
    model: Any, shapes: Shapes, importer: Importer, *, allow_nonfinite: bool = False
) -> Prepared:
    """Check, type, fold and rewrite a ModelProto; the one that is passed stays as it is.

    Raises:
        ModelImportError: the model is malformed, has an operator that nothing here converts, a
            dimension that cannot stay open, or a weight that is NaN.
    """
    onnx = onnx_package()
    try:
        return _prepare(onnx, model, shapes, importer, allow_nonfinite=allow_nonfinite)
    except ModelImportError:
        raise
    except (
        ValueError,
        TypeError,
        RecursionError,
        OverflowError,
        onnx.checker.ValidationError,
    ) as e:
        # Errors of protobuf and NumPy for a damaged message: text that does not decode, numbers out
        # of range, tensors of unknown types.
        raise ModelImportError(
            f"the model is damaged: {first_line(e)}. Export or download it again"
        ) from e


def _prepare(
    onnx: Any, model: Any, shapes: Shapes, importer: Importer, *, allow_nonfinite: bool
) -> Prepared:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    notes: list[str] = []
    if made.functions:
        made = onnx.inliner.inline_local_functions(made)
        notes.append("The functions that the model defines were written out where it calls them.")
    opset = standard_opset(made)
    if sort_nodes(made.graph):
        notes.append("The model's nodes were put in the order in which they read each other.")
    validate(made, allow_nonfinite=allow_nonfinite)
    if opset < OLDEST:
        made, opset = _converted(onnx, made, opset), LIFTED_TO
        notes.append(f"ONNX's version converter lifted the model to operator set {LIFTED_TO}.")
    found = input_shapes(made, shapes, symbolic=importer.symbolic)
    scope = Scope(max(opset, LIFTED_TO))
    scope.packs_weights = importer.packs_weights
    _enter(made, scope, found)
    record = Record()
    rewriter = Rewriter(scope, importer, record)
    rewriter.run(list(made.graph.node), opset)
    _write(made, scope, found)
    _require_taken(made, rewriter.refused, importer)
    return Prepared(model=made, shapes=found, notes=(*notes, *record.notes()))


def _converted(onnx: Any, model: Any, opset: int) -> Any:
    try:
        return onnx.version_converter.convert_version(model, LIFTED_TO)
    except Exception as error:  # its adapters raise whatever they please
        raise ModelImportError(
            f"the model uses operator set {opset}, and onnx cannot lift it to {LIFTED_TO}: "
            f"{first_line(error)}. Export it again, with operator set {OLDEST} or newer"
        ) from error


def _enter(model: Any, scope: Scope, shapes: dict[str, tuple[Extent, ...]]) -> None:
    """Make the scope know every name of the model, its constants, and its inputs' types."""
    graph = model.graph
    scope.reserve(each.name for each in [*graph.input, *graph.output, *graph.initializer])
    for node in graph.node:
        scope.reserve([*node.input, *node.output])
    scope.read.update(value.name for value in graph.output)
    for tensor in graph.initializer:
        scope.add_tensor(tensor)
    for value, typed in zip(graph_inputs(model), _inputs(model, scope, shapes), strict=True):
        scope.types[value.name] = typed.type
        declared = value.type.tensor_type.shape.dim
        scope.zeros.update(
            extent
            for extent, dim in zip(shapes[value.name], declared, strict=False)
            if isinstance(extent, str) and dim.HasField("dim_value") and not dim.dim_value
        )


def _inputs(model: Any, scope: Scope, shapes: dict[str, tuple[Extent, ...]]) -> list[Any]:
    """Return the model's inputs with the chosen shapes."""
    make = scope.onnx.helper.make_tensor_value_info
    return [
        make(value.name, value.type.tensor_type.elem_type, list(shapes[value.name]))
        for value in graph_inputs(model)
    ]


def _write(model: Any, scope: Scope, shapes: dict[str, tuple[Extent, ...]]) -> None:
    """Put the scope's nodes, and inputs of the chosen shapes, into the model."""
    graph = model.graph
    inputs = _inputs(model, scope, shapes)
    write_graph(graph, scope)
    del graph.input[:]
    graph.input.extend(inputs)
    for each in model.opset_import:
        if each.domain in STANDARD:
            each.version = scope.opset


def _require_taken(model: Any, refused: list[Refusal], importer: Importer) -> None:
    """Refuse the model for the first refused node that is still there, of each operator."""
    left = made_names(model.graph)
    first: dict[str, Refusal] = {}
    for each in refused:
        if left.intersection(each.node.output):
            first.setdefault(each.node.op_type, each)
    if not first:
        return
    if any(not each.remedy for each in first.values()):
        # The results of an unknown operator have no known type either.
        first = {name: each for name, each in first.items() if each.what != NOT_KNOWN}
    advice = [each.remedy for each in first.values() if each.remedy]
    domains = {each.node.domain for each in first.values() if not each.remedy}
    if "com.microsoft.nchwc" in domains:
        advice.append(
            "save the model with ONNX Runtime's graph_optimization_level ORT_ENABLE_EXTENDED: "
            "ORT_ENABLE_ALL writes layouts that only the processor has on which it is saved"
        )
    elif any(domain.startswith("com.m") for domain in domains):
        advice.append(
            "save the model without ONNX Runtime's own optimisations (ORT_DISABLE_ALL), or export "
            "it again, as standard operators"
        )
    if importer.other and set(first) <= importer.other_takes:
        advice.append(f"try --frontend {importer.other}, whose converter takes them")
    if not advice:
        advice.append(
            "export the model without them, for instance as the standard operators they stand for"
        )
    remedy = "; ".join(dict.fromkeys(advice))
    raise ModelImportError(
        f"TVM cannot import these ONNX operators: {', '.join(map(str, first.values()))}. "
        f"{remedy[0].upper()}{remedy[1:]}"
    )


def import_failure(
    model: Any, operator: str, error: Exception, other: str = ""
) -> ModelImportError:
    """Say what TVM's converter of `operator` raised; `operator` is "" where TVM does not name it.

    `other` is a frontend that may take the model all the same.
    """
    nodes = [repr(node.name) for node in model.graph.node if node.op_type == operator]
    where = (
        f"the ONNX operator {operator} (one of {', '.join(nodes[:8])})" if operator else "the model"
    )
    invalid = _invalidity(onnx_package(), model)
    advice = f" (the ONNX checker says: {invalid})" if invalid else ""
    without = f", or export the model without {operator}" if operator else ""
    remedy = f". Try --frontend {other}{without}" if other else ""
    return ModelImportError(f"TVM cannot import {where}: {first_line(error)}{advice}{remedy}")


def _invalidity(onnx: Any, model: Any) -> str:
    """Return the ONNX checker's complaint of the model; only asked after a failed import.

    It also refuses what imports well, such as results without a declared shape.
    """
    try:
        if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:  # text that is no text, too
        return str(error).strip().splitlines()[0]
    return ""
