"""Rewritings of ONNX operators into others, by operator. Importing this enters all of them."""

from boltgen.frontend.onnx.rewrites import (
    arithmetic,
    contraction,
    legacy,
    normalisation,
    quantisation,
    recurrent,
    windows,
)
from boltgen.frontend.onnx.rewrites.registry import RULES, Rule

__all__ = [
    "RULES",
    "Rule",
    "arithmetic",
    "contraction",
    "legacy",
    "normalisation",
    "quantisation",
    "recurrent",
    "windows",
]
