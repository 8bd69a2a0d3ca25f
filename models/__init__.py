"""Model builders for tests and benchmarks: real shapes, random weights, no downloads.

`build("resnet50", batch=32)` returns an ONNX model; `models.digits` is a small trained one.
"""

from models.onnx_graph import parameter_count
from models.registry import MODELS, build

__all__ = ["MODELS", "build", "parameter_count"]
