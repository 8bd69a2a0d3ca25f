"""What kernels ask of values, addresses, clocks and the grid before theirs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from tests.vgpu.test_warp_ops import per_thread

# Zeros, subnormal numbers, the ends of the normal ones, infinities and NaNs.
_EDGES = {
    np.float32: (
        *(0, 1 << 31, 1, 0x807FFFFF, 0x00800000, 0xFF7FFFFF, 0x3F800000),
        *(0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF),
    ),
    np.float64: (
        *(0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 1 << 52, 0xFFEFFFFFFFFFFFFF),
        *(0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 0x7FF8 << 48, (1 << 64) - 1),
    ),
}


def _is_normal(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)


# Source: PTX ISA, testp.
_PROPERTIES = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": _is_normal,
    "subnormal": lambda x: np.isfinite(x) & (x != 0) & ~_is_normal(x),
}


@pytest.mark.parametrize("name", _PROPERTIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_testp(driver: Driver, name: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    bits = np.random.default_rng(3).integers(0, 1 << (8 * size - 1), 64, f"u{size}")
    bits[: len(_EDGES[dtype])] = _EDGES[dtype]
    values = bits.view(dtype)
    out = driver.buffer(np.zeros(64, np.uint32))
    body = f"""
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %d0, %r0, {size}, %d0; mad.wide.u32 %d1, %r0, 4, %d1;
    ld.global.f{8 * size} %x, [%d0]; testp.{name}.f{8 * size} %p, %x;
    selp.u32 %r1, 1, 0, %p; st.global.u32 [%d1], %r1; ret;
    """
    registers = f".reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .f{8 * size} %x;"
    driver.run(
        entry(["u64", "u64"], registers, body), [driver.buffer(values), out], block=(64, 1, 1)
    )
    np.testing.assert_array_equal(driver.read(out), _PROPERTIES[name](values).astype(np.uint32))


@pytest.mark.parametrize("asked", ["global", "shared", "local", "const"])
def test_isspacep(driver: Driver, asked: str) -> None:
    before = ".const .align 4 .b32 table[4] = {1, 2, 3, 4}; .global .align 4 .b32 word[4];"
    declared = ".shared .align 4 .b8 tile[16]; .local .align 4 .b8 depot[16];"
    places = {"global": "word", "shared": "tile", "local": "depot", "const": "table"}
    if asked == "global":
        del places["const"]  # PTX does not say whether constants count as global
    for place, symbol in places.items():
        body = f"""{declared} mov.u64 %d2, {symbol}; cvta.{place}.u64 %d2, %d2;
        add.u64 %d2, %d2, 12; isspacep.{asked} %p, %d2; selp.u32 %r9, 1, 0, %p;"""
        expected = [int(place == asked)] * 32
        assert per_thread(driver, body, before=before).tolist() == expected, place


@pytest.mark.parametrize("name", ["clock64", "globaltimer"])
def test_time_goes_on(driver: Driver, name: str) -> None:
    body = f"""
    mov.u64 %d2, %{name}; mov.u32 %r4, 0;
    AGAIN: add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 2000; @%p bra AGAIN;
    mov.u64 %d3, %{name}; setp.gt.u64 %q, %d3, %d2; selp.u32 %r9, 1, 0, %q;
    """
    assert per_thread(driver, body, threads=64).tolist() == [1] * 64


def test_clock_is_the_lower_half_of_clock64(driver: Driver) -> None:
    body = """mov.u64 %d2, %clock64; mov.u32 %r4, %clock; cvt.u32.u64 %r5, %d2;
    sub.u32 %r9, %r4, %r5;"""
    assert max(per_thread(driver, body)) < 100


def test_waiting_for_the_grid_before_changes_nothing(driver: Driver) -> None:
    body = "griddepcontrol.wait; mul.lo.u32 %r9, %r0, 7; griddepcontrol.launch_dependents;"
    assert per_thread(driver, body).tolist() == [7 * lane for lane in range(32)]
