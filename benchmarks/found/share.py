"""How much of a model's work boltgen's kernels do: FLOPs of products, its own against all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from boltgen.ir.region import AnyRegion, ChainRegion

_CONVOLUTIONS = {"nn.conv1d", "nn.conv2d", "nn.conv3d"}
_TRANSPOSED = {"nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"}
_MATRIX_PRODUCTS = {"matmul", "nn.matmul", "nn.dense", "nn.batch_matmul"}


@dataclass(frozen=True, slots=True)
class Share:
    """A model's products, and how much of their FLOPs is in regions.

    `unsized` products have shapes that are not known before the model runs: their FLOPs are not
    counted. `of_flops` is 1 where there is no product, and 0 where no product has a size.
    """

    products: int
    unsized: int
    flops: int
    of_flops: float


def share_of(module: Any, regions: Sequence[AnyRegion]) -> Share:
    """What of `module`, as imported by Relax or Relay, is in the regions carved out of it.

    In the branches of an If all products count.
    """
    counts = list(_product_flops(module))
    flops = sum(count for count in counts if count is not None)
    offloaded = sum(map(_region_flops, regions))
    return Share(
        products=len(counts),
        unsized=counts.count(None),
        flops=flops,
        of_flops=offloaded / flops if flops else float(not counts),
    )


def _region_flops(region: AnyRegion) -> int:
    if isinstance(region, ChainRegion):
        return sum(layer.problem.flops for layer in region.chain.layers)
    return region.problem.flops


def _product_flops(module: Any) -> Iterator[int | None]:
    """FLOPs of each product, None where a size is not known.

    A multiplication and an addition are two.

    Each element of a convolution's filter is used once at each position of the output, or, where
    it is transposed, of the input. A filter's first extent is the channels of that side, so that
    groups need no case of their own.
    """
    for call in _operator_calls(module):
        name = call.op.name.removeprefix("relax.")
        if name not in _CONVOLUTIONS | _TRANSPOSED | _MATRIX_PRODUCTS:
            continue
        result, a, b = (_shape(expr) for expr in (call, *call.args[:2]))
        if result is None or a is None or b is None:
            yield None
        elif name in _CONVOLUTIONS:
            yield 2 * math.prod(result) * math.prod(b[1:])
        elif name in _TRANSPOSED:
            yield 2 * math.prod(a) * math.prod(b[1:])
        else:
            yield 2 * math.prod(result) * a[-1]


def _operator_calls(module: Any) -> list[Any]:
    if hasattr(tvm, "relay"):
        from tvm import relay as dialect  # noqa: PLC0415
    else:
        from tvm import relax as dialect  # noqa: PLC0415
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(getattr(expr, "op", None), tvm.ir.Op):
            found.append(expr)

    for function in module.functions.values():
        if isinstance(function, dialect.Function):
            dialect.analysis.post_order_visit(function, visit)
    return found


def _shape(expr: Any) -> tuple[int, ...] | None:
    """The shape of a Relax or a Relay expression; None where it is not known."""
    type_ = expr.checked_type if hasattr(tvm, "relay") else expr.ty
    extents = getattr(type_.shape, "values", type_.shape)
    # A size that is known has a value, or is a number itself.
    sizes = [getattr(extent, "value", extent) for extent in extents or ()]
    is_known = extents is not None and all(isinstance(size, int) for size in sizes)
    return tuple(sizes) if is_known else None
