"""From a model as users have it to a Relax module and the names of its inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, describe, require_main
from boltgen.frontend.onnx import Shapes, fix_shape, graph_inputs, naming, read_onnx
from boltgen.frontend.relax.onnx_reader import import_onnx
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
    for name in shapes:
        if name not in names:
            raise ModelImportError(
                f"shapes names the input {name!r}, which the model does not have; it has "
                f"{', '.join(map(repr, names))}"
            )
    values: dict[str, int] = {}
    for name, param in zip(names, module["main"].params, strict=True):
        if not isinstance(param.ty, relax.TensorType):
            raise ModelImportError(f"input {name!r} is no tensor; only tensors are supported")
        if name not in shapes:
            continue
        shape = shape_of(param.ty)
        fixed = fix_shape(name, None if shape is None else list(shape), shapes[name])
        for extent, value in zip(shape or (), fixed, strict=False):
            if isinstance(extent, str) and values.setdefault(extent, value) != value:
                raise ModelImportError(
                    f"the given shapes make the dimension {extent!r} both {values[extent]} and "
                    f"{value} (input {name!r})"
                )
    return relax.transform.BindSymbolicVars(values, "main")(module) if values else module


def _describe(module: tvm.IRModule, inputs: list[str], outputs: list[str]) -> ImportedModel:
    function = module["main"]
    result = function.ret_ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    params = [tensor_type(param.ty) for param in function.params]
    return describe(
        module, list(zip(inputs, params, strict=True)), [*map(tensor_type, results)], outputs
    )
