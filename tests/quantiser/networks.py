"""Small ONNX networks to quantise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

Arrays = dict[str, np.ndarray[Any, Any]]


def written(path: Path, text: str, arrays: Arrays) -> Path:
    """Write a network in ONNX's text form, with constants of those arrays' names."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}')
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Return normally distributed FP32 numbers."""
    random = np.random.default_rng(seed)
    return (scale * random.standard_normal(shape)).astype(np.float32)


def mlp(path: Path, width: int = 64, rows: int = 8, outlier: float = 30.0) -> Path:
    """x: (rows, width), normalised with one large factor, then two matmuls with a ReLU between."""
    gamma = np.ones(width, np.float32)
    gamma[3] = outlier
    return written(
        path,
        f"""mlp (float[{rows}, {width}] x) => (float[{rows}, {width}] y) {{
            n = LayerNormalization <axis = -1> (x, gamma, beta)
            h = MatMul (n, w0)
            b = Add (h, b0)
            g = Relu (b)
            y = MatMul (g, w1)
        }}""",
        {
            "gamma": gamma,
            "beta": drawn(width, seed=1, scale=0.1),
            "w0": drawn(width, 4 * width, seed=2, scale=0.1),
            "b0": drawn(4 * width, seed=3, scale=0.1),
            "w1": drawn(4 * width, width, seed=4, scale=0.1),
        },
    )


def residual_block(path: Path, channels: int = 32) -> Path:
    """x: (2, channels, 12, 12) to the same; two convolutions, the second with a residual."""
    return written(
        path,
        f"""block (float[2, {channels}, 12, 12] x) => (float[2, {channels}, 12, 12] y) {{
            r0 = Relu (x)
            c0 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r0, w0, b0)
            r1 = Relu (c0)
            c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r1, w1)
            s = Add (c1, r0)
            y = Relu (s)
        }}""",
        {
            "w0": drawn(channels, channels, 3, 3, seed=1, scale=0.1),
            "b0": drawn(channels, seed=2, scale=0.1),
            "w1": drawn(channels, channels, 3, 3, seed=3, scale=0.1),
        },
    )
