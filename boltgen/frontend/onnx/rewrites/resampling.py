"""Rewrite Resize if TVM's converters compute other coordinates than ONNX: as a matmul per axis.

A Resize is linear and takes one axis after the other, so along each it is a product with a matrix
of its filter's weights; the nearest neighbour is a Gather. TVM takes the ratio of the extents for
the scale, ignores `antialias` and `keep_aspect_ratio_policy`, and resizes the axes behind the
second one whatever `axes` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Array

# Coordinates that TVM knows, and the ones among them that do not depend on the scale.
_OF_EXTENTS = frozenset({"align_corners", "tf_crop_and_resize"})
_KNOWN = _OF_EXTENTS | {"half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis that is resized: its extents before and after, 0 if not known, and its scale."""

    place: int
    before: int
    after: int
    scale: np.float32

    @property
    def is_whole(self) -> bool:
        """Whether the scale is the ratio of the extents, up to its own rounding to FP32."""
        return bool(abs(self.scale * self.before - self.after) <= self.after * 2**-22)


@rewrites("Resize", why="its coordinates are computed as ONNX has them")
def resize(build: Builder) -> str | list[str] | None:
    """Leave what TVM takes as it is, complete what it can take, and write out the others."""
    axes = _axes(build)
    if axes is None:
        return None
    coordinates = build.get("coordinate_transformation_mode", "half_pixel")
    if _is_plain(build, axes, coordinates):
        is_complete = not build.get("axes") and not build.get("keep_aspect_ratio_policy")
        return None if is_complete else _completed(build, axes)
    if coordinates == "tf_crop_and_resize":
        raise UnsupportedError(
            "its coordinates are tf_crop_and_resize with antialias, or of another axis than "
            "an image's",
            "crop with Slice before it",
        )
    return _written_out(build, axes, coordinates)


def _is_plain(build: Builder, axes: list[_Axis], coordinates: str) -> bool:
    """Return whether TVM computes the same as ONNX."""
    nearest = build.get("mode", "nearest") == "nearest" and build.get("nearest_mode") != "floor"
    return (
        not (build.get("antialias", 0) and any(axis.scale < 1 for axis in axes))
        and coordinates in _KNOWN
        and 3 <= len(build.extents()) <= 5
        and all(axis.place > 1 for axis in axes)
        and all(axis.is_whole or coordinates in _OF_EXTENTS for axis in axes)
        # TVM divides by the ratio as by a whole number for these.
        and not (coordinates == "asymmetric" and nearest and all(axis.before for axis in axes))
        and not (coordinates == "align_corners" and any(axis.after == 1 for axis in axes))
    )


def _axes(build: Builder) -> list[_Axis] | None:
    """Return the axes that change; None if TVM's converter reads unknown values, and refuses the
    node.
    """
    extents = build.scope.extents(build.x) or ()
    scales, sizes = (
        None if each is None or not each.size else each for each in map(build.known, (2, 3))
    )
    numbers = scales if sizes is None else sizes
    if numbers is None or not extents:
        return None
    places = [axis % len(extents) for axis in build.get("axes") or range(len(extents))]
    found = []
    for place, number in zip(places, numbers, strict=True):
        before = extents[place]
        if not isinstance(before, int):
            if sizes is not None or number != int(number) or build.get("antialias", 0):
                raise _unknown(place, number)
            # Every new extent is a whole number.
            found.append(_Axis(place=place, before=0, after=0, scale=np.float32(number)))
            continue
        scale = np.float32(number if sizes is None else number / before)
        after = int(np.float32(scale * np.float32(before))) if sizes is None else int(number)
        found.append(_Axis(place=place, before=before, after=after, scale=scale))
    policy = build.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and sizes is not None:
        scale = (min if policy == "not_larger" else max)(axis.scale for axis in found)
        afters = [int(np.floor(scale * axis.before + np.float32(0.5))) for axis in found]
        found = [replace(a, after=n, scale=scale) for a, n in zip(found, afters, strict=True)]
    return [axis for axis in found if axis.before != axis.after or axis.scale != 1]


def _unknown(place: int, number: float) -> UnsupportedError:
    return UnsupportedError(
        f"axis {place} is resized by {number:g}, and its extent is not known",
        "give the dimension with --shape",
    )


def _completed(build: Builder, axes: list[_Axis]) -> list[str]:
    """Name the extents of all axes, as TVM's converters read them."""
    extents = build.scope.shape(build.x)
    if extents is None:
        raise UnsupportedError("it resizes some axes of an unknown shape", "give it with --shape")
    rank, sizes, region = len(extents), list(extents), build.known(1)
    for axis in axes:
        sizes[axis.place] = axis.after
    if region is not None and region.size:
        whole = np.repeat(np.array([0, 1], region.dtype), rank).reshape(2, rank)
        whole[:, build.get("axes") or list(range(rank))] = region.reshape(2, -1)
        region = whole.reshape(-1)
    return build.again([build.x, region, "", sizes], axes=None, keep_aspect_ratio_policy=None)


