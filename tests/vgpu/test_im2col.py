"""Tensor copies in im2col mode: columns of pixels, and CUTLASS's convolutions made of them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.cutlass_libraries import cutlass_library
from benchmarks.harness.driver import Array, Driver, entry
from boltgen.device.vgpu import Vgpu
from tests.vgpu.im2col_maps import Columns, column_image, encode_im2col
from tests.vgpu.refusals import Code, refused
from tests.vgpu.tensor_maps import HEADER, Tiling, encode
from tests.vgpu.test_tensor_copies import REGISTERS, SHARED, coordinates, filled, load_kernel


def load_columns(
    hopper: Driver,
    array: Array,
    at: tuple[int, ...],
    offsets: tuple[int, ...],
    columns: Columns,
) -> Array:
    expected = column_image(array, at, offsets, columns)
    nbytes = columns.channels * columns.pixels * array.dtype.itemsize
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    tensor = encode_im2col(hopper, hopper.buffer(array), columns)
    more = f", {coordinates(offsets)}"
    hopper.run(load_kernel(at, nbytes, expected.size, ".im2col", more), [tensor, out])
    return hopper.read(out)


# Shape [N, (D, H,) W, C], coordinates C, W, .., N, offsets W, .., corners, and steps of all.
CASES: dict[str, tuple[tuple[int, ...], ...]] = {
    # A filter of 3 with padding 1 on a line.
    "3d": ((4, 9, 16), (0, -1, 0), (0,), (-1,), (-1,), ()),
    "3d middle tap": ((4, 9, 16), (0, 3, 1), (1,), (-1,), (-1,), ()),
    "3d last tap past the images": ((2, 9, 16), (0, -1, 0), (2,), (-1,), (-1,), ()),
    "3d stride 2": ((4, 9, 16), (0, -1, 0), (1,), (-1,), (-1,), (1, 2, 1)),
    # 3 x 3, padding 1: first tap, one in the middle, the last; from a pixel inside.
    "4d first tap": ((3, 5, 6, 16), (0, -1, -1, 0), (0, 0), (-1, -1), (-1, -1), ()),
    "4d inside": ((3, 5, 6, 16), (0, 3, 2, 1), (1, 1), (-1, -1), (-1, -1), ()),
    "4d last tap": ((3, 5, 6, 16), (0, 4, 3, 0), (2, 2), (-1, -1), (-1, -1), ()),
    "4d no padding": ((2, 7, 8, 16), (0, 0, 0, 0), (2, 1), (0, 0), (-2, -2), ()),
    "4d steps": ((3, 7, 9, 16), (0, -1, 1, 0), (2, 1), (-1, -1), (-1, -1), (1, 2, 2, 1)),
    "4d uneven": ((3, 7, 9, 16), (0, 2, -2, 0), (3, 0), (-1, -2), (-3, 1), (1, 3, 2, 1)),
    "4d channels beyond": ((2, 5, 6, 48), (40, -1, -1, 0), (1, 0), (-1, -1), (-1, -1), ()),
    "4d dilated tap": ((2, 9, 9, 16), (0, -2, -2, 0), (4, 2), (-2, -2), (-2, -2), ()),
    "5d": (
        (2, 4, 3, 5, 16),
        (0, -1, 0, -1, 0),
        (1, 2, 0),
        (-1, -1, -1),
        (-1, -1, -1),
        (),
    ),
    "5d steps": (
        (3, 5, 4, 7, 16),
        (0, 1, -1, 1, 0),
        (2, 1, 2),
        (-1, -1, -1),
        (-1, 0, -1),
        (1, 2, 1, 2, 1),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_columns_of_pixels(hopper: Driver, dtype: type, case: str) -> None:
    shape, at, offsets, lower, upper, steps = CASES[case]
    array = filled(shape, dtype)
    columns = Columns(lower, upper, channels=16, pixels=50, steps=steps)
    found = load_columns(hopper, array, at, offsets, columns)
    np.testing.assert_array_equal(found, column_image(array, at, offsets, columns))


@pytest.mark.parametrize("swizzle", [1, 2, 3])
@pytest.mark.parametrize("part", [1, 2])
def test_columns_in_every_swizzle(hopper: Driver, swizzle: int, part: int) -> None:
    array = filled((2, 6, 7, 64), np.float16)
    channels = (16 << swizzle) // 2 // part
    columns = Columns((-1, -1), (-1, -1), channels, pixels=64, swizzle=swizzle)
    at, offsets = (64 - channels, 2, -1, 0), (0, 2)
    found = load_columns(hopper, array, at, offsets, columns)
    np.testing.assert_array_equal(found, column_image(array, at, offsets, columns))


def test_columns_may_be_filled_with_nan(hopper: Driver) -> None:
    array = filled((2, 3, 4, 16), np.float16)
    columns = Columns((-1, -1), (-1, -1), 16, pixels=32, nan=True)
    found = load_columns(hopper, array, (0, -1, -1, 0), (0, 0), columns)
    np.testing.assert_array_equal(found, column_image(array, (0, -1, -1, 0), (0, 0), columns))
    assert np.isnan(found.view(np.float16)).any()


def test_a_column_is_stored_without_offsets(hopper: Driver) -> None:
    """Stores know im2col_no_offs: the base pixels themselves, where the tensor has them."""
    columns = Columns((0, 0), (-1, -1), 16, pixels=12)
    source = filled((12, 16), np.float16)
    target = hopper.buffer(np.zeros((2, 4, 5, 16), np.float16))
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; mov.u32 %a, tile;
        NEXT: setp.ge.u32 %p, %t, {source.nbytes // 4}; @%p bra DONE;
        shl.b32 %n, %t, 2; cvt.u64.u32 %d2, %n; add.u64 %d2, %d1, %d2; ld.global.u32 %v, [%d2];
        add.u32 %n, %a, %n; st.shared.u32 [%n], %v; add.u32 %t, %t, 32; bra NEXT;
        DONE: fence.proxy.async.shared::cta; bar.sync 0;
        mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;
        cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group
            [%d0, {{0, 2, 1, 0}}], [tile];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
        END: ret;"""
    ptx = HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)
    hopper.run(ptx, [encode_im2col(hopper, target, columns), hopper.buffer(source)])
    expected = np.zeros((2, 4, 5, 16), np.float16)
    pixels = [(n, h, w) for n in range(2) for h in range(3) for w in range(4)]
    for place, value in zip(pixels[1 * 4 + 2 :], source, strict=False):
        expected[place] = value
    np.testing.assert_array_equal(hopper.read(target), expected)


