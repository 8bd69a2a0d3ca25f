"""Rewrites of ONNX operators into others, by operator. Importing this enters all of them."""

from boltgen.frontend.onnx.rewrites import (  # noqa: F401
    arithmetic,
    contraction,
    contrib,
    detection,
    indexing,
    legacy,
    normalisation,
    quantisation,
    quantised_weights,
    recurrent,
    resampling,
    windows,
)
from boltgen.frontend.onnx.rewrites.registry import RULES

__all__ = ["RULES"]
