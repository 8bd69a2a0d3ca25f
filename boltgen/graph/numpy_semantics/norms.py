"""Norms in NumPy: of rows, of groups of channels, and of batches at inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boltgen.graph.attributes import (
    BatchNorm,
    ImageNorm,
    LayerNorm,
    Normalised,
    Normed,
    ScaledGroupNorm,
)
from boltgen.graph.graph import Array
from boltgen.graph.numpy_semantics.operation import Operation, along


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    squares = np.square(centred).mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(squares + x.dtype.type(epsilon)))


def _affine(op: Operation, made: Array, shape: Sequence[int], *given: Array) -> Array:
    """A norm's result with its scale and its shift, of which the operator may have either."""
    scale, shift = (each.reshape(shape) for each in given)
    flags = op.attrs if isinstance(op.attrs, BatchNorm) else op.attrs.of(LayerNorm)
    made = made * scale if flags.scale else made
    return made + shift if flags.center else made


def layer_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise along the attribute `axes`."""
    attrs = op.attrs.of(LayerNorm)
    axes = tuple(axis % x.ndim for axis in attrs.axes)
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(x.shape)]
    return _affine(op, _normalised(x, axes, attrs.epsilon), shape, scale, shift)


def rms_norm(op: Operation, x: Array, scale: Array) -> Array:
    """Divide by the root of the mean square along the attribute `axes`."""
    attrs = op.attrs.of(Normalised)
    squares = np.square(x).mean(attrs.axes, keepdims=True)
    return np.asarray(x / np.sqrt(squares + x.dtype.type(attrs.epsilon)) * scale)


def of_groups(op: Operation, x: Array) -> Array:
    """Normalise each image's groups of channels."""
    attrs = op.attrs if isinstance(op.attrs, ScaledGroupNorm) else op.attrs.of(ImageNorm)
    first = np.moveaxis(x, attrs.channel_axis, 1)
    apart = first.reshape(first.shape[0], attrs.groups, -1)
    made = _normalised(apart, (2,), attrs.epsilon).reshape(first.shape)
    return np.moveaxis(made, 1, attrs.channel_axis)


def group_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise each image's groups of channels, then scale and shift channels."""
    axis = op.attrs.of(ScaledGroupNorm).channel_axis % x.ndim
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    return _affine(op, of_groups(op, x), shape, scale, shift)


def batch_norm(op: Operation, x: Array, *given: Array) -> Array:
    """The norm at inference, by the means and variances that training has found."""
    attrs = op.attrs.of(BatchNorm)
    scale, shift, mean, variance = (along(attrs.axis, each, x.ndim) for each in given)
    made = (x - mean) / np.sqrt(variance + x.dtype.type(attrs.epsilon))
    return _affine(op, made, scale.shape, scale, shift)


def normed(op: Operation, *arrays: Array) -> Array:
    """A norm of rows by the sums of their elements: see `passes.legalise.norm_of_sums`."""
    attrs = op.attrs.of(Normed)
    given, columns = dict(zip(attrs.roles, arrays, strict=True)), attrs.columns
    value = given["x"]
    variance = given["squares"].sum(-1, keepdims=True) / columns
    if "sums" in given:
        mean = given["sums"].sum(-1, keepdims=True) / columns
        variance = np.maximum(variance - mean * mean, 0)
        value = value - mean * given.get("weights", 1)
    value = value / np.sqrt(variance + attrs.epsilon) * given.get("scale", 1)
    return np.asarray(value + given.get("shift", 0) + given.get("plus", 0))
