"""Bulk copies of tensors (TMA): boxes, swizzles, bounds, and reductions, against loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Buffer, CudaError, Driver, entry
from tests.vgpu.tensor_maps import HEADER, TFLOAT32, Tiling, encode, image

SHARED = ".shared .align 1024 .b8 tile[32768]; .shared .align 8 .b64 bar;"
REGISTERS = ".reg .pred %p, %q; .reg .b32 %t, %n, %a, %v, %c<8>; .reg .b64 %d<4>;"


@pytest.fixture
def hopper(driver: Driver) -> Iterator[Driver]:
    driver.vgpu.set_option("device", "sm_90")
    yield driver


def coordinates(at: tuple[int, ...]) -> str:
    return "{" + ", ".join(str(c) for c in at) + "}"


def load_kernel(
    at: tuple[int, ...], nbytes: int, count: int, mode: str = "", more: str = ""
) -> str:
    """Loads a box of a map (p0) and writes `count` bytes of shared memory as they are to p1."""
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x;
        setp.ne.u32 %p, %t, 0;
        @%p bra WAIT;
        mbarrier.init.shared::cta.b64 [bar], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        cp.async.bulk.tensor.{len(at)}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes
            [tile], [%d0, {coordinates(at)}], [bar]{more};
        WAIT: bar.sync 0;
        AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
        @!%q bra AGAIN;
        mov.u32 %a, tile;
        NEXT: setp.ge.u32 %p, %t, {count // 4}; @%p bra DONE;
        shl.b32 %n, %t, 2; add.u32 %v, %a, %n; ld.shared.u32 %v, [%v];
        cvt.u64.u32 %d2, %n; add.u64 %d2, %d1, %d2; st.global.u32 [%d2], %v;
        add.u32 %t, %t, 32; bra NEXT;
        DONE: ret;"""
    return HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)


