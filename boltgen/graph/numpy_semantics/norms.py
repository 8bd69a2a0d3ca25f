"""Norms in NumPy: of rows, of groups of channels, and of batches at inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from boltgen.graph.graph import Array
from boltgen.graph.numpy_semantics.operation import Operation


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    squares = np.square(centred).mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(squares + x.dtype.type(epsilon)))


def _affine(op: Operation, made: Array, shape: Sequence[int], *given: Array) -> Array:
    """A norm's result with its scale and its shift, of which the operator may have either."""
    scale, shift = (each.reshape(shape) for each in given)
    made = made * scale if op.attrs.get("scale", True) else made
    return made + shift if op.attrs.get("center", True) else made


def layer_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise along the attribute `axes`."""
    axes = tuple(axis % x.ndim for axis in op.integers("axes"))
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(x.shape)]
    return _affine(op, _normalised(x, axes, op.number("epsilon")), shape, scale, shift)


def rms_norm(op: Operation, x: Array, scale: Array) -> Array:
    """Divide by the root of the mean square along the attribute `axes`."""
    axes = tuple(axis % x.ndim for axis in op.integers("axes"))
    squares = np.square(x).mean(axes, keepdims=True)
    return np.asarray(x / np.sqrt(squares + x.dtype.type(op.number("epsilon"))) * scale)


def of_groups(op: Operation, x: Array) -> Array:
    """Normalise each image's groups of channels."""
    axis, groups = op.integer("channel_axis") % x.ndim, op.integer("groups")
    first = np.moveaxis(x, axis, 1)
    apart = first.reshape(first.shape[0], groups, -1)
    made = _normalised(apart, (2,), op.number("epsilon")).reshape(first.shape)
    return np.moveaxis(made, 1, axis)


def group_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise each image's groups of channels, then scale and shift channels."""
    axis = op.integer("channel_axis") % x.ndim
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    return _affine(op, of_groups(op, x), shape, scale, shift)


def batch_norm(op: Operation, x: Array, *given: Array) -> Array:
    """The norm at inference, by the means and variances that training has found."""
    scale, shift, mean, variance = (op.along(each, x.ndim) for each in given)
    made = (x - mean) / np.sqrt(variance + x.dtype.type(op.number("epsilon")))
    return _affine(op, made, scale.shape, scale, shift)


def normed(op: Operation, *arrays: Array) -> Array:
    """A norm of rows by the sums of their elements: see `passes.legalise.norm_of_sums`."""
    roles = cast("Sequence[str]", op.attrs["roles"])
    given = dict(zip(roles, arrays, strict=True))
    value, columns = given["x"], op.integer("columns")
    variance = given["squares"].sum(-1, keepdims=True) / columns
    if "sums" in given:
        mean = given["sums"].sum(-1, keepdims=True) / columns
        variance = np.maximum(variance - mean * mean, 0)
        value = value - mean * given.get("weights", 1)
    value = value / np.sqrt(variance + op.number("epsilon")) * given.get("scale", 1)
    return np.asarray(value + given.get("shift", 0) + given.get("plus", 0))
