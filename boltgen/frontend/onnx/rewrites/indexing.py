"""Rewrite indexing at known places."""

from __future__ import annotations

from boltgen.frontend.onnx.rewrites.registry import Builder, rewrites

_END = 2**63 - 1


@rewrites("Gather", why="extents that are taken of a shape are taken one by one")
def extents(build: Builder) -> str | None:
    """Take several extents of a shape one by one: TVM's converter would make a tensor of them."""
    shape, places = build.scope.elements(build.x), build.known(1)
    if shape is None or places is None or places.ndim != 1 or build.known(0) is not None:
        return None
    parts = [
        build.Unsqueeze(build.Gather(build.x, build.constant(int(place)), axis=0), [0])
        for place in places
    ]
    return build.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


@rewrites("Gather", why="an element at a known place is a slice")
def gather(build: Builder) -> str | None:
    """Write one element along an axis as a Slice, which passes know as a view.

    TVM's converter computes at run time whether the place counts from the end.
    """
    places = build.known(1)
    if places is None or places.size != 1 or places.ndim > 1 or build.dtype().kind != "f":
        return None
    extents = build.extents()
    axis, place = build.get("axis", 0) % len(extents), int(places.reshape(()))
    extent = extents[axis]
    if isinstance(extent, int) and not -extent <= place < extent:
        return None
    end = _END if place == -1 else place + 1
    part = build.Slice(build.x, [place], [end], [axis])
    return part if places.ndim else build.Squeeze(part, [axis])
