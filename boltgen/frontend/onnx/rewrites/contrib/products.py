"""Rewrite matmuls and convolutions of com.microsoft, which ONNX Runtime fuses with their
neighbours.

Source: ONNX Runtime, docs/ContribOperators.md. They become the standard operators that they stand
for, so that boltgen's own fusion sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites

_CONVOLVED = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOLED = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
_WHY = "it is written as the standard operators that it fuses"
# Activations by name, with the attributes that their parameters become, in order, and defaults.
_ACTIVATIONS: Mapping[str, Mapping[str, float]] = {
    **{name: {} for name in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish")},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}


def activated(build: Builder, x: str, name: str, parameters: list[float]) -> str:
    """The activation of a fused operator.

    Raises:
        UnsupportedError: its name is not known.
    """
    if not name:
        return x
    dtype = build.dtype().type
    if name == "Clip" and len(parameters) == 2:
        return build.Clip(x, *map(dtype, parameters))
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"activation {name!r}", "export it without the fused activation")
    own = _ACTIVATIONS[name]
    given = dict(own) | dict(zip(own, parameters, strict=False))
    return build.many(name, [x], 1, **given)[0]


def _oriented(build: Builder, place: int, *, swaps: bool, batch: bool) -> str:
    """Transpose an operand: swap its last two axes, or move its first axis behind a batch axis."""
    name = build.operand(place)
    if not swaps and not batch:
        return name
    axes = list(range(len(build.extents(place))))
    if len(axes) < 2:
        return name
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if swaps:
        axes[-2:] = axes[:-3:-1]
    return build.Transpose(name, perm=axes) if axes != sorted(axes) else name


@rewrites(
    *("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul"),
    "com.microsoft.FusedMatMulActivation",
    why=_WHY,
)
def matmul(build: Builder) -> str:
    """A product of operands that may be transposed, times a number, and an activation of it."""
    left, right = (
        _oriented(
            build,
            place,
            swaps=bool(build.get(f"trans{side}", 0)),
            batch=bool(build.get(f"transBatch{side}", 0)),
        )
        for place, side in enumerate("AB")
    )
    result, alpha = build.MatMul(left, right), build.get("alpha", 1.0)
    if alpha != 1:
        result = build.Mul(result, build.dtype().type(alpha))
    name = build.get("activation", "")
    keys = ("activation_alpha", "activation_beta", "activation_gamma")
    if name == "Softmax":
        return build.Softmax(result, axis=build.get("activation_axis", -1))
    return activated(build, result, name, [build.get(key) for key in keys if build.get(key)])


@rewrites("com.microsoft.FusedGemm", why=_WHY)
def gemm(build: Builder) -> str:
    """A Gemm, and an activation of it."""
    keys = ("alpha", "beta", "transA", "transB")
    result = build.Gemm(*build.node.input, **{key: build.get(key) for key in keys})
    given = [build.get(f"activation_{key}") for key in ("alpha", "beta", "gamma")]
    parameters = [each for each in given if each is not None]
    return activated(build, result, build.get("activation", ""), parameters)


@rewrites("com.microsoft.GemmFastGelu", why=_WHY)
def gemm_gelu(build: Builder) -> str:
    """A product, a bias, and Gelu by its tangent."""
    product = build.MatMul(build.x, build.operand(1))
    return build.many("FastGelu", [product, build.operand(2)], 1, domain="com.microsoft")[0]


@rewrites(
    "com.microsoft.FusedConv", "com.microsoft.NhwcConv", "com.microsoft.NhwcFusedConv", why=_WHY
)
def convolution(build: Builder) -> str:
    """A convolution, a tensor that is added to it, and an activation of both.

    The operators that begin with Nhwc have the channels of their tensors last; their filters keep
    the usual layout.
    """
    is_last = build.node.op_type.startswith("Nhwc")
    x, *weights = build.node.input[:3]
    given = {key: build.get(key) for key in _CONVOLVED}
    result = build.Conv(_channels_first(build, x) if is_last else x, *weights, **given)
    if added := build.operand(3):
        result = build.Add(result, _channels_first(build, added) if is_last else added)
    parameters = list(build.get("activation_params") or [])
    result = activated(build, result, build.get("activation", ""), parameters)
    return _channels_last(build, result) if is_last else result


@rewrites("com.microsoft.NhwcMaxPool", why=_WHY)
def pool(build: Builder) -> str:
    """A pool of an image whose channels are last."""
    given = {key: build.get(key) for key in _POOLED}
    return _channels_last(build, build.MaxPool(_channels_first(build, build.x), **given))


def _channels_first(build: Builder, name: str) -> str:
    rank = len(build.extents())
    return build.Transpose(name, perm=[0, rank - 1, *range(1, rank - 1)])


def _channels_last(build: Builder, name: str) -> str:
    rank = len(build.extents())
    return build.Transpose(name, perm=[0, *range(2, rank), 1])


@rewrites("com.microsoft.ConvTransposeWithDynamicPads", why=_WHY)
def transposed(build: Builder) -> str:
    """A transposed convolution whose padding is an operand, which must be a constant.

    Raises:
        UnsupportedError: it is none.
    """
    pads = build.known(2) if build.operand(2) else np.zeros(0, np.int64)
    if pads is None:
        raise UnsupportedError("pads that are computed", "make them a constant")
    keys = ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides")
    given: dict[str, Any] = {key: build.get(key) for key in keys}
    given["pads"] = [int(each) for each in pads] or None
    return build.ConvTranspose(build.x, build.operand(1), build.operand(3), **given)
