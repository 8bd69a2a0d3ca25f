"""Swizzles with every inner size that is legal, and interleaved tensors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Buffer, CudaError, Driver
from tests.vgpu.tensor_maps import Tiling, encode, image, swizzled
from tests.vgpu.test_tensor_copies import filled, load_kernel, loaded, store_kernel


@pytest.mark.parametrize(
    ("swizzle", "inner"),
    [(s, n) for s in (1, 2, 3) for n in range(16, (16 << s) + 1, 16)],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_every_inner_size_of_a_swizzle(
    hopper: Driver, dtype: type, swizzle: int, inner: int
) -> None:
    size = np.dtype(dtype).itemsize
    array = filled((40, 256 // size), dtype)
    tiling = Tiling(box=(inner // size, 24), swizzle=swizzle)
    at = (64 // size, 20)
    np.testing.assert_array_equal(loaded(hopper, array, at, tiling), image(array, at, tiling))


@pytest.mark.parametrize("inner", [16, 48, 160, 512])
def test_inner_sizes_of_no_swizzle(hopper: Driver, inner: int) -> None:
    array = filled((12, 320), np.float16)
    tiling = Tiling(box=(inner // 2, 8))
    at = (8, 6)
    np.testing.assert_array_equal(loaded(hopper, array, at, tiling), image(array, at, tiling))


def test_rows_of_a_box_of_three_dimensions_share_a_pattern(hopper: Driver) -> None:
    array = filled((3, 40, 64), np.uint8)
    tiling = Tiling(box=(64, 5, 3), swizzle=2)
    at = (0, 30, 1)
    np.testing.assert_array_equal(loaded(hopper, array, at, tiling), image(array, at, tiling))


# --- interleaved ---------------------------------------------------------------------------------
#
# Memory is NC/8HWC8: [N, slices, (D, H,) W, channels of a slice]. A map has dimensions C, W, H, D
# and N with the strides of all but the slices, which follow from those of an image. Shared memory
# gets the box in the same order. Source: PTX ISA, interleave layout; CUDA driver API,
# CUtensorMapInterleave.


def interleaved_image(
    memory: Array, channels: int, at: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> Array:
    """Shared memory after a load; `memory` is [N, slices, ..., W, channels of a slice]."""
    images, _, *spatial, width = memory.shape
    size = memory.dtype.itemsize
    slices = -(-box[0] // width)
    out = []
    ranges = [range(n) for n in (box[-1], slices, *reversed(box[1:-1]))]
    for n, s, *place in product(*ranges):
        where = [p + a for p, a in zip(place, reversed(at[1:-1]), strict=True)]
        first = at[0] + s * width
        inside = 0 <= n + at[-1] < images and all(
            0 <= x < e for x, e in zip(where, spatial, strict=True)
        )
        row = np.zeros(width, memory.dtype)
        for c in range(width):
            if inside and 0 <= first + c < channels:
                row[c] = memory[(n + at[-1], first // width, *where, c)]
        out.append(row)
    flat = np.concatenate(out).view(np.uint8)
    found = np.full(flat.size, 0xFF, np.uint8)
    found[swizzled(np.arange(flat.size), swizzle)] = flat
    assert size * width in (16, 32)
    return found


# Extents [N, (D, H,) W], box C, W, ..., N, and where it lies.
INTERLEAVED = [
    ((3, 9), (32, 4, 2), (0, 2, 1)),
    ((2, 5, 7), (32, 3, 2, 2), (0, 5, -1, 0)),
    ((2, 5, 7), (16, 4, 3, 1), (32, -1, 3, 1)),
    ((2, 3, 4, 5), (32, 2, 2, 2, 1), (16, 0, 1, 2, 1)),
]


@pytest.mark.parametrize("case", INTERLEAVED)
@pytest.mark.parametrize(("interleave", "swizzle"), [(1, 0), (1, 1), (1, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
def test_interleaved_boxes(
    hopper: Driver,
    dtype: type,
    interleave: int,
    swizzle: int,
    case: tuple[tuple[int, ...], ...],
) -> None:
    extents, box, at = case
    width = 16 * interleave // np.dtype(dtype).itemsize
    if box[0] % width or at[0] % width:
        pytest.skip("no whole slices of this type")
    slices = 48 // width
    channels = 44
    memory = filled((extents[0], slices, *extents[1:], width), dtype)
    tensor = hopper.buffer(memory)
    # The map's own dimensions; the strides of memory, but for the slices'.
    strides = tuple(s for k, s in enumerate(memory.strides[:-1]) if k != 1)[::-1]
    shaped = np.empty((*extents, channels), dtype)
    tiling = Tiling(box=box, interleave=interleave, swizzle=swizzle, strides=strides)
    mapped = encode(hopper, Buffer(tensor.address, shaped), tiling)
    expected = interleaved_image(memory, channels, at, box, swizzle)
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    hopper.run(load_kernel(at, expected.size, expected.size), [mapped, out])
    np.testing.assert_array_equal(hopper.read(out), expected)
    # And back: what is inside of the tensor lands where it came from.
    hopper.fill(tensor, 0)
    form = "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
    hopper.run(store_kernel(at, expected.size, form), [mapped, hopper.buffer(expected)])
    kept = interleaved_image(hopper.read(tensor), channels, at, box, swizzle)
    np.testing.assert_array_equal(kept, expected)
    assert (hopper.read(tensor) != 0).sum() == (expected.view(dtype) != 0).sum()


@pytest.mark.parametrize("change", ["first channel", "rank", "swizzle", "stride"])
def test_interleaved_maps_that_cannot_be(hopper: Driver, change: str) -> None:
    array = filled((2, 4, 4, 16), np.float16)
    strides = (32, 128, 512)
    good = Tiling(box=(16, 2, 2, 1), interleave=2, swizzle=1, strides=strides)
    tensor = hopper.buffer(array)
    if change == "first channel":
        out = hopper.buffer(np.zeros(128, np.uint8))
        mapped = encode(hopper, tensor, good)
        with pytest.raises(CudaError, match="from channel 8 of an interleaved tensor"):
            hopper.run(load_kernel((8, 0, 0, 0), 128, 128), [mapped, out])
        return
    wrong, message = {
        "rank": (
            Tiling(box=(16, 2), interleave=2, swizzle=1, strides=(32,), rank=2),
            "tensorRank is 2 and must be 3 or more with interleave 32B",
        ),
        "swizzle": (
            Tiling(box=(16, 2, 2, 1), interleave=2, swizzle=3, strides=strides),
            "swizzle is 128B and must be 32B with interleave 32B",
        ),
        "stride": (
            Tiling(box=(16, 2, 2, 1), interleave=2, swizzle=1, strides=(48, 144, 576)),
            r"globalStrides\[0\] is 48 and must be a multiple of 32 bytes",
        ),
    }[change]
    with pytest.raises(CudaError, match=message) as raised:
        encode(hopper, tensor, wrong)
    assert raised.value.code == 1
