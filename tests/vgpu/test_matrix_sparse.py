"""mma.sp: products with a sparse A against numpy, on every instruction set of the host."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, Buffer, CudaError, Driver
from boltgen.device.vgpu import Vgpu
from tests.vgpu.fragments import (
    instruction_sets,
    multiply_fragments,
    pack,
    pack_sums,
    unpack_sums,
)


@dataclass(frozen=True)
class Sparse:
    """One instruction: D[16, 8] = A[16, k] B[k, 8] + C, of A half is stored."""

    k: int
    a: str
    b: str
    d: str
    selector: int
    clamps: bool = False
    ordered: bool = True

    @property
    def name(self) -> str:
        prefix = "mma.sp" + ("::ordered_metadata" if self.ordered else "")
        types = f"{self.d}.{self.a}.{self.b}.{self.d}" + (".satfinite" if self.clamps else "")
        return f"{prefix}.sync.aligned.m16n8k{self.k}.row.col.{types}"

    @property
    def group(self) -> int:
        """How many elements of K a choice is made among."""
        return {"tf32": 2, "s4": 8, "u4": 8}.get(self.a, 4)


FLOAT = [
    *(Sparse(16, "f16", "f16", "f32", selector) for selector in range(4)),
    *(Sparse(32, "f16", "f16", d, selector) for selector in (0, 1) for d in ("f32", "f16")),
    *(Sparse(k, "bf16", "bf16", "f32", 1, ordered=False) for k in (16, 32)),
    *(Sparse(k, "tf32", "tf32", "f32", 1) for k in (8, 16)),
    *(Sparse(64, a, b, "f32", 0) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
]
INTEGER = [
    *(Sparse(32, a, b, "s32", selector) for selector in (0, 1) for a, b in (("s8", "u8"),)),
    *(Sparse(64, a, b, "s32", 0) for a in ("s8", "u8") for b in ("s8", "u8")),
    *(Sparse(64, "u4", "s4", "s32", selector, clamps=True) for selector in (0, 1)),
    *(Sparse(128, a, b, "s32", 0) for a in ("s4", "u4") for b in ("s4", "u4")),
    Sparse(64, "s8", "s8", "s32", 0, clamps=True, ordered=False),
    Sparse(128, "s4", "s4", "s32", 0, clamps=True),
]
DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "s4": np.dtype(np.int8),
    "u4": np.dtype(np.uint8),
    "s32": np.dtype(np.int32),
}
BITS = {"s4": 4, "u4": 4}


def random_of(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    if kind[0] in "su":
        bits = int(kind[1:])
        low = -(1 << bits - 1) if kind[0] == "s" else 0
        return rng.integers(low, low + (1 << bits), shape).astype(DTYPES[kind])
    values = rng.normal(0, 1, shape).astype(DTYPES[kind])
    if kind == "tf32":
        values = (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return values


def choices(rng: np.random.Generator, op: Sparse) -> Array:
    """Places [16, k / 2] of what is stored; nibbles are stored in pairs."""
    rows = []
    for _ in range(16):
        row: list[int] = []
        for first in range(0, op.k, op.group):
            if op.group == 2:
                row.append(first + int(rng.integers(2)))
                continue
            two = np.sort(rng.choice(4, 2, replace=False))
            if op.group == 4:
                row += [first + int(n) for n in two]
            else:
                row += [first + 2 * int(n) + half for n in two for half in (0, 1)]
        rows.append(row)
    return np.array(rows)


def metadata(rng: np.random.Generator, op: Sparse, places: Array) -> Array:
    """The registers of a warp. Source: PTX ISA, "Sparse matrix storage": what row g and row g + 8
    have of 16 bits each lies in one register of lane 4g + n; where a row has 32 bits or more, each
    has its own. What the selector does not name is random."""
    words = rng.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    inside = places % op.group
    if op.group == 2:
        codes, width = np.where(inside == 1, 0b1110, 0b0100), 4
    elif op.group == 8:
        codes, width = inside[:, ::2] // 2, 2
    else:
        codes, width = inside, 2
    bits = [sum(int(c) << width * n for n, c in enumerate(row)) for row in codes]
    for g in range(8):
        upper, lower = bits[g], bits[g + 8]
        if op.a in ("f16", "bf16", "tf32"):
            halves = codes.shape[1] * width // 16
            for n in range(halves):
                part = (upper >> 16 * n & 0xFFFF) | (lower >> 16 * n & 0xFFFF) << 16
                words[4 * g + halves * op.selector + n] = part
        else:
            for n in range(codes.shape[1] * width // 32):
                at = 4 * g + 2 * (op.selector + n)
                words[at], words[at + 1] = (
                    upper >> 32 * n & 0xFFFFFFFF,
                    lower >> 32 * n & 0xFFFFFFFF,
                )
    return words


def multiply(
    driver: Driver,
    op: Sparse,
    operands: tuple[Array, Array, Array],
    words: Buffer,
    name: str = "",
) -> Array:
    """The operands are what is stored of A, B transposed, and C."""
    a, b, c = operands
    found = multiply_fragments(
        driver,
        name or op.name,
        pack(a, BITS.get(op.a)),
        pack(b, BITS.get(op.b)),
        pack_sums(c),
        metadata=(words.address, op.selector),
    )
    return unpack_sums(found, 16, c.dtype)


@pytest.mark.parametrize("op", [*FLOAT, *INTEGER], ids=lambda op: f"{op.name[7:]}-{op.selector}")
def test_products(driver: Driver, vgpu: Vgpu, op: Sparse) -> None:
    rng = np.random.default_rng(0)
    places = choices(rng, op)
    stored, b = random_of(rng, op.a, (16, op.k // 2)), random_of(rng, op.b, (8, op.k))
    words = driver.buffer(metadata(rng, op, places))
    c = (
        rng.integers(-100, 100, (16, 8)).astype(np.int32)
        if op.d == "s32"
        else random_of(rng, op.d, (16, 8))
    )
    if op.clamps:
        c[:8], c[8:] = 0x7FFFFFFF, -0x80000000
    dense = np.zeros((16, op.k))
    np.put_along_axis(dense, places, stored.astype(np.float64), axis=1)
    want = dense @ b.astype(np.float64).T + c
    if op.d == "s32":
        want = np.clip(want, -0x80000000, 0x7FFFFFFF)
    for isa in instruction_sets(driver):
        vgpu.set_option("isa", isa)
        found = multiply(driver, op, (stored, b, c), words).astype(np.float64)
        tolerance = {"f16": 2e-2, "f32": 1e-4, "s32": 0}[op.d]
        np.testing.assert_allclose(found, want, rtol=0, atol=tolerance)


def test_what_is_not_chosen_is_not_multiplied(driver: Driver) -> None:
    """An infinity of B spoils the rows only that have a number for it."""
    op = Sparse(16, "f16", "f16", "f32", 0)
    rng = np.random.default_rng(1)
    places = np.tile([0, 1, 4, 5, 8, 9, 12, 13], (16, 1))
    places[3, 1] = 2
    b = np.ones((8, 16), np.float16)
    b[:, 2] = np.inf
    found = multiply(
        driver,
        op,
        (np.ones((16, 8), np.float16), b, np.zeros((16, 8), np.float32)),
        driver.buffer(metadata(rng, op, places)),
    )
    assert np.isinf(found[3]).all()
    np.testing.assert_array_equal(np.delete(found, 3, axis=0), 8)


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 2),
        ("mma.sp.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32", 0),
        ("mma.sp::other.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 0),
    ],
)
def test_what_the_manual_does_not_allow_is_refused(
    driver: Driver, name: str, selector: int
) -> None:
    op = Sparse(int(name.split("m16n8k")[1][:2]), "f16", "f16", "f32", selector)
    a, b = np.zeros((16, op.k // 2), np.float16), np.zeros((8, op.k), np.float16)
    words = driver.buffer(np.zeros(32, np.uint32))
    with pytest.raises(CudaError, match=r"does not know this instruction|selector"):
        multiply(driver, op, (a, b, np.zeros((16, 8), np.float32)), words, name)


@pytest.mark.parametrize("undefined", [False, True])
def test_undefined_metadata_is_found(checked: Driver, undefined: bool) -> None:
    op = Sparse(64, "s8", "s8", "s32", 0)
    words = checked.allocate(128)
    if not undefined:
        checked.fill(words, 0x44)
    zeros = (np.zeros((16, 32), np.int8), np.zeros((8, 64), np.int8), np.zeros((16, 8), np.int32))
    multiply(checked, op, zeros, words)
    found = [finding.check for finding in checked.vgpu.findings()]
    assert found == (["initcheck"] if undefined else [])
