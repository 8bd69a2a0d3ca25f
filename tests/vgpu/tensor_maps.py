"""Descriptors of tensors for bulk copies, and how a box of a tensor lies in shared memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from benchmarks.harness.driver import Array, Buffer, Driver

# CUtensorMapDataType.
TYPES = {
    np.dtype(np.uint8): 0,
    np.dtype(np.uint16): 1,
    np.dtype(np.uint32): 2,
    np.dtype(np.int32): 3,
    np.dtype(np.uint64): 4,
    np.dtype(np.int64): 5,
    np.dtype(np.float16): 6,
    np.dtype(np.float32): 7,
    np.dtype(np.float64): 8,
}
BFLOAT16 = 9
TFLOAT32 = 11
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class Tiling:
    """What cuTensorMapEncodeTiled is asked for; of the innermost dimension first."""

    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    nan: bool = False
    promotion: int = 0
    kind: int | None = None
    rank: int | None = None
    strides: tuple[int, ...] | None = None
    overrides: dict[str, object] = field(default_factory=dict)


def _numbers(kind: type, values: Sequence[int]) -> ctypes.Array[ctypes._SimpleCData[int]]:
    return (kind * max(len(values), 1))(*values)  # type: ignore[no-any-return,operator]


def encode(driver: Driver, tensor: Buffer, tiling: Tiling) -> Buffer:
    """A map of a C-contiguous array, in device memory."""
    array = tensor.like
    dims = tuple(reversed(array.shape))
    strides = tiling.strides or tuple(reversed(array.strides))[1:]
    steps = tiling.steps or (1,) * len(dims)
    kind = TYPES[array.dtype] if tiling.kind is None else tiling.kind
    room = ctypes.create_string_buffer(192)
    aligned = (ctypes.addressof(room) + 63) // 64 * 64
    driver.call(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(aligned),
        kind,
        ctypes.c_uint32(tiling.rank or len(dims)),
        ctypes.c_void_p(tensor.address),
        _numbers(ctypes.c_uint64, dims),
        _numbers(ctypes.c_uint64, strides),
        _numbers(ctypes.c_uint32, tiling.box),
        _numbers(ctypes.c_uint32, steps),
        tiling.interleave,
        tiling.swizzle,
        tiling.promotion,
        int(tiling.nan),
    )
    return driver.buffer(np.frombuffer(ctypes.string_at(aligned, 128), np.uint8).copy())


def swizzled(offsets: Array, swizzle: int) -> Array:
    """Where the swizzle puts bytes of shared memory: 16-byte pieces change places."""
    return offsets ^ (offsets >> 3 & ((16 << swizzle) - 16)) if swizzle else offsets


def image(array: Array, at: tuple[int, ...], tiling: Tiling, fresh: int = 0xFF) -> Array:
    """The bytes that a tile has in shared memory, from an element at a time."""
    dims = tuple(reversed(array.shape))
    steps = tiling.steps or (1,) * len(dims)
    size = array.dtype.itemsize
    counts = [tiling.box[0], *(-(-b // s) for b, s in zip(tiling.box[1:], steps[1:], strict=True))]
    pitch = max(counts[0] * size, 16 << tiling.swizzle if tiling.swizzle else 0)
    rows = int(np.prod(counts[1:]))
    out = np.full(pitch * rows, fresh, np.uint8)
    bits = 0x7FFF if size == 2 else 0x7FFFFFFF
    fill = np.array(bits if tiling.nan else 0, f"u{size}").view(array.dtype)
    for row, index in enumerate(product(*(range(c) for c in reversed(counts[1:])))):
        outer = [c + i * s for c, i, s in zip(at[1:], reversed(index), steps[1:], strict=True)]
        inside = all(0 <= o < d for o, d in zip(outer, dims[1:], strict=True))
        for k in range(counts[0]):
            x = at[0] + k
            there = inside and 0 <= x < dims[0]
            value = array[(*reversed(outer), x)] if there else fill
            place = np.arange(size) + row * pitch + k * size
            out[swizzled(place, tiling.swizzle)] = np.frombuffer(value.tobytes(), np.uint8)
    return out
