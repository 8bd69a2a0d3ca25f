"""From a model as users have it to a Relay module and the names of its inputs and outputs."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, describe, first_line
from boltgen.frontend.onnx_file import (
    Shapes,
    check_operators,
    check_weights,
    fixed_shapes,
    graph_inputs,
    import_failure,
    read_onnx,
)
from boltgen.frontend.relay.bind import bind
from boltgen.frontend.relay.operators import tensor_type


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
    if isinstance(source, (str, Path)):
        source = read_onnx(Path(source))
    if isinstance(source, tvm.IRModule):
        return _import_relay(source, fixed, allow_nonfinite=allow_nonfinite)
    if type(source).__name__ == "ModelProto":
        return _import_onnx(source, fixed, allow_nonfinite=allow_nonfinite)
    if type(source).__module__.startswith("torch."):
        return _import_torch(source, fixed, allow_nonfinite=allow_nonfinite)
    raise ModelImportError(
        f"a {type(source).__module__}.{type(source).__qualname__} is no model that boltgen knows; "
        "pass an ONNX file or ModelProto, a traced PyTorch module, or a Relay IRModule"
    )


def _import_onnx(model: Any, shapes: Shapes, *, allow_nonfinite: bool) -> ImportedModel:
    from tvm.relay.frontend import onnx as frontend  # noqa: PLC0415

    opset = max(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
    check_operators(
        model, {*frontend._get_convert_map(opset), *frontend._identity_list, "Constant"}
    )
    fixed = fixed_shapes(model, shapes)
    if not allow_nonfinite:
        check_weights(model)
    try:
        with _quietly():
            module, params = relay.frontend.from_onnx(model, shape=fixed, freeze_params=True)
    except Exception as error:  # TVM's converters raise whatever they please
        raise import_failure(model, "", error) from error
    typed = bind(module, params, allow_nonfinite=allow_nonfinite)
    inputs = [value.name for value in graph_inputs(model)]
    return _describe(typed, inputs, [value.name for value in model.graph.output])


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
    """Keeps what converters print and warn of to themselves."""
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
    function = module["main"]
    result = function.checked_type.ret_type
    results = list(result.fields) if isinstance(result, relay.TupleType) else [result]
    params = [tensor_type(param.checked_type) for param in function.params]
    return describe(
        module, list(zip(inputs, params, strict=True)), [*map(tensor_type, results)], outputs
    )
