"""Refuse convolutions and pools whose numbers do not fit together, as ONNX and PyTorch do.

Source: ONNX's Operators.md, Conv, ConvTranspose, MaxPool; PyTorch's documentation of the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.scope import Scope, attribute, described

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
WINDOWED = _POOLS | {"Conv", "ConvTranspose"}
_AGAIN = "Correct the layer and export the model again"


def check_windows(node: Any, scope: Scope) -> None:
    """Check the attributes and the known extents of a convolution or a pool.

    Raises:
        ModelImportError: naming the node and the numbers.
    """
    if (complaint := next(_complaints(node, scope), None)) is not None:
        raise ModelImportError(f"{described(node)} {complaint}")


def _complaints(node: Any, scope: Scope) -> Iterator[str]:
    x = scope.extents(node.input[0])
    weights = None if node.op_type in _POOLS else scope.extents(node.input[1])
    for name in ("kernel_shape", "strides", "dilations"):
        if any(each < 1 for each in attribute(node, name, ())):
            yield f"has {name} {attribute(node, name)}; each must be at least 1. {_AGAIN}"
    if weights is not None:
        yield from _channel_complaints(node, x, weights)
    kernel = attribute(node, "kernel_shape") or (weights or ())[2:]
    if x is None or len(x) != len(kernel) + 2:
        return
    if 0 in x[2:]:
        yield f"reads images of {_shown(x[2:])} pixels. Give it at least 1 along each axis"
    known = [each for each in kernel if isinstance(each, int)]
    if len(known) == len(kernel):
        yield from _reach_complaints(node, x[2:], known)


def _channel_complaints(
    node: Any, x: Sequence[Any] | None, weights: Sequence[Any]
) -> Iterator[str]:
    """Complain of groups that do not divide the channels."""
    groups = attribute(node, "group", 1)
    if groups < 1:
        yield f"has group {groups}; it must be at least 1. {_AGAIN}"
    is_transposed = node.op_type == "ConvTranspose"
    known = [each for each in weights[:2] if isinstance(each, int)]
    if len(known) < 2:
        return
    read, made = (weights[0], weights[1] * groups) if is_transposed else weights[1::-1]
    if not is_transposed:
        read *= groups
    if is_transposed and read % groups:
        yield f"has group {groups}, which does not divide its {read} input channels. {_AGAIN}"
    if made % groups:
        yield f"has group {groups}, which does not divide its {made} output channels. {_AGAIN}"
    if x is not None and len(x) > 1 and isinstance(x[1], int) and x[1] != read:
        yield (
            f"has group {groups} and weights of shape {tuple(weights)}, which take {read} input "
            f"channels; its input has {x[1]}. {_AGAIN}"
        )


def _reach_complaints(node: Any, extents: Sequence[Any], kernel: Sequence[int]) -> Iterator[str]:
    """Complain of output padding that no window reaches, of windows that lie in the padding alone,
    and of windows that exceed the padded image.
    """
    rank, rule = len(kernel), attribute(node, "auto_pad", "NOTSET")
    strides, dilations = (attribute(node, key) or [1] * rank for key in ("strides", "dilations"))
    pads = attribute(node, "pads") or [0] * (2 * rank)
    reaches = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    if node.op_type == "ConvTranspose":
        extra = attribute(node, "output_padding") or [0] * rank
        limits = [max(pair) for pair in zip(strides, dilations, strict=True)]
        if any(more >= limit for more, limit in zip(extra, limits, strict=True)):
            yield (
                f"has output_padding {extra}, strides {strides} and dilations {dilations}; it must "
                f"be below the larger of the two. {_AGAIN}"
            )
    if rule.startswith("SAME") or node.op_type == "ConvTranspose":
        return
    if rule == "VALID":
        pads = [0] * (2 * rank)
    if node.op_type in _POOLS and any(
        pad >= reach for pad, reach in zip(pads, [*reaches, *reaches], strict=True)
    ):
        yield (
            f"has pads {pads} and a window of {_shown(reaches)} elements, dilation included; a "
            "window of padding alone has no result. Export the model with pads below the window"
        )
    for axis, extent in enumerate(extents):
        if not isinstance(extent, int):
            continue
        room = extent + pads[axis] + pads[rank + axis] - reaches[axis]
        if attribute(node, "ceil_mode", 0):
            room += strides[axis] - 1
        if room < 0:
            yield (
                f"has a window of {_shown(reaches)} elements, dilation included, which exceeds its "
                f"image of {_shown(extents)} with pads {pads}. Give the model larger images with "
                "--shape, or export it with more padding"
            )


def _shown(extents: Sequence[Any]) -> str:
    """Return `3 x 3`."""
    return " x ".join("?" if each is None else str(each) for each in extents)
