"""Import a user's model to a Relay module with the names of its inputs and outputs."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, describe, first_line
from boltgen.frontend.onnx import (
    Shapes,
    graph_inputs,
    import_failure,
    naming,
    prepare,
    read_onnx,
    relay_importer,
)
from boltgen.frontend.relay.bind import bind
from boltgen.frontend.relay.operators import tensor_type

# The operator set whose converters are listed; Relay's importer has none that is newer.
NEWEST = 20


def import_model(
    source: object, *, shapes: Shapes | None = None, allow_nonfinite: bool = False
) -> ImportedModel:
    """Import a model, its weights as constants, with a fixed shape for every input.

    `source` is the path of an ONNX file, an ONNX ModelProto, a traced PyTorch module (then `shapes`
    has its inputs, in order), or a Relay module.

    Raises:
        ModelImportError: the model cannot be read or imported; the message says why, and what to
            do.
    """
    fixed = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    for name, shape in fixed.items():
        if any(isinstance(extent, str) for extent in shape):
            raise ModelImportError(
                f"the shape ({', '.join(map(str, shape))}) given for input {name!r} leaves a "
                "dimension open, which the Relay frontend has no kernels for: give a number, or "
                "take the frontend relax"
            )
    path = Path(source) if isinstance(source, (str, Path)) else None
    if path is not None:
        source = read_onnx(path)
    if isinstance(source, tvm.IRModule):
        return _import_relay(source, fixed, allow_nonfinite=allow_nonfinite)
    if type(source).__name__ == "ModelProto":
        with naming(path):
            return _import_onnx(source, fixed, allow_nonfinite=allow_nonfinite)
    if type(source).__module__.startswith("torch."):
        return _import_torch(source, fixed, allow_nonfinite=allow_nonfinite)
    raise ModelImportError(
        f"a {type(source).__module__}.{type(source).__qualname__} is no model that boltgen knows; "
        "pass an ONNX file or ModelProto, a traced PyTorch module, or a Relay IRModule"
    )


def _import_onnx(model: Any, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    from tvm.relay.frontend import onnx as frontend  # noqa: PLC0415

    importer = relay_importer(
        frozenset({*frontend._get_convert_map(NEWEST), *frontend._identity_list, "Constant"})
    )
    prepared = prepare(model, shapes, importer, allow_nonfinite=allow_nonfinite)
    fixed = {
        name: shape
        for name, shape in prepared.shapes.items()
        if all(isinstance(extent, int) for extent in shape)
    }
    try:
        with _quietly():
            module, params = relay.frontend.from_onnx(
                prepared.model, shape=fixed, freeze_params=True
            )
    except Exception as error:  # TVM's converters raise whatever they please
        raise import_failure(prepared.model, "", error) from error
    typed = bind(module, params, allow_nonfinite=allow_nonfinite)
    inputs = [value.name for value in graph_inputs(model)]
    imported = _describe(typed, inputs, [value.name for value in model.graph.output])
    return replace(imported, notes=prepared.notes)


def _import_torch(module: Any, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    if not shapes:
        raise ModelImportError(
            "a PyTorch module does not say what its inputs are: give shapes={'name': (1, 3, 224, "
            "224)}, one entry for each, in order"
        )
    try:
        with _quietly():
            imported, params = relay.frontend.from_pytorch(module, list(shapes.items()))
    except Exception as error:
        raise ModelImportError(
            f"TVM cannot import the PyTorch module: {first_line(error)}"
        ) from error
    return _describe(bind(imported, params, allow_nonfinite=allow_nonfinite), list(shapes), [])


@contextlib.contextmanager
def _quietly() -> Any:
    """Silence the prints and warnings of converters."""
    logger = logging.getLogger()
    level = logger.level
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def _import_relay(module: tvm.IRModule, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    if shapes:
        raise ModelImportError(
            "shapes are for models whose file leaves them open; a Relay module has its own: give "
            "its variables fixed shapes"
        )
    typed = bind(module, {}, allow_nonfinite=allow_nonfinite)
    return _describe(typed, [param.name_hint for param in typed["main"].params], [])


def _describe(module: tvm.IRModule, inputs: list[str], outputs: list[str]) -> ImportedModel:
    main = module["main"]
    params = [tensor_type(param.checked_type) for param in main.params]
    return describe(module, params, main.checked_type.ret_type, tensor_type, (inputs, outputs))
