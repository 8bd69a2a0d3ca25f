"""mma.sync of nibbles and bits, of Volta's shape, and of doubles, against numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from tests.vgpu.fragments import (
    instruction_sets,
    multiply_fragments,
    pack,
    pack_sums,
    unpack_sums,
)

RANGES = {"s4": (-8, 7), "u4": (0, 15)}


@pytest.mark.parametrize("clamps", ["", ".satfinite"])
@pytest.mark.parametrize("types", list(product(RANGES, RANGES)), ids=".".join)
@pytest.mark.parametrize(("m", "k"), [(8, 32), (16, 32), (16, 64)])
def test_nibbles(driver: Driver, m: int, k: int, types: tuple[str, str], clamps: str) -> None:
    a_type, b_type = types
    rng = np.random.default_rng(m + k)
    # CUTLASS writes .satfinite last for 16 rows, and before the types for 8.
    named = f"s32.{a_type}.{b_type}.s32"
    tail = f"{named}{clamps}" if m == 16 else f"{clamps}.{named}".lstrip(".")
    name = f"mma.sync.aligned.m{m}n8k{k}.row.col.{tail}"
    for limit in (1000, 2**31 - 1):
        low, high = RANGES[a_type]
        a = rng.choice([low, high, *range(low, high + 1)], (m, k))
        low, high = RANGES[b_type]
        b = rng.choice([low, high, *range(low, high + 1)], (8, k))
        c = rng.choice([-limit - 1, limit], (m, 8)).astype(np.int32)
        exact = a @ b.T + c
        wanted = np.clip(exact, -(2**31), 2**31 - 1) if clamps else (exact + 2**31) % 2**32 - 2**31
        for isa in instruction_sets(driver):
            driver.vgpu.set_option("isa", isa)
            words = multiply_fragments(driver, name, pack(a, 4), pack(b, 4), pack_sums(c))
            np.testing.assert_array_equal(unpack_sums(words, m, c.dtype), wanted)


@pytest.mark.parametrize("operation", ["xor", "and"])
@pytest.mark.parametrize(("m", "k"), [(8, 128), (16, 128), (16, 256)])
def test_bits(driver: Driver, m: int, k: int, operation: str) -> None:
    rng = np.random.default_rng(k)
    a = rng.integers(0, 2, (m, k))
    b = rng.integers(0, 2, (8, k))
    c = rng.integers(-(2**31), 2**31, (m, 8)).astype(np.int32)
    pairs = a[:, None, :] ^ b[None] if operation == "xor" else a[:, None, :] & b[None]
    wanted = (pairs.sum(axis=2) + c + 2**31) % 2**32 - 2**31
    name = f"mma.sync.aligned.m{m}n8k{k}.row.col.s32.b1.b1.s32.{operation}.popc"
    words = multiply_fragments(driver, name, pack(a, 1), pack(b, 1), pack_sums(c))
    np.testing.assert_array_equal(unpack_sums(words, m, c.dtype), wanted)


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_doubles(driver: Driver, m: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b, c = (rng.standard_normal(shape) for shape in ((m, k), (8, k), (m, 8)))
    name = f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64"
    found = unpack_sums(
        multiply_fragments(driver, name, pack(a), pack(b), pack_sums(c)), m, c.dtype
    )
    bound = k * 2.0**-53 * (np.abs(a) @ np.abs(b).T + np.abs(c))
    assert (np.abs(found - (a @ b.T + c)) <= 2 * bound).all()  # numpy rounds as often


# --- Volta: four products of 8x8x4, one for each group of eight lanes -----------------------------


def _lanes(q: int) -> list[int]:
    """Lanes of product q: four hold the lower rows or columns, four the upper."""
    return [*range(4 * q, 4 * q + 4), *range(4 * q + 16, 4 * q + 20)]


def _pack_volta(lines: Array, *, straight: bool) -> Array:
    """Registers of A [q, row, k], or of B [q, column, k]: four halves a lane, along k (straight: A
    by rows, B by columns) or across it."""
    registers = np.zeros((32, 4), np.float16)
    for q in range(4):
        for i, lane in enumerate(_lanes(q)):
            first = 4 * (lane // 16)
            registers[lane] = lines[q, i] if straight else lines[q, first : first + 4, lane % 4]
    return registers.view(np.uint32)


def _sum_positions(lane: int, dtype: type) -> list[tuple[int, int]]:
    """Row and column of the eight elements of a lane."""
    upper = 4 * (lane // 16)
    if dtype == np.float16:
        return [(lane % 4 + upper, i) for i in range(8)]
    return [((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)) for i in range(8)]


def _pack_volta_sums(c: Array) -> Array:
    out = np.zeros((32, 8), c.dtype)
    for q in range(4):
        for lane in _lanes(q):
            for i, (row, column) in enumerate(_sum_positions(lane, c.dtype.type)):
                out[lane, i] = c[q, row, column]
    return out.view(np.uint32)


@pytest.mark.parametrize("types", [("f32", "f32"), ("f32", "f16"), ("f16", "f16")], ids=".".join)
@pytest.mark.parametrize("layouts", ["row.col", "row.row", "col.col", "col.row"])
def test_volta(driver: Driver, layouts: str, types: tuple[str, str]) -> None:
    dtypes = [np.dtype(np.float32 if t == "f32" else np.float16) for t in types]
    rng = np.random.default_rng(4)
    a = rng.standard_normal((4, 8, 4)).astype(np.float16)
    b = rng.standard_normal((4, 8, 4)).astype(np.float16)  # [q, column, k]
    c = rng.standard_normal((4, 8, 8)).astype(dtypes[1])
    a_layout, b_layout = layouts.split(".")
    name = f"mma.sync.aligned.m8n8k4.{layouts}.{types[0]}.f16.f16.{types[1]}"
    words = multiply_fragments(
        driver,
        name,
        _pack_volta(a, straight=a_layout == "row"),
        _pack_volta(b, straight=b_layout == "col"),
        _pack_volta_sums(c),
        results=8 if types[0] == "f32" else 4,
    )
    elements = np.ascontiguousarray(words).view(dtypes[0])
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact = np.einsum("qmk,qnk->qmn", wide_a, wide_b) + c
    magnitude = np.einsum("qmk,qnk->qmn", np.abs(wide_a), np.abs(wide_b)) + np.abs(c)
    bound = 4 * 2.0**-24 * magnitude
    if types[0] == "f16":
        bound += 2.0**-11 * np.abs(exact) + 2.0**-25
    for q in range(4):
        for lane in _lanes(q):
            for i, (row, column) in enumerate(_sum_positions(lane, dtypes[0].type)):
                error = abs(float(elements[lane, i]) - exact[q, row, column])
                assert error <= bound[q, row, column], (q, lane, i)


@pytest.mark.parametrize(
    ("layouts", "found"), [("row.col", [0, 1, 4, 5]), ("col.col", [2, 3, 6, 7])]
)
def test_what_nothing_wrote_spoils_its_rows_of_a_volta_product(
    driver: Driver, layouts: str, found: list[int]
) -> None:
    # The second register of A is unset in lane 5: row 1 of product 1, or by columns its rows 2, 3.
    driver.vgpu.set_option("check", "initcheck")
    spoilt = []
    for element in range(8):
        driver.vgpu.clear_findings()
        body = f"""
            mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 5; @%p mov.u32 %r1, 0;
            mov.u32 %r0, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
            mma.sync.aligned.m8n8k4.{layouts}.f32.f16.f16.f32 {{%o0, %o1, %o2, %o3, %o4, %o5, %o6,
            %o7}}, {{%r0, %r1}}, {{%r2, %r3}}, {{%z, %z, %z, %z, %z, %z, %z, %z}};
            ld.param.u64 %d, [p0]; mad.wide.u32 %d, %t, 4, %d; st.global.u32 [%d], %o{element};
            ret;"""
        registers = ".reg .pred %p; .reg .b32 %t, %z, %r<4>, %o<8>; .reg .b64 %d;"
        out = driver.allocate(128)
        driver.run(entry(["u64"], registers, "mov.u32 %z, 0;" + body), [out])
        driver.read(out)
        driver.free(out)
        if driver.vgpu.findings():
            spoilt.append(element)
    assert spoilt == found
