"""Import a user's model to a Relax module with the names of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, TensorType, describe, require_main
from boltgen.frontend.onnx import (
    Shapes,
    bind_extents,
    fix_shape,
    graph_inputs,
    naming,
    ranges_of,
    read_onnx,
)
from boltgen.frontend.relax.derived_extents import with_computed_dimensions
from boltgen.frontend.relax.equal_extents import with_equal_extents
from boltgen.frontend.relax.onnx_reader import import_onnx
from boltgen.frontend.relax.symbols import (
    Symbols,
    dimensions,
    ranges_in,
    with_dimensions,
    with_ranges,
)
from boltgen.frontend.relax.translate import shape_of
from boltgen.frontend.torch.program import import_program, read_program, with_shapes
from boltgen.ir.extent import Dim
from boltgen.ir.extent_text import formula_of


def import_model(
    source: object, *, shapes: Shapes | None = None, allow_nonfinite: bool = False
) -> ImportedModel:
    """Import a model; a dynamic dimension stays symbolic unless `shapes` gives it.

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
    module = with_dimensions(module, values)
    known = {name: shape for name, shape in declared.items() if shape is not None}
    return with_ranges(module, ranges_of(known, shapes))


def _describe(module: tvm.IRModule, inputs: list[str], outputs: list[str]) -> ImportedModel:
    module = with_equal_extents(module)
    with_computed_dimensions(module)  # refuses what it cannot compute, before anything is planned
    main = module["main"]
    symbols = Symbols(main)
    known = dimensions(main)
    described = partial(_described, symbols, known)
    params = [described(param.ty) for param in main.params]
    # The type of the function itself leaves out extents that are formulas of dimensions.
    is_sequence = isinstance(main.body, relax.SeqExpr)
    result = main.body.body.ty if is_sequence else main.ret_ty
    imported = describe(module, params, result, described, (inputs, outputs))
    names = {str(var.name) for var in known}
    ranges = ranges_in(main).items()
    return replace(
        imported,
        dimensions={
            text: ends for text, ends in ranges if names.issuperset(formula_of(text).names)
        },
    )


def _described(symbols: Symbols, known: Sequence[tirx.Var], type_: object) -> TensorType:
    """Return shape and dtype of a type, if the sizes of its dimensions are `known`."""
    shape, dtype = symbols.tensor_type(type_)
    if shape is None or not set(relax.analysis.tir_vars_in_type(type_)) <= set(known):
        return None, dtype
    return tuple(str(each) if isinstance(each, Dim) else each for each in shape), dtype