WRONG: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "rank 2": ({"rank": 2}, ("tensorRank is 2", "3, 4 or 5")),
    "rank 6": ({"rank": 6}, ("tensorRank is 6", "1 to 5")),
    "low corner": ({"lower": (ctypes.c_int * 2)(0, -129)}, ("pixelBoxLowerCorner[1] is -129",)),
    "high corner": ({"upper": (ctypes.c_int * 2)(128, 0)}, ("pixelBoxUpperCorner[0] is 128",)),
    "far corner": ({"upper": (ctypes.c_int * 2)(99999, 0)}, ("pixelBoxUpperCorner[0] is 99999",)),
    "no corner": ({"lower": None}, ("pixelBoxLowerCorner is null",)),
    "empty box": ({"upper": (ctypes.c_int * 2)(-8, 0)}, ("pixelBoxUpperCorner[0] is -8", "empty")),
    "channels": ({"channels": 264}, ("channelsPerPixel is 264", "1 to 256")),
    "no channel": ({"channels": 0}, ("channelsPerPixel is 0", "1 to 256")),
    "odd channels": ({"channels": 12}, ("channelsPerPixel is 12", "multiple of 16 bytes")),
    "swizzle": ({"swizzle": 1, "channels": 32}, ("channelsPerPixel is 32", "32 bytes")),
    "pixels": ({"pixels": 1025}, ("pixelsPerColumn is 1025", "1 to 1024")),
    "no pixel": ({"pixels": 0}, ("pixelsPerColumn is 0", "1 to 1024")),
    "map": ({"map": ctypes.c_void_p(8)}, ("tensorMap",)),
    "step": ({"steps": (ctypes.c_uint32 * 4)(1, 9, 1, 1)}, ("elementStrides[1] is 9", "1 to 8")),
    "stride": ({"strides": (ctypes.c_uint64 * 3)(24, 160, 640)}, ("globalStrides[0] is 24",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_are_wrong_are_named(hopper: Driver, name: str) -> None:
    tensor = hopper.buffer(filled((2, 4, 8, 16), np.float16))
    changes, words = WRONG[name]
    with refused(Code.INVALID_VALUE, *words):
        encode_im2col(hopper, tensor, Columns((0, 0), (0, 0), 16, 32, changes=changes))


def test_a_map_serves_its_own_mode_only(hopper: Driver) -> None:
    array = hopper.buffer(filled((2, 4, 8, 16), np.float16))
    tensor = encode_im2col(hopper, array, Columns((0, 0), (0, 0), 16, 32))
    out = hopper.buffer(np.zeros(1024, np.uint8))
    with refused(Code.LAUNCH_FAILED, "tile mode", "im2col"):
        hopper.run(load_kernel((0, 0, 0, 0), 1024, 1024), [tensor, out])


PREFETCHES = {
    "tile": "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%d0, {0, 0, 0, 0}];",
    "im2col": "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%d0, {0, 0, 0, 0}], {1, 1};",
}


@pytest.mark.parametrize("mode", PREFETCHES)
def test_a_prefetch_wants_a_map_of_its_mode(hopper: Driver, mode: str) -> None:
    array = hopper.buffer(filled((2, 4, 8, 16), np.float16))
    maps = {
        "tile": encode(hopper, array, Tiling(box=(16, 2, 2, 1))),
        "im2col": encode_im2col(hopper, array, Columns((0, 0), (0, 0), 16, 32)),
    }
    body = "ld.param.u64 %d0, [p0]; prefetch.tensormap [%d0]; " + PREFETCHES[mode] + " ret;"
    ptx = HEADER + entry(["u64"], REGISTERS, body)
    for encoded, tensor in maps.items():
        if encoded == mode:
            hopper.run(ptx, [tensor])
            continue
        with refused(Code.LAUNCH_FAILED, encoded):
            hopper.run(ptx, [tensor])
        hopper.vgpu.clear_error()


# --- CUTLASS -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def convolutions(loaded: Vgpu) -> ctypes.CDLL:
    return ctypes.CDLL(str(cutlass_library(Path(__file__).with_name("cutlass_conv.cu"), "sm_90a")))


def convolved(x: Array, filters: Array, padding: int, stride: int, dilation: int) -> Array:
    """NHWC by KRSC, in f64."""
    p = padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (p, p), (p, p), (0, 0)))
    _, r, s, _ = filters.shape
    height = (wide.shape[1] - dilation * (r - 1) - 1) // stride + 1
    width = (wide.shape[2] - dilation * (s - 1) - 1) // stride + 1
    out: Any = 0
    for i in range(r):
        for j in range(s):
            y, z = i * dilation, j * dilation
            taken = wide[:, y : y + stride * height : stride, z : z + stride * width : stride]
            out = out + taken[:, :height, :width] @ filters[:, i, j].astype(np.float64).T
    return np.asarray(out)