def store_kernel(at: tuple[int, ...], count: int, form: str) -> str:
    """Fills shared memory from p1 and stores a box of it through the map p0."""
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; mov.u32 %a, tile;
        NEXT: setp.ge.u32 %p, %t, {count // 4}; @%p bra DONE;
        shl.b32 %n, %t, 2; cvt.u64.u32 %d2, %n; add.u64 %d2, %d1, %d2; ld.global.u32 %v, [%d2];
        add.u32 %n, %a, %n; st.shared.u32 [%n], %v;
        add.u32 %t, %t, 32; bra NEXT;
        DONE: fence.proxy.async.shared::cta;
        bar.sync 0;
        mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;
        {form.format(rank=len(at))} [%d0, {coordinates(at)}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        END: ret;"""
    return HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)


@pytest.mark.parametrize(
    ("form", "times"),
    [
        ("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group", 1),
        ("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.bulk_group", 32),
    ],
)
def test_a_store_that_a_whole_warp_issues_is_one(hopper: Driver, form: str, times: int) -> None:
    """The hardware has an instruction for the warp; a reduction adds for each lane."""
    array, box = np.zeros((40, 64), np.uint32), np.arange(16 * 8, dtype=np.uint32)
    tensor, source = hopper.buffer(array), hopper.buffer(box)
    tiling = Tiling(box=(16, 8))
    kernel = store_kernel((0, 0), box.nbytes, form).replace("@%p bra END;", "")
    hopper.vgpu.set_option("counters", "on")
    hopper.run(kernel, [encode(hopper, tensor, tiling), source])
    counted = hopper.vgpu.counters()[-1]["global_store"]
    assert counted["bytes"] == times * box.nbytes
    assert counted["sectors"] == times * box.nbytes // 32
    np.testing.assert_array_equal(hopper.read(tensor)[:8, :16], times * box.reshape(8, 16))


def loaded(hopper: Driver, array: Array, at: tuple[int, ...], tiling: Tiling) -> Array:
    tensor = hopper.buffer(array)
    expected = image(array, at, tiling)
    steps = tiling.steps or (1,) * len(at)
    taken = [tiling.box[0], *(-(-b // s) for b, s in zip(tiling.box[1:], steps[1:], strict=True))]
    nbytes = int(np.prod(taken)) * array.dtype.itemsize
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    hopper.run(load_kernel(at, nbytes, expected.size), [encode(hopper, tensor, tiling), out])
    return hopper.read(out)


def filled(shape: tuple[int, ...], dtype: type) -> Array:
    rng = np.random.default_rng(7)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("at", [(0, 0), (8, 3), (56, -2), (-8, 35), (64, 0)])
@pytest.mark.parametrize("swizzle", range(4))
def test_tiles_of_a_matrix_in_every_swizzle(
    hopper: Driver, swizzle: int, at: tuple[int, int]
) -> None:
    array = filled((40, 64), np.float16)
    inner = 64 if swizzle == 0 else (16 << swizzle) // 2
    tiling = Tiling(box=(inner, 24), swizzle=swizzle)
    np.testing.assert_array_equal(loaded(hopper, array, at, tiling), image(array, at, tiling))


PACKED = 13  # 16U4_ALIGN8B: two elements in a byte, in memory and in shared memory


def packed_map(hopper: Driver, array: Array, box: tuple[int, int], width: int) -> Buffer:
    """A map of the array's bytes as elements of four bits, `width` of them in a row."""
    wide = Buffer(hopper.buffer(array).address, np.zeros((len(array), width), np.uint8))
    tiling = Tiling(box=box, swizzle=2, kind=PACKED, strides=(array.shape[1],))
    return encode(hopper, wide, tiling)


@pytest.mark.parametrize("at", [(0, 0), (32, 3), (96, -2)])
def test_elements_of_four_bits_are_halves_of_bytes(hopper: Driver, at: tuple[int, int]) -> None:
    array = filled((40, 64), np.uint8)
    in_bytes = Tiling(box=(64, 24), swizzle=2)
    expected = image(array, (at[0] // 2, at[1]), in_bytes)
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    tensor = packed_map(hopper, array, (128, 24), 128)
    hopper.run(load_kernel(at, 64 * 24, expected.size), [tensor, out])
    np.testing.assert_array_equal(hopper.read(out), expected)


def test_elements_of_four_bits_come_in_pairs(hopper: Driver) -> None:
    array = filled((40, 64), np.uint8)
    with pytest.raises(CudaError, match=r"globalDim\[0\] is 127 and must be even"):
        packed_map(hopper, array, (128, 24), 127)
    out = hopper.buffer(np.zeros(64, np.uint8))
    tensor = packed_map(hopper, array, (128, 24), 128)
    with pytest.raises(CudaError, match="from element 3 of 4 bits, which must be an even one"):
        hopper.run(load_kernel((3, 0), 64 * 24, 64), [tensor, out])


# Shape of the tensor, box, where it lies, and steps.
@pytest.mark.parametrize(
    "case",
    [
        ((1000,), (256,), (900,), ()),
        ((20, 12, 32), (32, 5, 3), (0, 9, 18), ()),
        ((5, 6, 7, 16), (16, 4, 3, 2), (0, 5, -1, 4), ()),
        ((3, 4, 5, 6, 16), (16, 3, 2, 2, 2), (4, 4, 3, 2, 1), ()),
        ((20, 12, 32), (32, 6, 5), (0, 1, 3), (1, 2, 3)),
        ((33, 48), (16, 8), (16, 4), (2, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.int64])
def test_boxes_of_every_rank(
    hopper: Driver, dtype: type, case: tuple[tuple[int, ...], ...]
) -> None:
    shape, box, at, steps = case
    array = filled(shape, dtype)
    if any(s % 16 for s in array.strides[:-1]):
        pytest.skip("rows of these elements have no aligned stride")
    tiling = Tiling(box=box, steps=steps)
    np.testing.assert_array_equal(loaded(hopper, array, at, tiling), image(array, at, tiling))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_lies_outside_may_be_nan(hopper: Driver, dtype: type) -> None:
    array = filled((8, 16), dtype)
    tiling = Tiling(box=(16, 8), nan=True)
    found = loaded(hopper, array, (8, 4), tiling)
    np.testing.assert_array_equal(found, image(array, (8, 4), tiling))
    assert np.isnan(found.view(dtype)).sum() == 16 * 8 - 4 * 8


def test_tf32_is_rounded_on_its_way(hopper: Driver) -> None:
    array = filled((8, 16), np.float32)
    found = loaded(hopper, array, (0, 0), Tiling(box=(16, 8), kind=TFLOAT32)).view(np.uint32)
    assert not (found & 0x1FFF).any()
    np.testing.assert_allclose(found.view(np.float32), array.ravel(), rtol=2**-11)


@pytest.mark.parametrize("at", [(0, 0), (16, 30), (-8, -3)])
@pytest.mark.parametrize("swizzle", [0, 1, 3])
def test_a_store_writes_what_lies_inside(hopper: Driver, swizzle: int, at: tuple[int, int]) -> None:
    inner = 64 if swizzle == 0 else (16 << swizzle) // 2
    tiling = Tiling(box=(inner, 16), swizzle=swizzle)
    source = filled((16, inner), np.float16)
    shared = image(source, (0, 0), tiling)
    target = hopper.buffer(np.zeros((40, 64), np.float16))
    form = "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
    arguments = [encode(hopper, target, tiling), hopper.buffer(shared)]
    hopper.run(store_kernel(at, shared.size, form), arguments)
    expected = np.zeros((40 + 64, 64 + 128), np.float16)
    y, x = at[1] + 32, at[0] + 64
    expected[y : y + 16, x : x + inner] = source
    np.testing.assert_array_equal(hopper.read(target), expected[32:72, 64:128])


OPERATIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda x, a: np.where(x >= a, 0, x + 1),
    "dec": lambda x, a: np.where((x == 0) | (x > a), a, x - 1),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_reductions_of_integers(hopper: Driver, operation: str) -> None:
    before = filled((16, 32), np.uint32)
    source = filled((8, 32), np.uint32)[:, ::-1].copy()
    target = hopper.buffer(before)
    form = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta." + operation + ".bulk_group"
    arguments = [encode(hopper, target, Tiling(box=(32, 8))), hopper.buffer(source)]
    hopper.run(store_kernel((0, 5), source.nbytes, form), arguments)
    expected = before.copy()
    expected[5:13] = OPERATIONS[operation](before[5:13], source)
    np.testing.assert_array_equal(hopper.read(target), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("operation", ["add", "min", "max"])
def test_reductions_of_numbers(hopper: Driver, operation: str, dtype: type) -> None:
    if operation != "add" and dtype != np.float16:
        pytest.skip("PTX has these for halves only")
    before = filled((8, 16), dtype)
    source = filled((8, 16), dtype)[::-1].copy()
    target = hopper.buffer(before)
    form = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta." + operation + ".bulk_group"
    arguments = [encode(hopper, target, Tiling(box=(16, 8))), hopper.buffer(source)]
    hopper.run(store_kernel((0, 0), source.nbytes, form), arguments)
    np.testing.assert_array_equal(hopper.read(target), OPERATIONS[operation](before, source))
