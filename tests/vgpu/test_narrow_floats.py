"""FP8 and TF32 conversions, saturation to finite numbers, and flushed halves, on raw bits."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver
from tests.vgpu.fragments import multiply_fragments, pack, pack_sums, unpack_sums
from tests.vgpu.lanes import COUNT, operands, run_instruction
from tests.vgpu.rounding import BF16, F16, F32, F64, Format, bits_f32

EIGHT_BITS = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def _encode(kind: str, value: float, *, relu: bool = False) -> int:
    """To nearest even, clamped; NaN in its canonical form."""
    if np.isnan(value):
        return 0x7F
    clamped = np.clip(np.float32(value), -LARGEST[kind], LARGEST[kind])
    bits = int(np.asarray(clamped).astype(EIGHT_BITS[kind]).view(np.uint8))
    return 0 if relu and bits >> 7 else bits


def _between(kind: str) -> list[int]:
    """Every number of the type, the middles between neighbours and what lies beside these, as f32,
    of which COUNT are drawn."""
    numbers = np.arange(256, dtype=np.uint8).view(EIGHT_BITS[kind]).astype(np.float32)
    finite = sorted(float(x) for x in numbers if np.isfinite(x))
    middles = [bits_f32((x + y) / 2) for x, y in pairwise(finite) if x != y]
    values = [bits + d for bits in middles for d in (-1, 0, 1) if bits & 0x7FFFFFFF]
    values += [bits_f32(x) for x in (*finite, 1e9, -1e9, LARGEST[kind] * 1.03)]
    return [int(v) for v in np.random.default_rng(8).choice(values, COUNT)]


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_floats_to_eight_bits(driver: Driver, kind: str, relu: bool) -> None:
    name = f"cvt.rn.satfinite{'.relu' if relu else ''}.{kind}x2.f32"
    for columns in ([_between(kind), _between(kind)[::-1]], operands(("f32", "f32"))):
        found, _ = run_instruction(driver, f"{name} %d, %a, %b;", ("f32", "f32"), "u16", columns)
        upper, lower = (np.array(c, np.uint32).view(np.float32) for c in columns)
        wanted = [
            _encode(kind, x, relu=relu) << 8 | _encode(kind, y, relu=relu)
            for x, y in zip(upper, lower, strict=True)
        ]
        assert found.tolist() == wanted


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_halves_to_eight_bits(driver: Driver, kind: str) -> None:
    (column,) = operands(("u32",))
    halves = zip(*operands(("f16", "f16")), strict=True)
    column = column[: COUNT // 2] + [a | b << 16 for a, b in halves][::2]
    instruction = f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;"
    found, _ = run_instruction(driver, instruction, ("u32",), "u16", [column])
    values = np.array(column, np.uint32).view(np.float16).astype(np.float32).reshape(-1, 2)
    assert found.tolist() == [_encode(kind, y) << 8 | _encode(kind, x) for x, y in values]


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_eight_bits_to_halves(driver: Driver, kind: str, relu: bool) -> None:
    column = [k | (255 - k) << 8 for k in range(COUNT)]
    name = f"cvt.rn{'.relu' if relu else ''}.f16x2.{kind}x2"
    found, _ = run_instruction(driver, f"{name} %d, %a;", ("u16",), "u32", [column])

    def half(byte: int) -> int:
        value = np.uint8(byte).view(EIGHT_BITS[kind]).astype(np.float16)
        if np.isnan(value):
            return F16.nan
        return 0 if relu and value < 0 else int(value.view(np.uint16))

    wanted = [half(pair & 255) | half(pair >> 8) << 16 for pair in column]
    # max(-0, 0) may have either sign.
    signs = 0x7FFF7FFF if relu else 0xFFFFFFFF
    assert [x & signs for x in found.tolist()] == [x & signs for x in wanted]


@pytest.mark.parametrize("d", ["f32", "f16"])
@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_products_of_eight_bits(driver: Driver, k: int, d: str, types: tuple[str, str]) -> None:
    rng = np.random.default_rng(k)
    a, b = (
        rng.standard_normal(shape).astype(EIGHT_BITS[t])
        for shape, t in zip(((16, k), (8, k)), types, strict=True)
    )
    c = rng.standard_normal((16, 8)).astype(np.float32 if d == "f32" else np.float16)
    name = f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{types[0]}.{types[1]}.{d}"
    words = multiply_fragments(driver, name, pack(a), pack(b), pack_sums(c))
    found = unpack_sums(words, 16, c.dtype)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact = wide_a @ wide_b.T + c
    bound = k * 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b).T + np.abs(c))
    if d == "f16":
        bound += 2.0**-11 * np.abs(exact) + 2.0**-25
    assert (np.abs(found - exact) <= bound).all()


# --- TF32: an f32 of which 10 bits of the fraction count ------------------------------------------

TF32 = Format(19, 10, 127, 0x7FFFFFFF >> 13)


@pytest.mark.parametrize("modifiers", ["rn", "rz", "rna", "rn.relu", "rn.satfinite"])
def test_floats_to_tf32(driver: Driver, modifiers: str) -> None:
    columns = [[*_between("e5m2")[:100], *operands(("f32",))[0]][:COUNT]]
    rng = np.random.default_rng(3)
    columns[0][50:100] = [0x3F801000 + (int(n) << 13) for n in rng.integers(0, 99, 50)]  # halfway
    found, _ = run_instruction(
        driver, f"cvt.{modifiers}.tf32.f32 %d, %a;", ("f32",), "u32", columns
    )
    for bits, result in zip(columns[0], found.tolist(), strict=True):
        if F32.is_nan(bits):
            assert result == F32.nan
            continue
        negative = bool(bits >> 31)
        if F32.is_inf(bits):
            wanted = bits >> 13
        else:
            value = F32.value(bits)
            if "rna" in modifiers:  # halfway goes away from zero: a little more decides it
                value *= 1 + Fraction(1, 1 << 60)
            wanted = TF32.round(value, modifiers[:2], negative_zero=negative)
        if "satfinite" in modifiers and TF32.is_inf(wanted):
            wanted -= 1
        if "relu" in modifiers and negative:
            wanted = 0
        # max(-0, 0) may have either sign.
        assert result in (wanted << 13, 1 << 31 if wanted == 0 else wanted << 13), hex(bits)


def test_doubles_to_bfloat_are_rounded_once(driver: Driver) -> None:
    columns = operands(("f64",))
    # One and a half units in the last place of BF16, and a bit that f32 would lose.
    columns[0][:2] = [0x3FF0100000000001, 0x3FF0100000000000]
    columns[0][2:4] = [0x3FF00FFFFFFFFFFF, 0xBFF0300000000001]
    found, _ = run_instruction(driver, "cvt.rn.bf16.f64 %d, %a;", ("f64",), "u16", columns)
    for bits, result in zip(columns[0], found.tolist(), strict=True):
        if F64.is_nan(bits):
            assert result == BF16.nan
        elif F64.is_inf(bits):
            assert result == (bits >> 63) << 15 | 0x7F80
        else:
            negative = bool(bits >> 63)
            assert result == BF16.round(F64.value(bits), negative_zero=negative), hex(bits)


@pytest.mark.parametrize(("name", "form"), [("f16", F16), ("bf16", BF16)])
def test_saturation_to_finite_numbers(driver: Driver, name: str, form: Format) -> None:
    instruction = f"cvt.rn.satfinite.{name}.f32 %d, %a;"
    found, _ = run_instruction(driver, instruction, ("f32",), "u16")
    pairs, _ = run_instruction(
        driver, f"cvt.rn.satfinite.{name}x2.f32 %d, %a, %a;", ("f32",), "u32"
    )
    assert pairs.tolist() == [x << 16 | x for x in found.tolist()]
    infinite = form.exponent_mask << form.mantissa
    for bits, result in zip(operands(("f32",))[0], found.tolist(), strict=True):
        if F32.is_nan(bits):
            assert result == form.nan
            continue
        sign = (bits >> 31) << 15
        if F32.is_inf(bits):
            wanted = sign | infinite
        else:
            wanted = form.round(F32.value(bits), negative_zero=bool(bits >> 31))
        assert result == (wanted - 1 if wanted & 0x7FFF == infinite else wanted), hex(bits)


# --- .ftz and .xorsign of halves ------------------------------------------------------------------


def _flush(values: Array, form: Format) -> Array:
    exponent = values >> form.mantissa & form.exponent_mask
    flushed: Array = np.where(exponent == 0, values & 0x8000, values)
    return flushed


@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma.rn", "min", "max.NaN", "abs", "neg"])
def test_flushed_halves(driver: Driver, op: str) -> None:
    """The same operation without .ftz, between flushes of sources and result by numpy."""
    count = 3 if op == "fma.rn" else 1 if op in ("abs", "neg") else 2
    columns = operands(("f16",) * count)
    rng = np.random.default_rng(1)
    for column in columns:  # many subnormals, and products that are
        column[128:192] = [int(x) for x in rng.integers(0, 0x800, 64)]
        column[192:] = [int(x) | 0x8000 for x in rng.integers(0x1400, 0x2400, 64)]
    base, _, rest = op.partition(".")
    named = f"{base}.{rest + '.' if rest == 'rn' else ''}ftz{'.NaN' if rest == 'NaN' else ''}"
    arguments = ", ".join(f"%{name}" for name in "abc"[:count])
    kinds = ("f16",) * count
    found, _ = run_instruction(driver, f"{named}.f16 %d, {arguments};", kinds, "f16", columns)
    sources = [_flush(np.array(c), F16).tolist() for c in columns]
    plain, _ = run_instruction(driver, f"{op}.f16 %d, {arguments};", kinds, "f16", sources)
    np.testing.assert_array_equal(found, _flush(plain, F16))
    doubled = [[x << 16 | x for x in column] for column in columns]
    packed, _ = run_instruction(
        driver, f"{named}.f16x2 %d, {arguments};", ("u32",) * count, "u32", doubled
    )
    np.testing.assert_array_equal(packed & 0xFFFF, found)
    np.testing.assert_array_equal(packed >> 16, found)


def test_comparisons_of_flushed_halves(driver: Driver) -> None:
    columns = [[1, 0x8001, 0x3FF, 0x400] * 64, [0, 0, 0x3FF, 0] * 64]
    instruction = "set.eq.ftz.u32.f16 %d, %a, %b;"
    found, _ = run_instruction(driver, instruction, ("f16", "f16"), "u32", columns)
    assert found.tolist() == [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0] * 64


@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_of_magnitudes(driver: Driver, op: str, nan: str) -> None:
    for kind, form in (("f32", F32), ("f16", F16)):
        instruction = f"{op}{nan}.xorsign.abs.{kind} %d, %a, %b;"
        found, _ = run_instruction(driver, instruction, (kind, kind), kind)
        top = 1 << (form.bits - 1)
        for a, b, result in zip(*operands((kind, kind)), found.tolist(), strict=True):
            x, y = a & (top - 1), b & (top - 1)
            numbers = [v for v in (x, y) if not form.is_nan(v)]
            if not numbers or (nan and len(numbers) < 2):
                assert result == form.nan
            else:
                wanted = max(numbers) if op == "max" else min(numbers)
                assert result == wanted | ((a ^ b) & top), (hex(a), hex(b))
