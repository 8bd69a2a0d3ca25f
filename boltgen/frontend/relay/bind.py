"""Bind a user's parameters to a module, and infer all types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relay

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import require_main
from boltgen.frontend.relay.operators import dtype_of, shape_of
from boltgen.passes.weights.checks import refuse_nan

# By name: TVM's arrays or numpy's.
Parameters: TypeAlias = Mapping[str, Any]


def bind(
    module: tvm.IRModule, params: Parameters, *, allow_nonfinite: bool = False
) -> tvm.IRModule:
    """Return `module` with `params` as constants in its function `main`, and with all types
    inferred.

    Raises:
        ModelImportError: there is no `main`, `params` are not its parameters, or types cannot be
            inferred.
    """
    require_main(module, relay.Function, "Relay")
    main = module["main"]
    arrays = {name: _array(value) for name, value in params.items()}
    _check(main, arrays, allow_nonfinite=allow_nonfinite)
    bound = tvm.IRModule(dict(module.functions.items()), module.type_definitions)
    if arrays:
        constants = {name: tvm.nd.array(array) for name, array in arrays.items()}
        bound["main"] = relay.build_module.bind_params_by_name(main, constants)
    return _typed(bound)


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _check(
    main: relay.Function, arrays: Mapping[str, np.ndarray[Any, Any]], *, allow_nonfinite: bool
) -> None:
    variables = {param.name_hint: param for param in main.params}
    for name, array in arrays.items():
        if name not in variables:
            raise ModelImportError(
                f"params has {name!r}, which main does not take; it takes "
                f"{', '.join(map(repr, variables)) or 'nothing'}"
            )
        type_ = variables[name].type_annotation
        shape, dtype = shape_of(type_), dtype_of(type_)
        if shape is not None and not _fits(array.shape, shape):
            raise ModelImportError(
                f"params[{name!r}] has shape {array.shape}, main declares {shape}"
            )
        if dtype and str(array.dtype) != dtype:
            raise ModelImportError(
                f"params[{name!r}] has dtype {array.dtype}, main declares {dtype}"
            )
        if not allow_nonfinite and array.dtype.kind == "f":
            refuse_nan(f"parameter {name!r}", array)


def _fits(shape: tuple[int, ...], declared: tuple[int | str, ...]) -> bool:
    return len(shape) == len(declared) and all(
        isinstance(want, str) or have == want for have, want in zip(shape, declared, strict=True)
    )


def _typed(module: tvm.IRModule) -> tvm.IRModule:
    try:
        typed = relay.transform.InferType()(module)
        for param in typed["main"].params:
            if not isinstance(param.checked_type, (tvm.ir.TensorType, tvm.ir.TupleType)):
                raise ModelImportError(
                    f"the type of main's parameter {param.name_hint!r} is not known: give it one, "
                    "relay.var(name, shape=..., dtype=...)"
                )
    except ModelImportError:
        raise
    except Exception as error:  # TVM's diagnostics, and what its checks raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelImportError(
            "TVM cannot infer the module's types; give every parameter a shape and a dtype, and "
            "every function that another one calls a result type (relay.Function(params, body, "
            "ret_type)), and check that operators' shapes fit together: "
            f"{lines[-1] if lines else error}"
        ) from error
    return typed