def _written_out(build: Builder, axes: list[_Axis], coordinates: str) -> str:
    """Resize one axis after the other, the ones that shrink most first."""
    x, rank, dtype = build.x, len(build.extents()), build.scope.dtype(build.x)
    is_nearest = build.get("mode", "nearest") == "nearest"
    if not is_nearest and (dtype is None or dtype.kind != "f"):
        raise UnsupportedError(f"it resizes numbers of type {dtype}", "cast them to float before")
    for axis in axes:
        if not axis.before:
            raise _unknown(axis.place, float(axis.scale))
    for axis in sorted(axes, key=lambda axis: axis.after / axis.before):
        centres = _centres(axis, coordinates)
        if is_nearest:
            nearest = _nearest(centres, build.get("nearest_mode", "round_prefer_floor"))
            places = np.clip(nearest, 0, axis.before - 1).astype(np.int64)
            x = build.Gather(x, places, axis=axis.place)
        else:
            x = _multiplied(
                build, x, axis.place, rank, _weights(build, axis, centres).astype(dtype)
            )
    return x


def _multiplied(build: Builder, x: str, place: int, rank: int, weights: Array) -> str:
    """Multiply along an axis by weights of shape (after, before)."""
    if place == rank - 2:
        return build.MatMul(weights, x)
    if place == rank - 1:
        return build.MatMul(x, weights.T)
    order = [axis for axis in range(rank) if axis != place] + [place]
    product = build.MatMul(build.Transpose(x, perm=order), weights.T)
    return build.Transpose(product, perm=[order.index(axis) for axis in range(rank)])


def _centres(axis: _Axis, coordinates: str) -> Array:
    """Return the position of each new element among the old ones, in FP32 as in ONNX Runtime.

    Source: ONNX's Operators.md, Resize, coordinate_transformation_mode.
    """
    x, half, scale = np.arange(axis.after, dtype=np.float32), np.float32(0.5), axis.scale
    before, after = np.float32(axis.before), np.float32(axis.after)
    centres: Array
    match coordinates:
        case "asymmetric":
            centres = x / scale
        case "tf_half_pixel_for_nn":
            centres = (x + half) / scale
        case "align_corners":
            centres = x * (before - 1) / max(after - 1, np.float32(1))
        case "pytorch_half_pixel" if axis.after == 1:
            centres = 0 * x
        case "half_pixel" | "pytorch_half_pixel":
            centres = (x + half) / scale - half
        case "half_pixel_symmetric":
            border = before / 2 * (1 - after / (scale * before))
            centres = border + (x + half) / scale - half
        case _:
            raise UnsupportedError(
                f"its coordinates are {coordinates}", "export it with half_pixel coordinates"
            )
    return centres


def _nearest(centres: Array, rule: str) -> Array:
    half = np.float32(0.5)
    known: dict[str, Array] = {
        "floor": np.floor(centres),
        "ceil": np.ceil(centres),
        "round_prefer_floor": np.ceil(centres - half),
        "round_prefer_ceil": np.floor(centres + half),
    }
    if rule not in known:
        raise UnsupportedError(f"its nearest_mode is {rule}", "export it with floor")
    return known[rule]


def _weights(build: Builder, axis: _Axis, centres: Array) -> Array:
    """Return the weight of each old element in each new one: (after, before)."""
    is_cubic = build.get("mode", "nearest") == "cubic"
    stretch = min(float(axis.scale), 1.0) if build.get("antialias", 0) else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) / stretch))
    first = np.floor(centres.astype(np.float64)).astype(np.int64)
    places = first[:, None] + np.arange(-reach, reach + 2)
    away = np.abs(places - centres.astype(np.float64)[:, None]) * stretch
    a = build.get("cubic_coeff_a", -0.75)
    parts = _cubic(away, a) if is_cubic else np.maximum(1 - away, 0)
    outside = (places < 0) | (places >= axis.before)
    if build.get("exclude_outside", 0):
        parts = np.where(outside, 0, parts)
    parts /= parts.sum(axis=1, keepdims=True)
    found = np.zeros((axis.after, axis.before))
    rows = np.broadcast_to(np.arange(axis.after)[:, None], places.shape)
    # Beyond the border its elements go on.
    np.add.at(found, (rows, np.clip(places, 0, axis.before - 1)), parts)
    return found


def _cubic(away: Array, a: float) -> Array:
    """The weights of Keys's cubic convolution at distances from the centre."""
    near = ((a + 2) * away - (a + 3)) * away**2 + 1
    far = ((away - 5) * away + 8) * a * away - 4 * a
    found: Array = np.where(away <= 1, near, np.where(away < 2, far, 0))
    return found
