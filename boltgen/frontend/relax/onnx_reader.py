"""Import an ONNX model to a Relax module."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any

import tvm

from boltgen.frontend.onnx import (
    Importer,
    Prepared,
    Shapes,
    import_failure,
    prepare,
    relax_importer,
)
from boltgen.frontend.relax import narrow_floats, recurrent
from boltgen.frontend.relax.plain_clips import write_plain_clips

_CONVERTERS = {**recurrent.CONVERTERS, **narrow_floats.CONVERTERS}


def import_onnx(
    model: Any, shapes: Shapes, *, allow_nonfinite: bool
) -> tuple[tvm.IRModule, Prepared]:
    """A ModelProto as a Relax module whose weights are constants, and what was rewritten first.

    Raises:
        ModelImportError: an operator, a dimension or a weight is one that cannot be imported.
    """
    importer = converter()
    prepared = prepare(model, shapes, importer, allow_nonfinite=allow_nonfinite)
    module = _from_onnx(prepared.model, importer)
    return write_plain_clips(module), prepared


def converter() -> Importer:
    """Return the operators that TVM's converter to Relax takes."""
    from tvm.relax.frontend.onnx import onnx_frontend  # noqa: PLC0415

    known = {*onnx_frontend._get_convert_map(), *_CONVERTERS, "If", "Constant"}
    return relax_importer(frozenset(known))


@contextlib.contextmanager
def _with_converters() -> Iterator[None]:
    """Add `_CONVERTERS` to the operators of TVM's converter, which has no way to do so itself."""
    from tvm.relax.frontend.onnx import onnx_frontend  # noqa: PLC0415

    known = onnx_frontend._get_convert_map
    onnx_frontend._get_convert_map = lambda: {**known(), **_CONVERTERS}
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = known


def _from_onnx(model: Any, importer: Importer) -> tvm.IRModule:
    from tvm.relax.frontend.onnx import from_onnx  # noqa: PLC0415

    printed = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(printed),
            warnings.catch_warnings(),
            _with_converters(),
        ):
            warnings.simplefilter("ignore")  # about renamed inputs: the metadata keeps their names
            return from_onnx(model, keep_params_in_input=False)
    except Exception as error:  # TVM's converters raise whatever they please
        found = re.search(r"Error converting operator (\w+)", printed.getvalue())
        operator = found[1] if found else ""
        raise import_failure(model, operator, error, importer.other) from error
