"""mma.sync: every shape and type against numpy, on every instruction set of the host.

The order of the sums is the virtual GPU's own, so floating-point results are compared within a
bound that is derived from it; integers, and the instruction sets among each other, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver, entry
from tests.vgpu.fragments import (
    instruction_sets,
    multiply_fragments,
    pack,
    pack_sums,
    unpack_sums,
)


@dataclass(frozen=True)
class Mma:
    """One instruction: D[m, 8] = A[m, k] B[k, 8] + C."""

    m: int
    k: int
    a: str
    b: str
    d: str
    clamps: bool = False
    clamps_last: bool = False  # both places of .satfinite are in use

    @property
    def name(self) -> str:
        shape = f"mma.sync.aligned.m{self.m}n8k{self.k}.row.col"
        types = f"{self.d}.{self.a}.{self.b}.{self.d}"
        if not self.clamps:
            return f"{shape}.{types}"
        return f"{shape}.{types}.satfinite" if self.clamps_last else f"{shape}.satfinite.{types}"


FLOAT = [
    *(Mma(16, k, "f16", "f16", d) for k in (8, 16) for d in ("f32", "f16")),
    *(Mma(16, k, "bf16", "bf16", "f32") for k in (8, 16)),
    *(Mma(16, k, "tf32", "tf32", "f32") for k in (4, 8)),
]
INTEGER = [
    Mma(m, k, a, b, "s32", clamps, clamps_last=m == 16)
    for m, k in ((8, 16), (16, 16), (16, 32))
    for a in ("s8", "u8")
    for b in ("s8", "u8")
    for clamps in (False, True)
]

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "s32": np.dtype(np.int32),
}


def multiply(driver: Driver, mma: Mma, a: Array, b: Array, c: Array) -> Array:
    """The instruction in one warp. `b` is [8, k]."""
    words = multiply_fragments(driver, mma.name, pack(a), pack(b), pack_sums(c))
    return unpack_sums(words, mma.m, c.dtype)


def _tf32(values: Array) -> Array:
    """What tensor cores see of a 32-bit word."""
    kept: Array = values.view(np.uint32) & np.uint32(0xFFFFE000)
    return kept.view(np.float32)


def _float_operands(mma: Mma, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((16, mma.k)).astype(DTYPES[mma.a])
    b = rng.standard_normal((8, mma.k)).astype(DTYPES[mma.b])
    return a, b, rng.standard_normal((16, 8)).astype(DTYPES[mma.d])


@pytest.mark.parametrize("mma", FLOAT, ids=lambda mma: mma.name)
def test_float_products(driver: Driver, mma: Mma) -> None:
    a, b, c = _float_operands(mma, seed=mma.k)
    found = multiply(driver, mma, a, b, c)
    if mma.a == "tf32":
        a, b = _tf32(a), _tf32(b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact = wide_a @ wide_b.T + c
    # k + 1 terms, k roundings to f32 of sums no larger than the sum of magnitudes, and one to D.
    magnitude = np.abs(wide_a) @ np.abs(wide_b).T + np.abs(c)
    bound = mma.k * 2.0**-24 * magnitude
    if mma.d == "f16":
        bound += 2.0**-11 * np.abs(exact) + 2.0**-25
    assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize("mma", FLOAT, ids=lambda mma: mma.name)
def test_float_products_have_the_same_bits_on_every_instruction_set(
    driver: Driver, mma: Mma
) -> None:
    size = DTYPES[mma.a].itemsize
    rng = np.random.default_rng(5)
    cases = [_float_operands(mma, seed) for seed in range(3)]
    for _ in range(3):  # any bits: subnormals, infinities and NaN among them
        bits = [
            rng.integers(0, 256, (rows, mma.k * size), dtype=np.uint8).view(f"u{size}")
            for rows in (16, 8)
        ]
        a, b = (x.view(DTYPES[mma.a]) for x in bits)
        cases.append((a, b, _float_operands(mma, 9)[2]))
    small = [(x.view(f"u{size}") >> 3).view(x.dtype) for x in cases[0][:2]]
    cases.append((small[0], small[1], np.zeros((16, 8), DTYPES[mma.d])))
    for a, b, c in cases:
        found = []
        for isa in instruction_sets(driver):
            driver.vgpu.set_option("isa", isa)
            found.append(multiply(driver, mma, a, b, c).view(f"u{c.dtype.itemsize}"))
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


def _integers(
    rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[np.generic]
) -> Array:
    low, high = (-128, 127) if dtype == np.int8 else (0, 255)
    values = rng.integers(low, high + 1, shape)
    extreme = rng.integers(0, 4, shape)
    return np.where(extreme == 0, low, np.where(extreme == 1, high, values)).astype(dtype)


@pytest.mark.parametrize("mma", INTEGER, ids=lambda mma: mma.name)
def test_integer_products_are_exact_on_every_instruction_set(driver: Driver, mma: Mma) -> None:
    rng = np.random.default_rng(mma.k + mma.m)
    for limit in (1000, 2**31 - 1):  # sums that fit, and sums that do not
        a = _integers(rng, (mma.m, mma.k), DTYPES[mma.a])
        b = _integers(rng, (8, mma.k), DTYPES[mma.b])
        c = rng.choice([-limit - 1, limit], (mma.m, 8)).astype(np.int32)
        exact = a.astype(np.int64) @ b.astype(np.int64).T + c
        if mma.clamps:
            wanted = np.clip(exact, -(2**31), 2**31 - 1)
        else:
            wanted = (exact + 2**31) % 2**32 - 2**31
        for isa in instruction_sets(driver):
            driver.vgpu.set_option("isa", isa)
            np.testing.assert_array_equal(multiply(driver, mma, a, b, c), wanted)


def test_tf32_ignores_the_low_bits_of_its_operands(driver: Driver) -> None:
    mma = Mma(16, 8, "tf32", "tf32", "f32")
    a, b, c = _float_operands(mma, seed=1)
    noisy = [(x.view(np.uint32) | np.uint32(0x1FFF)).view(np.float32) for x in (a, b)]
    clean = multiply(driver, mma, _tf32(a), _tf32(b), c)
    np.testing.assert_array_equal(multiply(driver, mma, noisy[0], noisy[1], c), clean)


@pytest.mark.parametrize(
    "name",
    [
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ],
)
def test_other_products_are_refused_by_name(driver: Driver, name: str) -> None:
    body = f"{name} {{%r0,%r1,%r2,%r3}}, {{%r0,%r1}}, {{%r0}}, {{%r0,%r1,%r2,%r3}}; ret;"
    with pytest.raises(CudaError, match=name.replace(".", r"\.")):
        driver.run(entry(["u64"], ".reg .b32 %r<4>;", body), [0, 0])
