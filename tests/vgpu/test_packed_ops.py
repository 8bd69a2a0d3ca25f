"""Instructions on parts of a word, and conversions of integers to narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Driver, entry
from tests.vgpu.lanes import container, operands, run_instruction, width
from tests.vgpu.rounding import BF16, F16, F32, Format

WORD = (1 << 32) - 1


def _parts(word: int, bits: int, sign: bool) -> list[int]:
    values = [word >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [v - (1 << bits) if sign and v >> (bits - 1) else v for v in values]


def _dot2(half: str, a_sign: bool, b_sign: bool) -> Callable[[int, int, int], int]:
    def dot(a: int, b: int, c: int) -> int:
        chosen = _parts(b, 8, b_sign)[2 * (half == "hi") :][:2]
        pairs = zip(_parts(a, 16, a_sign), chosen, strict=True)
        return (c + sum(x * y for x, y in pairs)) & WORD

    return dot


def _dot4(a_sign: bool, b_sign: bool) -> Callable[[int, int, int], int]:
    def dot(a: int, b: int, c: int) -> int:
        pairs = zip(_parts(a, 8, a_sign), _parts(b, 8, b_sign), strict=True)
        return (c + sum(x * y for x, y in pairs)) & WORD

    return dot


def _differences(bits: int, sign: bool) -> Callable[[int, int, int], int]:
    def total(a: int, b: int, c: int) -> int:
        pairs = zip(_parts(a, bits, sign), _parts(b, bits, sign), strict=True)
        return (c + sum(abs(x - y) for x, y in pairs)) & WORD

    return total


def _pairwise(choose: Callable[[int, int], int], sign: bool) -> Callable[[int, int], int]:
    def apply(a: int, b: int) -> int:
        low, high = map(choose, _parts(a, 16, sign), _parts(b, 16, sign))
        return (low & 0xFFFF) | (high & 0xFFFF) << 16

    return apply


def _nth_set(mask: int, base: int, offset: int) -> int:
    offset = offset - (1 << 32) if offset >> 31 else offset
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else WORD
    places = range(base, 32) if offset > 0 else range(min(base, 31), -1, -1)
    found = [k for k in places if mask >> k & 1] if offset > 0 or base < 32 else []
    return found[abs(offset) - 1] if len(found) >= abs(offset) else WORD


def _positive(choose: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def apply(a: int, b: int) -> int:
        return max(choose(*(v - (1 << 32) if v >> 31 else v for v in (a, b))), 0)

    return apply


def _pack(bits: int, sign: bool) -> Callable[..., int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)

    def pack(a: int, b: int, c: int = 0) -> int:
        narrow = [
            min(max(v - (1 << 32) if v >> 31 else v, low), high) % (1 << bits) for v in (a, b)
        ]
        return (c << 2 * bits | narrow[0] << bits | narrow[1]) & WORD

    return pack


def _add(a: int, b: int) -> int:
    return a + b


CASES: dict[str, tuple[int, Callable[..., int]]] = {
    f"dp2a.{half}.{a}.{b} %d, %a, %b, %c;": (3, _dot2(half, a == "s32", b == "s32"))
    for half in ("lo", "hi")
    for a in ("u32", "s32")
    for b in ("u32", "s32")
}
CASES |= {
    f"dp4a.{a}.{b} %d, %a, %b, %c;": (3, _dot4(a == "s32", b == "s32"))
    for a in ("u32", "s32")
    for b in ("u32", "s32")
}
for _n, _bits in ((4, 8), (2, 16)):
    for _type in ("u32", "s32"):
        CASES[f"vabsdiff{_n}.u32.{_type}.{_type}.add %d, %a, %b, %c;"] = (
            3,
            _differences(_bits, _type == "s32"),
        )
for _type in ("u16x2", "s16x2"):
    for _name, _choose in (("add", _add), ("min", min), ("max", max)):
        CASES[f"{_name}.{_type} %d, %a, %b;"] = (2, _pairwise(_choose, _type == "s16x2"))
for _spelling in ("relu.s16x2", "s16x2.relu"):
    CASES[f"min.{_spelling} %d, %a, %b;"] = (2, _pairwise(lambda a, b: max(min(a, b), 0), True))
    CASES[f"max.{_spelling} %d, %a, %b;"] = (2, _pairwise(lambda a, b: max(a, b, 0), True))
for _name, _choose in (("min", min), ("max", max)):
    for _spelling in (f"{_name}.relu.s32", f"{_name}.s32.relu"):
        CASES[f"{_spelling} %d, %a, %b;"] = (2, _positive(_choose))
for _type in ("s8", "u8", "s4", "u4", "s2", "u2"):
    CASES[f"cvt.pack.sat.{_type}.s32.b32 %d, %a, %b, %c;"] = (
        3,
        _pack(int(_type[1:]), _type[0] == "s"),
    )
for _type in ("s16", "u16"):
    CASES[f"cvt.pack.sat.{_type}.s32 %d, %a, %b;"] = (2, _pack(16, _type == "s16"))
CASES["fns.b32 %d, %a, %b, %c;"] = (3, _nth_set)
CASES["bfind.shiftamt.u32 %d, %a;"] = (1, lambda a: 32 - a.bit_length() if a else WORD)


def _mask(position: int, length: int, *, clamp: bool) -> int:
    if clamp and position >= 32:
        return 0
    position, length = (position & 31), (min(length, 32) if clamp else length & 31)
    return ((1 << length) - 1) << position & WORD


def _extended(a: int, length: int, *, clamp: bool, sign: bool) -> int:
    if clamp and length >= 32:
        return a
    length &= 31
    low = a & ((1 << length) - 1)
    return (low - (1 << length)) & WORD if sign and length and low >> (length - 1) else low


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _mad24_high(a: int, b: int, c: int, *, sign: bool, clamp: bool = False) -> int:
    if not sign:
        return ((a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16) + c & WORD
    product = _signed(_signed(a, 24) * _signed(b, 24) >> 16, 32)
    total = product + _signed(c, 32)
    return (min(max(total, -(2**31)), 2**31 - 1) if clamp else total) & WORD


def _byte_differences(sign: bool) -> Callable[[int, int, int], int]:
    def differences(a: int, b: int, _: int) -> int:
        pairs = zip(_parts(a, 8, sign), _parts(b, 8, sign), strict=True)
        return sum(abs(x - y) << 8 * k for k, (x, y) in enumerate(pairs))

    return differences


for _clamp in (False, True):
    _mode = "clamp" if _clamp else "wrap"
    CASES[f"bmsk.{_mode}.b32 %d, %a, %b;"] = (2, partial(_mask, clamp=_clamp))
    for _type in ("u32", "s32"):
        CASES[f"szext.{_mode}.{_type} %d, %a, %b;"] = (
            2,
            partial(_extended, clamp=_clamp, sign=_type == "s32"),
        )
CASES["mad24.hi.u32 %d, %a, %b, %c;"] = (3, partial(_mad24_high, sign=False))
CASES["mad24.hi.s32 %d, %a, %b, %c;"] = (3, partial(_mad24_high, sign=True))
CASES["mad24.hi.sat.s32 %d, %a, %b, %c;"] = (3, partial(_mad24_high, sign=True, clamp=True))
for _type in ("u32", "s32"):
    CASES[f"vabsdiff4.u32.{_type}.{_type} %d, %a, %b, %c;"] = (3, _byte_differences(_type == "s32"))


@pytest.mark.parametrize("instruction", CASES)
def test_parts_of_a_word(driver: Driver, instruction: str) -> None:
    count, reference = CASES[instruction]
    kinds = ("u32",) * count
    found, _ = run_instruction(driver, instruction, kinds, "u32")
    wanted = [reference(*values) for values in zip(*operands(kinds), strict=True)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("name", "form"), [("f16", F16), ("bf16", BF16)])
def test_integers_to_narrow_floats(
    driver: Driver, kind: str, mode: str, name: str, form: Format
) -> None:
    found, _ = run_instruction(driver, f"cvt.{mode}.{name}.{kind} %d, %a;", (kind,), "u16")
    size = width(kind)
    assert container(kind) == size
    for bits, result in zip(operands((kind,))[0], found.tolist(), strict=True):
        value = bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits
        assert result == form.round(Fraction(value), mode), value


@pytest.mark.parametrize("mode", ["rm", "rp"])
def test_floats_to_bfloat_in_a_direction(driver: Driver, mode: str) -> None:
    found, _ = run_instruction(driver, f"cvt.{mode}.bf16.f32 %d, %a;", ("f32",), "u16")
    for bits, result in zip(operands(("f32",))[0], found.tolist(), strict=True):
        if F32.is_nan(bits):
            assert result == BF16.nan
        elif F32.is_inf(bits):
            assert result == bits >> 16
        else:
            wanted = BF16.round(F32.value(bits), mode, negative_zero=bool(bits >> 31))
            assert result == wanted, hex(bits)


@pytest.mark.parametrize("relation", ["eq", "lt", "geu"])
def test_comparisons_of_halves_to_masks(driver: Driver, relation: str) -> None:
    instruction = f"set.{relation}.u32.f16x2 %d, %a, %b;"
    found, _ = run_instruction(driver, instruction, ("u32", "u32"), "u32")
    a, b = (np.array(c, np.uint32).view(np.float16) for c in operands(("u32", "u32")))
    holds = {"eq": a == b, "lt": a < b, "geu": ~(a < b)}[relation]
    wanted = np.where(holds, 0xFFFF, 0).astype(np.uint16).view(np.uint32)
    np.testing.assert_array_equal(found, wanted)


def test_vector_atomics(driver: Driver) -> None:
    data = driver.buffer(np.arange(8, dtype=np.float32))
    old = driver.buffer(np.zeros((32, 4), np.float32))
    body = """ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %d1, %r0, 16, %d1; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
    mov.f32 %f3, 0f40400000; mov.f32 %f4, 0f40800000;
    atom.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%d0], {%f4, %f3, %f2, %f1};
    st.global.v4.f32 [%d1], {%f1, %f2, %f3, %f4};
    red.global.add.v2.f32 [%d0+16], {%f2, %f2}; ret;"""
    registers = ".reg .b32 %r<2>; .reg .f32 %f<5>; .reg .b64 %d<2>;"
    driver.run(entry(["u64", "u64"], registers, body), [data, old])
    lanes = np.arange(32)[:, None]
    before = np.array([0, 1, 2, 3]) + lanes * np.array([4, 3, 2, 1])
    np.testing.assert_array_equal(driver.read(old), before)
    total = before[:, 1].sum()
    wanted = [128, 97, 66, 35, 4 + total, 5 + total, 6, 7]
    np.testing.assert_array_equal(driver.read(data), wanted)


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_lop3_with_a_predicate(driver: Driver, operation: str) -> None:
    kinds = ("u32", "u32", "u32")
    body = f"""{{ .reg .pred %r, %s; setp.lt.u32 %r, %a, %b;
        lop3.{operation}.b32 %d|%s, %a, %b, %c, 0x96, %r;
        @%s add.u32 %d, %d, 1; }}"""
    registers = ".reg .b32 %a, %b, %c, %d, %t; .reg .b64 %at<4>;"
    columns = [np.array(c, np.uint32) for c in operands(kinds)]
    columns[0][:8] = columns[1][:8] ^ columns[2][:8]  # the exclusive or of all three is zero
    lines = ["mov.u32 %t, %tid.x;"]
    for k, name in enumerate("abc"):
        lines.append(f"ld.param.u64 %at{k}, [p{k}]; mad.wide.u32 %at{k}, %t, 4, %at{k};")
        lines.append(f"ld.global.u32 %{name}, [%at{k}];")
    lines.append("ld.param.u64 %at3, [p3]; mad.wide.u32 %at3, %t, 4, %at3;")
    lines += [body, "st.global.u32 [%at3], %d; ret;"]
    out = driver.buffer(np.zeros(len(columns[0]), np.uint32))
    arguments = [*(driver.buffer(c) for c in columns), out]
    ptx = entry(["u64"] * 4, registers, "\n".join(lines))
    driver.run(ptx, arguments, block=(len(columns[0]), 1, 1))
    logic = columns[0] ^ columns[1] ^ columns[2]
    combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[operation]
    holds = combine(logic != 0, columns[0] < columns[1])
    np.testing.assert_array_equal(driver.read(out), logic + holds.astype(np.uint32))


def test_subnormal_sums_are_flushed_in_global_memory_only(driver: Driver) -> None:
    """As the PTX ISA says of atom.add.f32, whichever way the address is written."""
    bits = np.array([0x00000010, 0x80000010, 0x00800000, 0x3F800000], np.uint32)
    addend = np.array([0x00000020, 0x80000001, 0x80000001, 0x00400000], np.uint32)
    body = """ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
    mov.u32 %r0, %tid.x; mul.wide.u32 %d3, %r0, 4; add.u64 %d0, %d0, %d3; add.u64 %d1, %d1, %d3;
    mad.wide.u32 %d2, %r0, 12, %d2; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1;
    ld.global.f32 %f0, [%d0]; ld.global.f32 %f1, [%d1]; st.shared.f32 [%r1], %f0;
    red.global.add.f32 [%d0], %f1; ld.global.f32 %f2, [%d0]; st.global.f32 [%d2], %f2;
    red.shared.add.f32 [%r1], %f1; ld.shared.f32 %f2, [%r1]; st.global.f32 [%d2+4], %f2;
    st.shared.f32 [%r1], %f0; cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d3, %d3;
    red.add.f32 [%d3], %f1; ld.shared.f32 %f2, [%r1]; st.global.f32 [%d2+8], %f2; ret;"""
    registers = ".reg .b32 %r<2>; .reg .f32 %f<3>; .reg .b64 %d<4>;"
    ptx = entry(["u64"] * 3, registers, body, ".shared .align 4 .b8 tile[128];")
    out = driver.buffer(np.zeros((4, 3), np.uint32))
    driver.run(ptx, [driver.buffer(bits), driver.buffer(addend), out], block=(4, 1, 1))
    kept = [0x00000030, 0x80000011, 0x007FFFFF, 0x3F800000]
    flushed = [0x00000000, 0x80000000, 0x00800000, 0x3F800000]
    assert driver.read(out).tolist() == [list(row) for row in zip(flushed, kept, kept, strict=True)]


@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("kind", ["f16x2", "bf16x2", "f16", "bf16"])
def test_vector_reductions_of_halves(driver: Driver, kind: str, op: str) -> None:
    driver.vgpu.set_option("device", "sm_90")
    dtype = np.dtype(np.float16) if kind.startswith("f") else np.dtype(ml_dtypes.bfloat16)
    per = 2 if kind.endswith("x2") else 1
    values = np.arange(-4, 4).astype(dtype)[: 4 * per]
    addend = np.array([1, -3, 0.5, -8, 2, 2, -1, 9]).astype(dtype)[: 4 * per]
    bits = 16 * per
    names = [", ".join(f"%{x}{k}" for k in range(4)) for x in "ab"]
    body = f"""ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
    ld.global.v4.b{bits} {{{names[0]}}}, [%d1];
    red.global.{op}.noftz.v4.{kind} [%d0], {{{names[0]}}}; ret;"""
    registers = f".reg .b{bits} %a<4>, %b<4>; .reg .b64 %d<2>;"
    data = driver.buffer(values)
    driver.run(entry(["u64"] * 2, registers, body), [data, driver.buffer(addend)], block=(1, 1, 1))
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum}[op]
    wanted = combine(values.astype(np.float32), addend.astype(np.float32))
    np.testing.assert_array_equal(driver.read(data).astype(np.float32), wanted)
