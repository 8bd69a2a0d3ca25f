"""From a model as users have it to a Relax module and the names of its inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, describe, require_main
from boltgen.frontend.onnx import (
    Shapes,
    bind_extents,
    fix_shape,
    graph_inputs,
    naming,
    ranges_of,
    read_onnx,
)
from boltgen.frontend.relax.onnx_reader import import_onnx
from boltgen.frontend.relax.symbols import ranges_in, with_ranges
from boltgen.frontend.relax.torch_program import import_program, read_program, with_shapes
from boltgen.frontend.relax.translate import shape_of, tensor_type


def import_model(
    source: object, *, shapes: Shapes | None = None, allow_nonfinite: bool = False
) -> ImportedModel:
    """Import a model; a dimension that it leaves open and `shapes` do not give stays symbolic.

    `source` is the path of an ONNX file or of a saved `torch.export` program (`.pt2`), an ONNX
    ModelProto, an ExportedProgram, or a Relax module. `shapes` gives the inputs' shapes, where the
    model leaves dimensions open. `allow_nonfinite` takes weights that are NaN or infinite.

    Raises:
        ModelImportError: the model cannot be read or imported; the message says why, and what to
            do.
    """
    shapes = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    path = Path(source) if isinstance(source, (str, Path)) else None
    if path is not None:
        source = read_program(path) if path.suffix == ".pt2" else read_onnx(path)
    if isinstance(source, tvm.IRModule):
        return _import_relax(source, shapes)
    if type(source).__module__.startswith("torch.export"):
        return _import_torch(source, shapes, allow_nonfinite=allow_nonfinite)
    if type(source).__name__ == "ModelProto":
        with naming(path):
            return _import_onnx(source, shapes, allow_nonfinite=allow_nonfinite)
    raise ModelImportError(
        f"a {type(source).__module__}.{type(source).__qualname__} is no model that boltgen knows; "
        "pass an ONNX file or ModelProto, a torch.export ExportedProgram, or a Relax IRModule"
    )


def _import_onnx(model: Any, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    module, prepared = import_onnx(model, shapes, allow_nonfinite=allow_nonfinite)
    inputs = [value.name for value in graph_inputs(model)]
    module = with_ranges(module, ranges_of(prepared.shapes, shapes))
    imported = _describe(module, inputs, [value.name for value in model.graph.output])
    return replace(imported, notes=prepared.notes)


def _import_torch(program: Any, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    imported = import_program(program, allow_nonfinite=allow_nonfinite)
    module = with_shapes(imported, shapes)
    return _describe(module, list(imported.inputs), list(imported.outputs))


def _import_relax(module: tvm.IRModule, shapes: Shapes) -> ImportedModel:
    require_main(module, relax.Function, "Relax")
    inputs = [param.name for param in module["main"].params]
    return _describe(_fix_shapes(module, inputs, shapes), inputs, [])


def _fix_shapes(module: tvm.IRModule, names: list[str], shapes: Shapes) -> tvm.IRModule:
    types = {name: each.ty for name, each in zip(names, module["main"].params, strict=True)}
    for name, type_ in types.items():
        if not isinstance(type_, relax.TensorType):
            raise ModelImportError(f"input {name!r} is no tensor; only tensors are supported")
    declared = {name: shape_of(type_) for name, type_ in types.items()}
    values = bind_extents(declared, shapes)
    for name, shape in shapes.items():
        fix_shape(name, declared[name], shape)
    if values:
        module = relax.transform.BindSymbolicVars(values, "main")(module)
    known = {name: shape for name, shape in declared.items() if shape is not None}
    return with_ranges(module, ranges_of(known, shapes))


def _describe(module: tvm.IRModule, inputs: list[str], outputs: list[str]) -> ImportedModel:
    main = module["main"]
    params = [tensor_type(param.ty) for param in main.params]
    imported = describe(module, params, main.ret_ty, tensor_type, (inputs, outputs))
    return replace(imported, dimensions=ranges_in(main))
