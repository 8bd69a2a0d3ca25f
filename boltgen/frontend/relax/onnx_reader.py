"""From an ONNX model to a Relax module."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from typing import Any

import tvm

from boltgen.frontend.onnx_file import (
    Shapes,
    check_operators,
    check_weights,
    fixed_shapes,
    import_failure,
)


def import_onnx(model: Any, shapes: Shapes, *, allow_nonfinite: bool) -> tvm.IRModule:
    """A ModelProto as a Relax module whose weights are constants.

    Raises:
        ModelImportError: an operator, a dimension or a weight is one that cannot be imported.
    """
    from tvm.relax.frontend.onnx import onnx_frontend  # noqa: PLC0415

    check_operators(model, {*onnx_frontend._get_convert_map(), "If", "Constant"})
    fixed = fixed_shapes(model, shapes)
    if not allow_nonfinite:
        check_weights(model)
    return _from_onnx(model, fixed)


def _from_onnx(model: Any, shapes: Shapes) -> tvm.IRModule:
    from tvm.relax.frontend.onnx import from_onnx  # noqa: PLC0415

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of renamed inputs: the metadata keeps their names
            return from_onnx(model, shape_dict=dict(shapes), keep_params_in_input=False)
    except Exception as error:  # TVM's converters raise whatever they please
        found = re.search(r"Error converting operator (\w+)", printed.getvalue())
        raise import_failure(model, found[1] if found else "", error) from error
