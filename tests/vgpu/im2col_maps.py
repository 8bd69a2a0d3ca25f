"""Im2col descriptors, and the columns that copies through them bring, pixel by pixel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from benchmarks.harness.driver import Array, Buffer, Driver
from tests.vgpu.tensor_maps import TYPES, swizzled


@dataclass(frozen=True)
class Columns:
    """What cuTensorMapEncodeIm2col is asked for; W first, then H and D."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    steps: tuple[int, ...] = ()  # of all dimensions, channels first
    swizzle: int = 0
    nan: bool = False
    changes: dict[str, object] = field(default_factory=dict)  # of the call's arguments, by name


def encode_im2col(driver: Driver, tensor: Buffer, columns: Columns) -> Buffer:
    """A map of a C-contiguous array [N, (D, (H,)) W, C], in device memory."""
    array = tensor.like
    rank = array.ndim
    room = ctypes.create_string_buffer(192)
    aligned = (ctypes.addressof(room) + 63) // 64 * 64
    arguments: dict[str, object] = {
        "map": ctypes.c_void_p(aligned),
        "type": TYPES[array.dtype],
        "rank": ctypes.c_uint32(rank),
        "address": ctypes.c_void_p(tensor.address),
        "dims": (ctypes.c_uint64 * rank)(*reversed(array.shape)),
        "strides": (ctypes.c_uint64 * (rank - 1))(*tuple(reversed(array.strides))[1:]),
        "lower": (ctypes.c_int * len(columns.lower))(*columns.lower),
        "upper": (ctypes.c_int * len(columns.upper))(*columns.upper),
        "channels": ctypes.c_uint32(columns.channels),
        "pixels": ctypes.c_uint32(columns.pixels),
        "steps": (ctypes.c_uint32 * rank)(*(columns.steps or (1,) * rank)),
        "interleave": 0,
        "swizzle": columns.swizzle,
        "promotion": 0,
        "fill": int(columns.nan),
    }
    assert arguments.keys() >= columns.changes.keys()
    driver.call("cuTensorMapEncodeIm2col", *(arguments | columns.changes).values())
    return driver.buffer(np.frombuffer(ctypes.string_at(aligned, 128), np.uint8).copy())


def column_image(
    array: Array, at: tuple[int, ...], offsets: tuple[int, ...], columns: Columns
) -> Array:
    """The bytes of shared memory that a copy fills.

    The base pixels of the bounding box are numbered with W fastest and N slowest; a copy takes
    `pixels` of them in that order from its coordinates on, each moved by `offsets`.
    Source: PTX ISA, im2col mode; CUDA driver API, cuTensorMapEncodeIm2col.
    """
    spatial = array.ndim - 2
    extents = tuple(reversed(array.shape))[1 : 1 + spatial]  # W, H, D
    steps = (columns.steps or (1,) * array.ndim)[1 : 1 + spatial]
    grid = [
        range(low, extent + high, step)
        for low, high, extent, step in zip(
            columns.lower, columns.upper, extents, steps, strict=True
        )
    ]
    counts = [len(axis) for axis in grid]
    # The number of the first base pixel.
    first, weight = 0, 1
    for axis, coordinate, count in zip(grid, at[1:-1], counts, strict=True):
        first += axis.index(coordinate) * weight
        weight *= count
    first += at[-1] * weight
    size = array.dtype.itemsize
    pitch = max(columns.channels * size, 16 << columns.swizzle if columns.swizzle else 0)
    out = np.full(pitch * columns.pixels, 0xFF, np.uint8)
    bits = 0x7FFF if size == 2 else 0x7FFFFFFF
    fill = np.array(bits if columns.nan else 0, f"u{size}").view(array.dtype)
    for pixel in range(columns.pixels):
        rest, place = first + pixel, []
        for axis, count, offset in zip(grid, counts, offsets, strict=True):
            place.append(axis[rest % count] + offset)
            rest //= count
        place.append(rest)  # the image
        inside = all(
            0 <= p < extent for p, extent in zip(place, reversed(array.shape[:-1]), strict=True)
        )
        for channel in range(columns.channels):
            c = at[0] + channel
            there = inside and 0 <= c < array.shape[-1]
            value = array[(*reversed(place), c)] if there else fill
            where = np.arange(size) + pixel * pitch + channel * size
            out[swizzled(where, columns.swizzle)] = np.frombuffer(value.tobytes(), np.uint8)
    return out
