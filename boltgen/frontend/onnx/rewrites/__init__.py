"""Rewritings of ONNX operators into others, by operator. Importing this enters all of them."""

from boltgen.frontend.onnx.rewrites import (
    arithmetic,
    contraction,
    detection,
    legacy,
    normalisation,
    quantisation,
    recurrent,
    resampling,
    windows,
)
from boltgen.frontend.onnx.rewrites.registry import RULES, Rule, UnsupportedError

__all__ = [
    "RULES",
    "Rule",
    "UnsupportedError",
    "arithmetic",
    "contraction",
    "detection",
    "legacy",
    "normalisation",
    "quantisation",
    "recurrent",
    "resampling",
    "windows",
]
