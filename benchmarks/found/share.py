"""How much of a model's work boltgen's kernels do: FLOPs of products, its own against all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tvm

from boltgen.ir.region import AnyRegion, ChainRegion

_CONVOLUTIONS = {"nn.conv1d", "nn.conv2d", "nn.conv3d"}
_TRANSPOSED = {"nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"}
_MATRIX_PRODUCTS = {"matmul", "nn.matmul", "nn.dense", "nn.batch_matmul"}


def share_of_flops(module: Any, regions: Sequence[AnyRegion]) -> tuple[float, int, int]:
    """(FLOPs in regions / FLOPs of all products, FLOPs of all products, products).

    `module` is as imported, of Relax or Relay, all sizes known. The share is 1 where it has no
    product. In the branches of an If all products count.
    """
    counts = list(_product_flops(module))
    offloaded = sum(map(_region_flops, regions))
    return (offloaded / sum(counts) if counts else 1.0), sum(counts), len(counts)


def _region_flops(region: AnyRegion) -> int:
    if isinstance(region, ChainRegion):
        return sum(layer.problem.flops for layer in region.chain.layers)
    return region.problem.flops


def _product_flops(module: Any) -> Iterator[int]:
    """FLOPs of each product; a multiplication and an addition are two.

    Each element of a convolution's filter is used once at each position of the output, or, where
    it is transposed, of the input. A filter's first extent is the channels of that side, so that
    groups need no case of their own.
    """
    for call in _operator_calls(module):
        name = call.op.name.removeprefix("relax.")
        if name in _CONVOLUTIONS:
            weight = _shape(call.args[1])
            yield 2 * math.prod(_shape(call)) * math.prod(weight[1:])
        elif name in _TRANSPOSED:
            weight = _shape(call.args[1])
            yield 2 * math.prod(_shape(call.args[0])) * math.prod(weight[1:])
        elif name in _MATRIX_PRODUCTS:
            yield 2 * math.prod(_shape(call)) * _shape(call.args[0])[-1]


def _operator_calls(module: Any) -> list[Any]:
    if hasattr(tvm, "relay"):
        from tvm.relay.analysis import post_order_visit  # noqa: PLC0415
    else:
        from tvm.relax.analysis import post_order_visit  # noqa: PLC0415
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(getattr(expr, "op", None), tvm.ir.Op):
            found.append(expr)

    for function in module.functions.values():
        post_order_visit(function, visit)
    return found


def _shape(expr: Any) -> tuple[int, ...]:
    """The shape of a Relax or a Relay expression.

    Raises:
        ValueError: it is not known before the model runs.
    """
    type_ = expr.checked_type if hasattr(tvm, "relay") else expr.ty
    shape = getattr(type_.shape, "values", type_.shape)
    if shape is None:
        raise ValueError(f"a product has a shape that is not known: {expr}")
    return tuple(int(extent) for extent in shape)
