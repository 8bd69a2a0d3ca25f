"""Compose resizing and pooling of torch.export programs that TVM 0.27's importer gets wrong."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.torch.types import Converter


def compositions() -> Mapping[Any, Callable[..., Any]]:
    """Return the compositions of resizes that TVM's `resize2d` computes otherwise than PyTorch."""
    import torch  # noqa: PLC0415

    aten = torch.ops.aten
    return {
        aten.upsample_nearest2d.vec: _nearest,
        aten.upsample_bilinear2d.vec: _bilinear,
    }


def _own_decomposition(operator_: Any) -> Callable[..., Any]:
    from torch._decomp import get_decompositions  # noqa: PLC0415

    own: Callable[..., Any] = get_decompositions([operator_])[operator_]
    return own


def _nearest(x: Any, output_size: Sequence[int] | None, scales: Sequence[float] | None) -> Any:
    """Resize to the nearest: PyTorch takes the pixel at or before a place, TVM the nearest to its
    centre.

    Both agree if each pixel is repeated.
    """
    import torch  # noqa: PLC0415

    extents, aten = x.shape[-2:], torch.ops.aten
    if scales is not None and all(scale == int(scale) >= 1 for scale in scales):
        if all(isinstance(extent, int) for extent in extents):
            return NotImplemented
        rows, columns = map(int, scales)
        height, width = extents
        grown = x[..., :, None, :, None].expand(-1, -1, -1, rows, -1, columns)
        return grown.reshape(*x.shape[:2], height * rows, width * columns)
    if output_size is not None and all(
        isinstance(size, int) and isinstance(extent, int) and size % extent == 0
        for size, extent in zip(output_size, extents, strict=True)
    ):
        return NotImplemented
    return _own_decomposition(aten.upsample_nearest2d.vec)(x, output_size, scales)


def _bilinear(
    x: Any,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> Any:
    """Resize by bilinear weights: PyTorch's places follow the given scale, TVM's the resulting
    sizes.
    """
    import torch  # noqa: PLC0415

    extents = x.shape[-2:]
    if scales is None or align_corners or not all(isinstance(extent, int) for extent in extents):
        return NotImplemented
    made = [extent * scale for extent, scale in zip(extents, scales, strict=True)]
    if all(size == int(size) for size in made):
        return NotImplemented
    own = _own_decomposition(torch.ops.aten.upsample_bilinear2d.vec)
    return own(x, output_size, align_corners, scales)


def _smoothed(node: Any, importer: Any) -> relax.Expr:
    """`_upsample_bilinear2d_aa`, which is a plain resize unless an extent shrinks.

    Raises:
        ModelImportError: something is, which TVM's importer would not smooth.
    """
    x, size = importer.env[node.args[0]], node.args[1]
    extents = list(importer.shape_of(x))[-2:]
    if any(int(made) < int(extent) for made, extent in zip(size, extents, strict=True)):
        raise ModelImportError(
            f"{node.name!r} of the torch.export program makes an image smaller with "
            "antialias=True, which boltgen has not: interpolate with antialias=False, or before "
            "the model"
        )
    return importer._upsample_bilinear2d_aa(node)


def _sampled(node: Any, importer: Any) -> relax.Expr:
    """`grid_sampler_2d`: (x, grid, ...) with a grid (N, H, W, 2); TVM's grid is (N, 2, H, W)."""
    x, grid, *rest = importer.retrieve_args(node)
    mode, padding, is_aligned = rest + [0, 0, False][len(rest) :]
    emit = importer.block_builder.emit
    return emit(
        relax.op.image.grid_sample(
            x,
            emit(relax.op.permute_dims(grid, [0, 3, 1, 2])),
            method=("bilinear", "nearest", "bicubic")[mode],
            layout="NCHW",
            padding_mode=("zeros", "border", "reflection")[padding],
            align_corners=is_aligned,
        )
    )


def _averaged(convert: str) -> Converter:
    """`avg_pool2d` and `avg_pool3d`; TVM's importer drops a given divisor."""

    def converted(node: Any, importer: Any) -> relax.Expr:
        divisor = node.args[6] if len(node.args) > 6 else node.kwargs.get("divisor_override")
        if divisor is not None:
            raise ModelImportError(
                f"{node.name!r} of the torch.export program pools with divisor_override={divisor}, "
                "which boltgen has not: multiply the average by the pool's size over the divisor"
            )
        return getattr(importer, convert)(node)

    return converted


def _greatest(convert: str) -> Converter:
    """`max_pool2d_with_indices` and its kin; TVM's own operator returns zeros as places."""

    def converted(node: Any, importer: Any) -> relax.Expr:
        _refuse_places(node)
        return getattr(importer, convert)(node)

    return converted


def _refuse_places(node: Any) -> None:
    if any(user.target is not operator.getitem or user.args[1] == 1 for user in node.users):
        raise ModelImportError(
            f"{node.name!r} of the torch.export program returns the places of a pool's greatest "
            "numbers, which boltgen has not: pool with return_indices=False"
        )


def _adapted(node: Any, importer: Any) -> relax.Expr:
    """`adaptive_max_pool2d`: (x, (height, width)), of a fixed size; it returns no places."""
    _refuse_places(node)
    x, sizes = importer.env[node.args[0]], node.args[1]
    emit = importer.block_builder.emit
    rank = len(importer.shape_of(x))
    for axis, size in zip((rank - 2, rank - 1), sizes, strict=True):
        extent = int(importer.shape_of(x)[axis])
        parts = []
        for place in range(size):
            begin, end = place * extent // size, -(-(place + 1) * extent // size)
            part = emit(relax.op.strided_slice(x, [axis], [begin], [end]))
            parts.append(emit(relax.op.max(part, axis, keepdims=True)))
        x = parts[0] if size == 1 else emit(relax.op.concat(parts, axis))
    return emit(relax.Tuple([x, relax.op.zeros_like(x)]))


CONVERTERS: Mapping[str, Converter] = {
    "_upsample_bilinear2d_aa.default": _smoothed,
    "adaptive_max_pool2d.default": _adapted,
    "avg_pool2d.default": _averaged("_avg_pool2d"),
    "avg_pool3d.default": _averaged("_avg_pool3d"),
    "grid_sampler_2d.default": _sampled,
    "max_pool2d_with_indices.default": _greatest("_max_pool2d_with_indices"),
    "max_pool3d_with_indices.default": _greatest("_max_pool3d_with_indices"),
}
