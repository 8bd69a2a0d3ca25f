"""Small models of each of the protocol's types that boltgen takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

WIDTH, MOST, LONGEST = 16, 8, 4
_ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, seq, 16] x) => (float[batch, seq, 16] y) {
  a = MatMul (x, w)
  y = Relu (a)
}
"""
# What is computed of one row depends on all of them.
_MIXED = """
<ir_version: 8, opset_import: ["" : 17]>
mixed (float[batch, 16] x) => (float[batch, 16] y) {
  a = MatMul (x, w)
  top = ReduceMax <axes = [0], keepdims = 1> (a)
  y = Sub (a, top)
}
"""
_HALF = """
<ir_version: 8, opset_import: ["" : 17]>
half (float16[4, 16] x) => (float16[4, 16] y) {
  y = MatMul (x, w)
}
"""
_BRAIN = """
<ir_version: 8, opset_import: ["" : 17]>
brain (bfloat16[4, 16] x) => (bfloat16[4, 16] y) {
  y = Add (x, x)
}
"""
_WHOLE = """
<ir_version: 8, opset_import: ["" : 17]>
whole (int32[4] a, int64[4] b) => (int32[4] c, int64[4] d) {
  c = Add (a, a)
  d = Add (b, b)
}
"""


@dataclass(frozen=True)
class Model:
    """A model as text, the type of its weights, its open sizes, and the choice of `io`."""

    text: str
    weights: np.dtype | None = None
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    io: str = "model"


MODELS = {
    "rows": Model(_ROWS, np.dtype(np.float32), {"x": (f"1..{MOST}", f"1..{LONGEST}", WIDTH)}),
    "mixed": Model(_MIXED, np.dtype(np.float32), {"x": (f"1..{MOST}", WIDTH)}),
    "half": Model(_HALF, np.dtype(np.float16)),
    "brain": Model(_BRAIN),
    "whole": Model(_WHOLE),
    "narrow": Model(_MIXED, np.dtype(np.float32), {"x": (4, WIDTH)}, io="half"),
}
NUMPY = {
    "FP32": np.dtype(np.float32),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
}


def save(path: Path, model: Model) -> Path:
    """Write a model with weights that keep the variance of what they multiply."""
    proto = onnx.parser.parse_model(model.text)
    if model.weights is not None:
        weights = np.random.default_rng(0).normal(0, WIDTH**-0.5, (WIDTH, WIDTH))
        proto.graph.initializer.append(numpy_helper.from_array(weights.astype(model.weights), "w"))
    onnx.save(proto, path)
    return path
