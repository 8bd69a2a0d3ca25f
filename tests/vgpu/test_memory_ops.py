"""Loads, stores, atomics, asynchronous and matrix copies, and what is caught when they go wrong."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.harness.driver import Buffer, CudaError, Driver, entry
from boltgen.device.vgpu import Vgpu

ILLEGAL_ADDRESS = 700
MISALIGNED = 716

REGISTERS = """
.reg .pred %p, %q; .reg .b16 %h<8>; .reg .b32 %r<24>; .reg .b64 %d<16>; .reg .f32 %f<8>;
"""
# %r0 the thread, %d0 and %d1 the first two parameters.
START = """
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
"""


def two_buffers(body: str, before: str = "") -> str:
    return entry(["u64", "u64"], REGISTERS, START + body + "\nret;", before)


def at(register: str, base: str, stride: int, index: str = "%r0") -> str:
    return f"mad.wide.u32 {register}, {index}, {stride}, {base};"


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32"])
def test_narrow_loads_extend_into_wider_registers(driver: Driver, kind: str) -> None:
    size = int(kind[1:]) // 8
    source = np.arange(32, dtype=np.int64) * 77777 - 1000000
    data = driver.buffer(source.astype(f"{'i' if kind[0] == 's' else 'u'}{size}"))
    out = driver.buffer(np.zeros(32, np.int64))
    body = f"{at('%d2', '%d0', size)} ld.global.{kind} %d3, [%d2];"
    driver.run(two_buffers(body + at("%d4", "%d1", 8) + "st.global.u64 [%d4], %d3;"), [data, out])
    np.testing.assert_array_equal(driver.read(out), data.like.astype(np.int64))


def test_parameters_are_read_through_their_generic_address(driver: Driver) -> None:
    data = driver.buffer(np.zeros(1, np.uint64))
    out = driver.buffer(np.zeros(32, np.uint64))
    # As nvcc indexes an array among the parameters: lane l reads parameter l % 2.
    body = "mov.b64 %d2, p0; cvta.param.u64 %d3, %d2; and.b32 %r1, %r0, 1;"
    body += at("%d4", "%d3", 8, "%r1") + "ld.u64 %d5, [%d4];"
    driver.run(two_buffers(body + at("%d6", "%d1", 8) + "st.global.u64 [%d6], %d5;"), [data, out])
    assert driver.read(out).tolist() == [data.address, out.address] * 16


def test_a_read_past_the_parameters_is_caught(driver: Driver) -> None:
    data, out = (driver.buffer(np.zeros(32, np.uint64)) for _ in range(2))
    body = "mov.b64 %d2, p0; cvta.param.u64 %d3, %d2; ld.u64 %d5, [%d3+16];"
    with pytest.raises(CudaError) as caught:
        driver.run(two_buffers(body + "st.global.u64 [%d1], %d5;"), [data, out])
    assert caught.value.code == ILLEGAL_ADDRESS


@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
@pytest.mark.parametrize(
    ("kind", "count"), [("u32", 4), ("u32", 2), ("u64", 2), ("u16", 4), ("u8", 4)]
)
def test_vectors_pass_through_every_space(
    driver: Driver, space: str, kind: str, count: int
) -> None:
    size = int(kind[1:]) // 8
    stride = size * count
    register = "%d" if size == 8 else "%r" if size == 4 else "%h"
    names = ", ".join(f"{register}{4 + k}" for k in range(count))
    rng = np.random.default_rng(1)
    data = driver.buffer(rng.integers(0, 255, 32 * stride, np.uint8))
    out = driver.buffer(np.zeros(32 * stride, np.uint8))
    vector = f"v{count}.{kind}"
    body = at("%d2", "%d0", stride) + f"ld.global.{vector} {{{names}}}, [%d2];"
    through = {
        "global": "",
        "shared": f"mov.u32 %r2, tile; mad.lo.u32 %r2, %r0, {stride}, %r2;"
        f"st.shared.{vector} [%r2], {{{names}}}; bar.sync 0;"
        f"ld.shared.{vector} {{{names}}}, [%r2];",
        "local": f"mov.u64 %d2, depot; st.local.{vector} [%d2+16], {{{names}}};"
        f"ld.local.{vector} {{{names}}}, [%d2+16];",
        "generic": f"mov.u64 %d2, tile; cvta.shared.u64 %d2, %d2; {at('%d2', '%d2', stride)}"
        f"st.{vector} [%d2], {{{names}}}; ld.{vector} {{{names}}}, [%d2];"
        "isspacep.shared %p, %d2; @!%p trap;",
    }[space]
    declared = ".local .align 16 .b8 depot[64]; .shared .align 16 .b8 tile[1024];"
    finish = at("%d2", "%d1", stride) + f"st.global.{vector} [%d2], {{{names}}};"
    driver.run(two_buffers(declared + body + through + finish), [data, out])
    np.testing.assert_array_equal(driver.read(out), data.like)


def test_module_variables_are_initialised_and_keep_their_values(driver: Driver) -> None:
    before = """
    .const .align 4 .b32 table[4] = {10, 20, 0x1E, -4};
    .global .align 4 .f32 scale = 0f40200000;
    .global .align 8 .u64 pointer[1] = {generic(table)+8};
    .global .align 4 .u32 counter;
    """
    body = f"""
    ld.const.s32 %r1, [table+12]; ld.global.f32 %f1, [scale];
    ld.global.u64 %d2, [pointer]; ld.u32 %r2, [%d2];
    mov.u64 %d3, counter; atom.global.add.u32 %r3, [%d3], 1;
    cvt.rn.f32.s32 %f2, %r1; mul.f32 %f1, %f1, %f2; cvt.rzi.s32.f32 %r4, %f1;
    {at("%d5", "%d1", 16)} st.global.v4.u32 [%d5], {{%r1, %r2, %r3, %r4}};
    """
    out = driver.buffer(np.zeros((32, 4), np.int32))
    function = driver.function(driver.load(two_buffers(body, before)), "k")
    for launch in range(2):
        driver.launch(function, [out, out])
        found = driver.read(out)
        np.testing.assert_array_equal(found[:, 0], -4)
        np.testing.assert_array_equal(found[:, 1], 30)
        np.testing.assert_array_equal(np.sort(found[:, 2]), np.arange(32) + 32 * launch)
        np.testing.assert_array_equal(found[:, 3], -10)


@pytest.mark.parametrize(
    ("operation", "start", "expected"),
    [
        ("add.u32", 5, 5 + sum(range(256))),
        ("min.s32", 100, 0),
        ("max.u32", 7, 255),
        ("and.b32", 0xFF0F, 0),
        ("or.b32", 0x1000, 0x10FF),
        ("xor.b32", 3, 3),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_meet_from_all_threads(
    driver: Driver, operation: str, start: int, expected: int, space: str
) -> None:
    if space == "global":
        body = f"red.global.{operation} [%d1], %r0;"
    else:
        body = f"""
        .shared .align 4 .b32 cell; mov.u32 %r2, cell; setp.eq.u32 %p, %r0, 0;
        @%p st.shared.u32 [%r2], {start}; bar.sync 0;
        atom.shared.{operation} %r3, [%r2], %r0; bar.sync 0;
        ld.shared.u32 %r4, [%r2]; @%p st.global.u32 [%d1], %r4;
        """
    out = driver.buffer(np.array([start], np.uint32))
    driver.run(two_buffers(body), [out, out], block=(256, 1, 1))
    assert driver.read(out)[0] == expected


@pytest.mark.parametrize(("operation", "last"), [("inc", 256 % 100), ("dec", 100 - 256 % 100)])
def test_counting_atomics_wrap_at_their_operand(driver: Driver, operation: str, last: int) -> None:
    body = f"atom.global.{operation}.u32 %r1, [%d0], 99; {at('%d2', '%d1', 4)}"
    cell = driver.buffer(np.zeros(1, np.uint32))
    out = driver.buffer(np.zeros(256, np.uint32))
    driver.run(two_buffers(body + "st.global.u32 [%d2], %r1;"), [cell, out], block=(256, 1, 1))
    assert driver.read(cell)[0] == last
    counts = np.bincount(driver.read(out), minlength=100)
    assert counts.size == 100
    assert set(counts.tolist()) == {2, 3}


def test_atomic_float_add_and_compare_and_swap(driver: Driver) -> None:
    body = """
    mov.f32 %f1, 0f3E800000; red.global.add.f32 [%d0], %f1;
    LOOP: ld.volatile.global.u32 %r1, [%d1]; add.u32 %r2, %r1, 3;
    atom.global.cas.b32 %r3, [%d1], %r1, %r2; setp.ne.u32 %p, %r3, %r1; @%p bra LOOP;
    """
    total = driver.buffer(np.zeros(1, np.float32))
    count = driver.buffer(np.zeros(1, np.uint32))
    driver.vgpu.set_option("threads", 2)
    driver.run(two_buffers(body), [total, count], grid=(16, 1, 1), block=(96, 1, 1))
    assert driver.read(total)[0] == 16 * 96 / 4
    assert driver.read(count)[0] == 16 * 96 * 3


def _matrix_load(count: int, transposed: bool) -> str:
    names = ", ".join(f"%r{4 + k}" for k in range(count))
    trans = ".trans" if transposed else ""
    stores = "".join(f"st.global.u32 [%d2+{4 * k}], %r{4 + k};" for k in range(count))
    return two_buffers(f"""
    .shared .align 16 .b8 tile[512];
    {at("%d2", "%d0", 16)} ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d2];
    mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;
    st.shared.v4.u32 [%r1], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r1];
    {at("%d2", "%d1", 4 * count)} {stores}
    """)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_distributes_rows_or_columns(driver: Driver, count: int, transposed: bool) -> None:
    tiles = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    out = driver.buffer(np.zeros((32, count, 2), np.uint16))
    driver.run(_matrix_load(count, transposed), [driver.buffer(tiles), out])
    found = driver.read(out)
    for lane in range(32):
        for k in range(count):
            tile = tiles[k].T if transposed else tiles[k]
            column = 2 * (lane % 4)
            assert found[lane, k].tolist() == tile[lane // 4, column : column + 2].tolist()


def _async_copy(wait: str) -> str:
    return two_buffers(f"""
    .shared .align 16 .b8 tile[1024];
    mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1; {at("%d2", "%d0", 16)}
    and.b32 %r2, %r0, 1; shl.b32 %r3, %r2, 3;
    cp.async.ca.shared.global [%r1], [%d2], 16, %r3; cp.async.commit_group;
    cp.async.cg.shared.global.L2::128B [%r1+512], [%d2], 16; cp.async.commit_group;
    {wait}
    {at("%d3", "%d1", 32)}
    ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r1]; st.global.v4.u32 [%d3], {{%r4, %r5, %r6, %r7}};
    ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r1+512];
    st.global.v4.u32 [%d3+16], {{%r4, %r5, %r6, %r7}};
    """)


def _copied(driver: Driver, wait: str) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(2).integers(0, 1 << 30, (32, 4), np.uint32)
    out = driver.buffer(np.zeros((32, 8), np.uint32))
    driver.run(_async_copy(wait), [driver.buffer(data), out])
    first = data.copy()
    first[0::2] = 0  # nothing is read by even threads, 8 bytes by odd ones
    first[1::2, 2:] = 0
    return driver.read(out), np.concatenate([first, data], axis=1)


def test_async_copy_fills_with_zeros_and_is_complete_after_the_wait(driver: Driver) -> None:
    found, expected = _copied(driver, "cp.async.wait_group 0;")
    np.testing.assert_array_equal(found, expected)
    found, expected = _copied(driver, "cp.async.wait_all;")
    np.testing.assert_array_equal(found, expected)


def test_a_wait_that_is_off_by_one_shows(driver: Driver) -> None:
    found, expected = _copied(driver, "cp.async.wait_group 1;")
    np.testing.assert_array_equal(found[:, :4], expected[:, :4])
    assert (found[:, 4:] == 0xFFFFFFFF).all(), "the second group must not have arrived"
    driver.vgpu.set_option("copies", "eager")
    found, expected = _copied(driver, "cp.async.wait_group 1;")
    np.testing.assert_array_equal(found, expected)


# --- what is caught -----------------------------------------------------------------------------


def _failure(driver: Driver, ptx: str, arguments: list[Buffer | int], **shape: object) -> CudaError:
    with pytest.raises(CudaError) as caught:
        driver.run(ptx, arguments, **shape)  # type: ignore[arg-type]
    return caught.value


def test_read_past_the_end_names_kernel_block_thread_line_and_allocation(
    driver: Driver, vgpu: Vgpu
) -> None:
    body = f"mov.u32 %r1, %ctaid.y; mad.lo.u32 %r1, %r1, 32, %r0;{at('%d2', '%d0', 4, '%r1')}"
    ptx = two_buffers(f"{body}\nld.global.u32 %r2, [%d2];")
    data = driver.buffer(np.zeros(32 * 3 - 8, np.uint32))
    error = _failure(driver, ptx, [data, data], grid=(1, 3, 1))
    assert error.code == ILLEGAL_ADDRESS
    text = str(error)
    assert "out-of-bounds global read of 4 bytes" in text
    assert "kernel 'k', block (0,2,0), thread (24,0,0)" in text
    assert "ld.global.u32 %r2, [%d2];" in text
    assert "0 bytes past the end of the 352-byte allocation #" in text
    assert vgpu.last_error() in text
    with pytest.raises(CudaError):  # it stays so, as on a GPU
        driver.buffer(np.zeros(1))
    vgpu.clear_error()
    driver.buffer(np.zeros(1))


def test_write_before_the_start_is_caught(driver: Driver) -> None:
    data = driver.buffer(np.zeros(64, np.uint64))
    error = _failure(driver, two_buffers("st.global.u64 [%d0+-8], %d1;"), [data, data])
    assert "global write of 8 bytes" in str(error)
    assert "8 bytes before the start of the 512-byte allocation" in str(error)


def test_an_address_at_the_end_of_the_address_space_is_caught(driver: Driver) -> None:
    """One lane of a warp, whose others read what is theirs: the end of the range wraps to 0."""
    data = driver.buffer(np.zeros(64, np.uint32))
    driver.allocate(64 << 20)  # mapped at high addresses: the allocation that lies nearest
    body = f"{at('%d2', '%d0', 4)} setp.eq.u32 %p, %r0, 31; selp.b64 %d2, -4, %d2, %p;"
    error = _failure(driver, two_buffers(body + "ld.global.u32 %r1, [%d2];"), [data, data])
    assert error.code == ILLEGAL_ADDRESS
    assert "thread (31,0,0)" in str(error)


def test_a_negative_local_address_is_caught(driver: Driver) -> None:
    data = driver.buffer(np.zeros(64, np.uint32))
    body = ".local .align 8 .b8 mine[64]; mov.u64 %d2, -4; ld.local.u32 %r1, [%d2];"
    error = _failure(driver, two_buffers(body), [data, data])
    assert error.code == ILLEGAL_ADDRESS
    assert "local read of 4 bytes" in str(error)


def test_sizes_beyond_all_memory_are_refused(driver: Driver) -> None:
    data = driver.buffer(np.zeros(64, np.uint8))
    for size in (1 << 62, (1 << 64) - 1, (1 << 64) - data.address):
        with pytest.raises(CudaError, match="no room for"):
            driver.allocate(size)
        with pytest.raises(CudaError, match="64-byte allocation"):
            place = ctypes.c_uint64(data.address)
            driver.call("cuMemsetD8_v2", place, ctypes.c_ubyte(0), ctypes.c_size_t(size))


def test_freed_memory_is_recognised(driver: Driver) -> None:
    data = driver.buffer(np.zeros(64, np.uint64))
    driver.free(data)
    error = _failure(driver, two_buffers("ld.global.u64 %d2, [%d0+16];"), [data, data])
    assert "lies in the 512-byte freed allocation" in str(error)


def test_host_memory_is_not_accessible_until_registered(driver: Driver) -> None:
    array = np.arange(4, dtype=np.uint64)
    out = driver.buffer(np.zeros(1, np.uint64))
    ptx = two_buffers("ld.global.u64 %d2, [%d0+8]; st.global.u64 [%d1], %d2;")
    error = _failure(driver, ptx, [Buffer(array.ctypes.data, array), out])
    assert error.code == ILLEGAL_ADDRESS


def test_misaligned_access_has_its_own_error(driver: Driver) -> None:
    data = driver.buffer(np.zeros(64, np.uint64))
    error = _failure(driver, two_buffers("ld.global.v2.u32 {%r1, %r2}, [%d0+12];"), [data, data])
    assert error.code == MISALIGNED
    assert "misaligned global read of 8 bytes" in str(error)


@pytest.mark.parametrize("shared", [0, 256])
def test_shared_memory_is_as_large_as_asked_for(driver: Driver, shared: int) -> None:
    before = ".extern .shared .align 16 .b8 dynamic[];"
    body = f".shared .align 4 .b8 fixed[64]; mov.u32 %r1, fixed; st.shared.u32 [%r1], %r0; \
    mov.u32 %r1, dynamic; st.shared.u32 [%r1+{shared}], %r0;"
    data = driver.buffer(np.zeros(1))
    error = _failure(driver, two_buffers(body, before), [data, data], shared=shared)
    assert "out-of-bounds shared write of 4 bytes" in str(error)
    assert f"offset {64 + shared} of {64 + shared} bytes of shared memory" in str(error)


def test_async_copy_checks_only_what_it_reads(driver: Driver) -> None:
    data = driver.buffer(np.zeros(4, np.uint32))
    copy = """.shared .align 16 .b8 tile[512]; mov.u32 %r1, tile; add.u64 %d2, %d0, {offset};
    cp.async.cg.shared.global [%r1], [%d2], 16, {size};"""
    driver.run(two_buffers(copy.format(offset=1 << 20, size=0)), [data, data])
    error = _failure(driver, two_buffers(copy.format(offset=16, size=16)), [data, data])
    assert "global read of 16 bytes" in str(error)


def test_copies_between_host_and_device_are_checked(driver: Driver) -> None:
    data = driver.buffer(np.zeros(8, np.uint8))
    with pytest.raises(CudaError, match="8-byte allocation"):
        driver.read(Buffer(data.address, np.zeros(9, np.uint8)))