# n, h, w, c, k, r, s, padding, stride, dilation.
PROBLEMS = {
    "padding 1": (2, 8, 9, 64, 64, 3, 3, 1, 1, 1),
    "stride 2": (2, 9, 11, 64, 64, 3, 3, 1, 2, 1),
    "no padding": (1, 9, 7, 64, 128, 3, 3, 0, 1, 1),
    "dilation 2": (1, 10, 9, 64, 64, 3, 3, 2, 1, 2),
    "channels past a tile": (1, 6, 7, 72, 72, 3, 3, 1, 1, 1),
    "1 x 1": (2, 5, 6, 64, 64, 1, 1, 0, 1, 1),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("function", ["conv_alone", "conv_pair"])
def test_cutlass_convolves(
    hopper: Driver, convolutions: ctypes.CDLL, function: str, problem: str
) -> None:
    n, h, w, c, k, r, s, padding, stride, dilation = sizes = PROBLEMS[problem]
    rng = np.random.default_rng(11)
    x = rng.standard_normal((n, h, w, c)).astype(np.float16)
    filters = rng.standard_normal((k, r, s, c)).astype(np.float16)
    exact = convolved(x, filters, padding, stride, dilation)
    out = hopper.buffer(np.full(exact.shape, np.nan, np.float32))
    hopper.vgpu.set_option("check", "memcheck,initcheck,racecheck,synccheck,deadlock")
    hopper.vgpu.clear_findings()
    addresses = [
        ctypes.c_void_p(b.address) for b in (hopper.buffer(x), hopper.buffer(filters), out)
    ]
    status = getattr(convolutions, function)((ctypes.c_int * 10)(*sizes), *addresses)
    assert status == 0, hopper.vgpu.last_error()
    assert hopper.vgpu.findings() == []
    terms = convolved(np.abs(x), np.abs(filters), padding, stride, dilation)
    bound = (r * s * c + 1) * 2.0**-24 * terms
    assert (np.abs(hopper.read(out) - exact) <= bound).all()
