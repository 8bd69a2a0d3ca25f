"""Rewrites of operators of com.microsoft. Importing this enters all of them."""

from boltgen.frontend.onnx.rewrites.contrib import (  # noqa: F401
    attention,
    elementwise,
    grouped_attention,
    norms,
    products,
    quantised,
    rotary,
)
