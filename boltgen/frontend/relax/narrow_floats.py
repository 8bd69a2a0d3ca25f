"""Bring quantisations to floats of 8 bits through TVM's ONNX converter.

TVM 0.27 has the operators, whose zero point is FP16 then; its converter passes ONNX's, of the type
itself, and fails. A zero point is 0 here: others are refused before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from boltgen.ir.dtypes import FLOAT8


class _Converter:
    """A converter of TVM's in which a zero point of 8 bits is one of FP16."""

    def __init__(self, node: str) -> None:
        self.node = node

    def get_converter(self, opset: int) -> Any:
        """Return the function of an operator set, as TVM's converter asks for it."""
        from tvm.relax.frontend.onnx import onnx_frontend  # noqa: PLC0415

        known = getattr(onnx_frontend, self.node).get_converter(opset)

        def convert(
            bb: relax.BlockBuilder,
            inputs: Sequence[Any],
            attr: Mapping[str, Any],
            params: Any,
        ) -> ir.Expr:
            zero = inputs[2] if len(inputs) > 2 else None
            if zero is None or str(zero.ty.dtype.dtype) not in FLOAT8:
                return known(bb, inputs, attr, params)
            of_zero = relax.const(np.zeros((), np.float16))
            if self.node == "QuantizeLinear":
                dtype = str(zero.ty.dtype.dtype)
                return relax.op.quantize(*inputs[:2], of_zero, axis=0, out_dtype=dtype)
            axis = attr.get("axis", 1) if inputs[1].ty.ndim else 0
            wide = str(inputs[1].ty.dtype.dtype)
            return relax.op.dequantize(*inputs[:2], of_zero, axis=axis, out_dtype=wide)

        return convert


CONVERTERS = {node: _Converter(node) for node in ("QuantizeLinear", "DequantizeLinear")}
