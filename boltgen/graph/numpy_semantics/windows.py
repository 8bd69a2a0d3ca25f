"""Operators of images that read windows of pixels, in NumPy: convolutions and pools.

Layouts are words of letters: N images, C channels, H and W pixels; O filters of I channels each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from boltgen.graph.attributes import (
    AdaptivePool,
    Convolution,
    MeanPool,
    Pool,
    TransposedConvolution,
)
from boltgen.graph.graph import Array

_PIXELS = "DHW"


def convolution(attrs: Convolution, x: Array, weight: Array) -> Array:
    """Convolve images with filters, in groups of channels, in the layouts that `attrs` name."""
    pixels = [letter for letter in _PIXELS if letter in attrs.data_layout]
    images = _laid(x, attrs.data_layout, ("N", "C", *pixels))
    filters = _laid(weight, attrs.kernel_layout, ("O", "I", *pixels))
    steps, dilation, padding, groups = attrs.strides, attrs.dilation, attrs.padding, attrs.groups
    size = [
        (extent - 1) * apart + 1 for extent, apart in zip(filters.shape[2:], dilation, strict=True)
    ]
    windows = _windows(_bordered(images, padding, 0.0), size, steps, dilation)
    n, c, *rest = windows.shape
    apart = windows.reshape(n, groups, c // groups, *rest)
    of_groups = filters.reshape(groups, len(filters) // groups, *filters.shape[1:])
    k = len(pixels)
    places, taps = "xyz"[:k], "uvw"[:k]
    made = np.einsum(f"ngc{places}{taps},gfc{taps}->ngf{places}", apart, of_groups, optimize=True)
    made = made.reshape(n, len(filters), *rest[:k])
    return _laid(made, "".join(("N", "C", *pixels)), attrs.out_layout)


def transposed(attrs: TransposedConvolution, shape: Sequence[int], x: Array, w: Array) -> Array:
    """Add the filter times each pixel to a result of `shape`, in the layouts that `attrs` name."""
    axes = [letter for letter in _PIXELS if letter in attrs.data_layout]
    images = _laid(x, attrs.data_layout, ("N", *axes, "C"))
    filters = _laid(w, attrs.kernel_layout, (*axes, "I", "O"))
    groups, taps = attrs.groups, filters.shape[: len(axes)]
    n, *pixels, c = images.shape
    reach = [
        step * (extent - 1) + apart * (tap - 1) + 1 + more
        for step, extent, apart, tap, more in zip(
            attrs.strides, pixels, attrs.dilation, taps, attrs.output_padding, strict=True
        )
    ]
    made = np.zeros((n, *reach, groups, filters.shape[-1]), np.result_type(x, w))
    apart = images.reshape(n, *pixels, groups, c // groups)
    of_groups = filters.reshape(*taps, groups, c // groups, -1)
    for place in np.ndindex(*taps):
        met = [
            slice(tap * dilation, tap * dilation + step * (extent - 1) + 1, step)
            for tap, dilation, step, extent in zip(
                place, attrs.dilation, attrs.strides, pixels, strict=True
            )
        ]
        at = slice(None), *met
        made[at] += np.einsum("...gc,gck->...gk", apart, of_groups[place])
    before, after = attrs.padding[: len(axes)], attrs.padding[len(axes) :]
    kept = (
        slice(first, extent - last)
        for first, last, extent in zip(before, after, reach, strict=True)
    )
    whole = slice(None), *kept
    made = made[whole]
    made = made.reshape(*made.shape[:-2], -1)
    return _laid(made, "".join(("N", *axes, "C")), attrs.out_layout).reshape(shape)


def most_pool(attrs: Pool, shape: Sequence[int], x: Array) -> Array:
    """The largest element of each window of each channel."""
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return _pooled(attrs, shape, x, least, lambda windows: windows.max((-2, -1)))


def mean_pool(attrs: MeanPool, shape: Sequence[int], x: Array) -> Array:
    """Return the mean of each window of each channel, over its pixels or over the padding too."""
    sums = _pooled(attrs, shape, x, 0.0, lambda windows: windows.sum((-2, -1)))
    if attrs.count_include_pad:
        return sums / np.prod(attrs.pool_size)
    counts = _pooled(attrs, shape, np.ones_like(x), 0.0, lambda windows: windows.sum((-2, -1)))
    return np.asarray(sums / counts)


def adaptive_mean(attrs: AdaptivePool, shape: Sequence[int], x: Array) -> Array:
    """The means of windows that part an image into as many as `shape` has pixels."""
    layout = attrs.layout
    images = _laid(x, layout, "NCHW")
    for axis, letter in ((2, "H"), (3, "W")):
        extent, wanted = images.shape[axis], shape[layout.index(letter)]
        spans = [(at * extent // wanted, -(-(at + 1) * extent // wanted)) for at in range(wanted)]
        means = [images.take(range(*span), axis).mean(axis, keepdims=True) for span in spans]
        images = np.concatenate(means, axis)
    return _laid(images, "NCHW", layout)


def _pooled(attrs: Pool, shape: Sequence[int], x: Array, fill: float, reduce: Any) -> Array:
    layout, steps, dilation = attrs.layout, attrs.strides, attrs.dilation
    images = _laid(x, layout, "NCHW")
    pairs = zip(attrs.pool_size, dilation, strict=True)
    size = [(extent - 1) * apart + 1 for extent, apart in pairs]
    top, left, *behind = attrs.padding
    # With `ceil_mode` the last windows may go beyond the padding.
    pixels = [shape[layout.index(letter)] for letter in "HW"]
    needed = [
        (count - 1) * step + whole - before - extent
        for count, step, whole, before, extent in zip(
            pixels, steps, size, (top, left), images.shape[2:], strict=True
        )
    ]
    ends = [max(each, least) for each, least in zip(needed, behind, strict=True)]
    windows = _windows(_bordered(images, (top, left, *ends), fill), size, steps, dilation)
    made = reduce(windows)[:, :, : pixels[0], : pixels[1]]
    return _laid(made, "NCHW", layout)


def _laid(x: Array, layout: str, goal: Sequence[str]) -> Array:
    """The dimensions in the order of the letters of `goal`."""
    return np.asarray(x.transpose([layout.index(letter) for letter in goal]))


def _bordered(images: Array, padding: Sequence[int], fill: float) -> Array:
    """Images with elements `fill` around their pixels: all befores come first in `padding`."""
    half = len(padding) // 2
    widths = [(0, 0), (0, 0), *zip(padding[:half], padding[half:], strict=True)]
    return np.pad(images, widths, constant_values=fill)


def _windows(
    images: Array, size: Sequence[int], steps: Sequence[int], dilation: Sequence[int]
) -> Array:
    """The windows of images (N, C, ...), one every `steps` pixels; their pixels come last."""
    axes = tuple(range(2, images.ndim))
    found = np.lib.stride_tricks.sliding_window_view(images, tuple(size), axes)
    every = (slice(None, None, step) for step in (1, 1, *steps, *dilation))
    return np.asarray(found[tuple(every)])
