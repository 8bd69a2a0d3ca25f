"""Floating-point instructions against exact arithmetic, on raw bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.harness.driver import Driver
from tests.vgpu.float_reference import Reference, arithmetic, extreme
from tests.vgpu.fragments import several_instruction_sets
from tests.vgpu.lanes import operands, run_instruction
from tests.vgpu.rounding import BF16, F16, F32, F64, Format, bits_f32, f32, f64

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


@dataclass(frozen=True)
class Case:
    instruction: str
    kinds: tuple[str, ...]
    result: str
    reference: Reference  # bits to bits


def _relation(fmt: Format, name: str) -> Reference:
    def reference(a: int, b: int) -> int:
        unordered = fmt.is_nan(a) or fmt.is_nan(b)
        if name in ("num", "nan"):
            return int(unordered == (name == "nan"))
        if unordered:
            return int(name.endswith("u"))
        big = Fraction(2) ** 2000

        def value(bits: int) -> Fraction:
            if fmt.is_inf(bits):
                return -big if fmt.split(bits)[0] else big
            return fmt.value(bits)

        x, y = value(a), value(b)
        table = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
        return int(table[name[:2]])

    return reference


def _to_integer(fmt: Format, mode: str, to: str) -> Reference:
    size = int(to[1:])
    signed = to[0] == "s"
    low = -(1 << (size - 1)) if signed else 0
    high = (1 << (size - 1 if signed else size)) - 1

    def reference(bits: int) -> int:
        if fmt.is_nan(bits):
            return 1 << (size - 1) if size == 64 or fmt.bits == 64 else 0
        if fmt.is_inf(bits):
            return low if fmt.split(bits)[0] else high
        value = fmt.value(bits)
        rounded = {"rni": round, "rzi": int, "rmi": math.floor, "rpi": math.ceil}[mode](value)
        return max(low, min(high, rounded))

    return reference


def _to_float(fmt: Format, to: Format, mode: str) -> Reference:
    def reference(bits: int) -> int:
        sign = fmt.split(bits)[0]
        if fmt.is_nan(bits):
            return to.nan
        if fmt.is_inf(bits):
            return sign << (to.bits - 1) | to.exponent_mask << to.mantissa
        return to.round(fmt.value(bits), mode, negative_zero=bool(sign))

    return reference


def _from_integer(kind: str, to: Format, mode: str) -> Reference:
    size = int(kind[1:])

    def reference(bits: int) -> int:
        value = bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits
        return to.round(Fraction(value), mode)

    return reference


RELATIONS = [
    *("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu"),
    *("num", "nan"),
]


def _arithmetic_cases() -> list[Case]:
    cases = []
    for kind in ("f16", "f32", "f64"):
        fmt = FORMATS[kind]
        two, three = (kind, kind), (kind, kind, kind)
        modes = ["rn"] if kind == "f16" else ["rn", "rz", "rm", "rp"]
        for mode in modes:
            rounded = "" if kind == "f16" else f".{mode}"
            for op in ("add", "sub", "mul"):
                ptx = f"{op}{rounded}.{kind} %d, %a, %b;"
                cases.append(Case(ptx, two, kind, arithmetic(fmt, op, mode)))
            ptx = f"fma.{mode}.{kind} %d, %a, %b, %c;"
            cases.append(Case(ptx, three, kind, arithmetic(fmt, "fma", mode)))
            if kind != "f16":
                ptx = f"div.{mode}.{kind} %d, %a, %b;"
                cases.append(Case(ptx, two, kind, arithmetic(fmt, "div", mode)))
        variants = ("", ".NaN") if kind != "f64" else ("",)
        for name in ("min", "max"):
            for variant in variants:
                rule = extreme(fmt, largest=name == "max", nan=bool(variant))
                cases.append(Case(f"{name}{variant}.{kind} %d, %a, %b;", two, kind, rule))
        for name in RELATIONS:
            test = f"setp.{name}.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;"
            cases.append(Case(test, two, "u32", _relation(fmt, name)))
        top = 1 << (fmt.bits - 1)
        cases.append(Case(f"neg.{kind} %d, %a;", (kind,), kind, lambda a, t=top: a ^ t))
        cases.append(Case(f"abs.{kind} %d, %a;", (kind,), kind, lambda a, t=top: a & ~t))
    return cases


def _conversion_cases() -> list[Case]:
    cases = []
    for kind in ("f16", "f32", "f64"):
        fmt = FORMATS[kind]
        for to in ("u16", "s16", "u32", "s32", "u64", "s64"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                ptx = f"cvt.{mode}.{to}.{kind} %d, %a;"
                cases.append(Case(ptx, (kind,), to, _to_integer(fmt, mode, to)))
    for source, to, mode in [
        ("f32", "f16", "rn"),
        ("f32", "f16", "rz"),
        ("f64", "f16", "rn"),
        ("f64", "f32", "rn"),
        ("f64", "f32", "rz"),
        ("f64", "f32", "rm"),
        ("f64", "f32", "rp"),
    ]:
        rule = _to_float(FORMATS[source], FORMATS[to], mode)
        cases.append(Case(f"cvt.{mode}.{to}.{source} %d, %a;", (source,), to, rule))
    for source, to in [("f16", "f32"), ("f16", "f64"), ("f32", "f64")]:
        rule = _to_float(FORMATS[source], FORMATS[to], "rn")
        cases.append(Case(f"cvt.{to}.{source} %d, %a;", (source,), to, rule))
    cases.append(Case("cvt.rn.bf16.f32 %d, %a;", ("f32",), "u16", _to_float(F32, BF16, "rn")))
    for source in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for to, mode in [("f16", "rn"), ("f32", "rn"), ("f32", "rz"), ("f64", "rn")]:
            rule = _from_integer(source, FORMATS[to], mode)
            cases.append(Case(f"cvt.{mode}.{to}.{source} %d, %a;", (source,), to, rule))
    half = _to_float(F32, F16, "rn")
    cases.append(
        Case(
            "cvt.rn.f16x2.f32 %d, %a, %b;",
            ("f32", "f32"),
            "u32",
            lambda a, b: half(a) << 16 | half(b),
        )
    )
    for op in ("add", "mul"):
        one = arithmetic(F16, op)
        cases.append(
            Case(
                f"mov.b32 %x, {{%a, %b}}; mov.b32 %y, {{%b, %a}}; {op}.f16x2 %d, %x, %y;",
                ("f16", "f16"),
                "u32",
                lambda a, b, f=one: f(a, b) | f(b, a) << 16,
            )
        )
    return cases


CASES = _arithmetic_cases() + _conversion_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.instruction)
def test_instruction_rounds_exactly(driver: Driver, case: Case) -> None:
    found, _ = run_instruction(driver, case.instruction, case.kinds, case.result)
    mask = (1 << (found.dtype.itemsize * 8)) - 1
    expected = [case.reference(*row) & mask for row in zip(*operands(case.kinds), strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


def test_flushing_takes_subnormals_for_zero_and_keeps_the_sign(driver: Driver) -> None:
    def flushed(bits: int) -> int:
        return bits if bits & 0x7F800000 else bits & 0x80000000

    multiply = arithmetic(F32, "mul")
    found, _ = run_instruction(driver, "mul.ftz.f32 %d, %a, %b;", ("f32", "f32"), "f32")
    expected = [
        flushed(multiply(flushed(a), flushed(b)))
        for a, b in zip(*operands(("f32", "f32")), strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


def test_saturation_clamps_to_the_unit_interval_and_nan_to_zero(driver: Driver) -> None:
    found, _ = run_instruction(driver, "add.sat.f32 %d, %a, %b;", ("f32", "f32"), "f32")
    total = arithmetic(F32, "add")
    for bits, a, b in zip(found.tolist(), *operands(("f32", "f32")), strict=True):
        exact = f32(total(a, b))
        clamped = 0.0 if math.isnan(exact) else min(max(exact, 0.0), 1.0)
        assert f32(bits) == clamped


APPROXIMATE: list[tuple[str, Callable[[float], float]]] = [
    ("ex2.approx.ftz.f32", lambda x: math.inf if x > 1000 else 2.0**x),
    ("lg2.approx.f32", lambda x: math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan),
    ("rcp.approx.ftz.f32", lambda x: 1 / x if x else math.copysign(math.inf, x)),
    ("sqrt.rn.f32", lambda x: math.sqrt(x) if x >= 0 else math.nan),
    (
        "rsqrt.approx.f32",
        lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(math.inf, x) if x == 0 else math.nan,
    ),
    ("tanh.approx.f32", math.tanh),
    ("sin.approx.f32", lambda x: math.nan if math.isinf(x) else math.sin(x)),
    ("cos.approx.f32", lambda x: math.nan if math.isinf(x) else math.cos(x)),
]


@pytest.mark.parametrize(("instruction", "function"), APPROXIMATE, ids=[a[0] for a in APPROXIMATE])
def test_approximation_is_good_to_the_last_bits(
    driver: Driver, instruction: str, function: Callable[[float], float]
) -> None:
    found, _ = run_instruction(driver, f"{instruction} %d, %a;", ("f32",), "f32")
    smallest = 2.0**-126
    for bits, operand in zip(found.tolist(), operands(("f32",))[0], strict=True):
        x, y = f32(operand), f32(bits)
        if "ftz" in instruction and abs(x) < smallest:
            x = math.copysign(0.0, x)
        if abs(x) > 1e6 and ("sin" in instruction or "cos" in instruction):
            continue  # a GPU's approximation means nothing there either
        wanted = function(x) if not math.isnan(x) else math.nan
        if abs(wanted) < smallest and "ftz" in instruction:
            wanted = math.copysign(0.0, wanted)
        if math.isnan(wanted):
            assert bits == F32.nan, f"{instruction}({x})"
            continue
        if math.isfinite(wanted) and abs(wanted) > f32(0x7F7FFFFF):
            wanted = math.copysign(math.inf, wanted)
        error = 0.0 if y == wanted else abs(y - wanted) / max(abs(wanted), 2.0**-149)
        assert error <= 2.0**-22 or abs(y - wanted) <= 2.0**-149, f"{instruction}({x}) = {y}"


def test_every_instruction_set_gives_the_same_bits(driver: Driver) -> None:
    programs = [
        ("fma.rn.f32 %d, %a, %b, %c;", ("f32",) * 3, "f32"),
        ("fma.rn.f16 %d, %a, %b, %c;", ("f16",) * 3, "f16"),
        ("div.rn.f32 %d, %a, %b;", ("f32",) * 2, "f32"),
        ("cvt.rni.s64.f64 %d, %a;", ("f64",), "s64"),
        ("cvt.rzi.u64.f32 %d, %a;", ("f32",), "u64"),
        ("mul.hi.s64 %d, %a, %b;", ("s64",) * 2, "s64"),
        *[(f"{name} %d, %a;", ("f32",), "f32") for name, _ in APPROXIMATE],
    ]
    best, *others = several_instruction_sets(driver)
    for instruction, kinds, result in programs:
        driver.vgpu.set_option("isa", best)
        native, _ = run_instruction(driver, instruction, kinds, result)
        for isa in others:
            driver.vgpu.set_option("isa", isa)
            other, _ = run_instruction(driver, instruction, kinds, result)
            np.testing.assert_array_equal(native, other, err_msg=f"{instruction} {isa}")


def test_references_agree_with_python_doubles() -> None:
    add = arithmetic(F64, "add")
    for a, b in zip(*operands(("f64", "f64")), strict=True):
        wanted = f64(a) + f64(b)
        if not math.isnan(wanted):
            assert f64(add(a, b)) == wanted
    assert bits_f32(f32(0x3F800001)) == 0x3F800001
