"""Integer instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.harness.driver import Driver
from tests.vgpu.lanes import container, operands, run_instruction, width

Reference = Callable[..., int]


@dataclass(frozen=True)
class Case:
    instruction: str
    kinds: tuple[str, ...]
    result: str
    reference: Reference


def _signed(kind: str, value: int) -> int:
    size = width(kind)
    return value - (1 << size) if kind[0] == "s" and value >> (size - 1) else value


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * _quotient(a, b)


def _field(kind: str) -> Reference:
    size = width(kind)

    def extract(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        if length == 0:
            return 0
        sign = a >> min(position + length - 1, size - 1) & 1 if kind[0] == "s" else 0
        bits = 0
        for k in range(size):
            source = position + k
            bit = (a >> source & 1) if k < length and source < size else sign
            bits |= bit << k
        return bits

    return extract


def _insert(size: int) -> Reference:
    def insert(a: int, b: int, position: int) -> int:
        for k in range(7):
            if (position & 255) + k < size:
                at = (position & 255) + k
                b = (b & ~(1 << at)) | ((a >> k & 1) << at)
        return b

    return insert


def _bytes(a: int, b: int, selector: int) -> int:
    source = (a | b << 32).to_bytes(8, "little")
    out = 0
    for k in range(4):
        choice = selector >> 4 * k & 15
        byte = source[choice & 7]
        out |= (0xFF * (byte >> 7) if choice & 8 else byte) << 8 * k
    return out


def _lookup(a: int, b: int, c: int) -> int:
    return sum(
        (0xCA >> (4 * (a >> k & 1) + 2 * (b >> k & 1) + (c >> k & 1)) & 1) << k for k in range(32)
    )


def _arithmetic() -> list[Case]:
    cases = []
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        size = width(kind)
        two = (kind, kind)
        pairs: dict[str, Reference] = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul.lo": lambda a, b: a * b,
            "mul.hi": lambda a, b, n=size: a * b >> n,
            "div": _quotient,
            "rem": _remainder,
            "min": min,
            "max": max,
        }
        cases += [Case(f"{op}.{kind} %d, %a, %b;", two, kind, f) for op, f in pairs.items()]
        three = (kind, kind, kind)
        cases.append(Case(f"mad.lo.{kind} %d, %a, %b, %c;", three, kind, lambda a, b, c: a * b + c))
        cases.append(
            Case(f"sad.{kind} %d, %a, %b, %c;", three, kind, lambda a, b, c: abs(a - b) + c)
        )
        cases.append(
            Case(f"shr.{kind} %d, %a, %b;", (kind, "u32"), kind, lambda a, n: a >> min(n, 64))
        )
        if kind[0] == "s":
            cases.append(Case(f"neg.{kind} %d, %a;", (kind,), kind, lambda a: -a))
            cases.append(Case(f"abs.{kind} %d, %a;", (kind,), kind, abs))
    for kind, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        cases.append(Case(f"mul.wide.{kind} %d, %a, %b;", (kind, kind), wide, lambda a, b: a * b))
        cases.append(
            Case(
                f"mad.wide.{kind} %d, %a, %b, %c;",
                (kind, kind, wide),
                wide,
                lambda a, b, c: a * b + c,
            )
        )
    for kind in ("u32", "s32"):
        cases.append(
            Case(
                f"mad.hi.{kind} %d, %a, %b, %c;",
                (kind,) * 3,
                kind,
                lambda a, b, c: (a * b >> 32) + c,
            )
        )
    clamp: Reference = lambda v: max(-(1 << 31), min((1 << 31) - 1, v))  # noqa: E731
    cases.append(Case("add.sat.s32 %d, %a, %b;", ("s32", "s32"), "s32", lambda a, b: clamp(a + b)))
    cases.append(Case("sub.sat.s32 %d, %a, %b;", ("s32", "s32"), "s32", lambda a, b: clamp(a - b)))
    low = 0xFFFFFF
    cases.append(
        Case("mul24.lo.u32 %d, %a, %b;", ("u32", "u32"), "u32", lambda a, b: (a & low) * (b & low))
    )
    return cases


def _bits() -> list[Case]:
    cases = []
    for size in (16, 32, 64):
        kind = f"u{size}"
        two = (kind, kind)
        cases += [
            Case(f"and.b{size} %d, %a, %b;", two, kind, lambda a, b: a & b),
            Case(f"or.b{size} %d, %a, %b;", two, kind, lambda a, b: a | b),
            Case(f"xor.b{size} %d, %a, %b;", two, kind, lambda a, b: a ^ b),
            Case(f"not.b{size} %d, %a;", (kind,), kind, lambda a: ~a),
            Case(f"cnot.b{size} %d, %a;", (kind,), kind, lambda a: int(a == 0)),
            Case(f"shl.b{size} %d, %a, %b;", (kind, "u32"), kind, lambda a, n: a << min(n, 64)),
        ]
    for size in (32, 64):
        kind = f"u{size}"
        cases += [
            Case(f"popc.b{size} %d, %a;", (kind,), "u32", int.bit_count),
            Case(f"clz.b{size} %d, %a;", (kind,), "u32", lambda a, n=size: n - a.bit_length()),
            Case(
                f"brev.b{size} %d, %a;", (kind,), kind, lambda a, n=size: int(f"{a:0{n}b}"[::-1], 2)
            ),
            Case(f"bfind.u{size} %d, %a;", (kind,), "u32", lambda a: a.bit_length() - 1),
            Case(f"bfi.b{size} %d, %a, %b, %c, 7;", (kind, kind, "u32"), kind, _insert(size)),
        ]
    for kind in ("u32", "s32", "u64", "s64"):
        unsigned = "u" + kind[1:]
        cases.append(
            Case(f"bfe.{kind} %d, %a, %b, %c;", (unsigned, "u32", "u32"), unsigned, _field(kind))
        )
    three = ("u32", "u32", "u32")
    both: Reference = lambda lo, hi: hi << 32 | lo  # noqa: E731
    cases += [
        Case("prmt.b32 %d, %a, %b, %c;", three, "u32", _bytes),
        Case("lop3.b32 %d, %a, %b, %c, 0xCA;", three, "u32", _lookup),
        Case(
            "shf.l.wrap.b32 %d, %a, %b, %c;",
            three,
            "u32",
            lambda a, b, n: both(a, b) << (n & 31) >> 32,
        ),
        Case(
            "shf.r.wrap.b32 %d, %a, %b, %c;", three, "u32", lambda a, b, n: both(a, b) >> (n & 31)
        ),
        Case(
            "shf.l.clamp.b32 %d, %a, %b, %c;",
            three,
            "u32",
            lambda a, b, n: both(a, b) << min(n, 32) >> 32,
        ),
        Case(
            "shf.r.clamp.b32 %d, %a, %b, %c;",
            three,
            "u32",
            lambda a, b, n: both(a, b) >> min(n, 32),
        ),
        Case(
            "slct.u32.s32 %d, %a, %b, %c;",
            ("u32", "u32", "s32"),
            "u32",
            lambda a, b, c: a if c >= 0 else b,
        ),
        Case(
            "setp.lt.u32 %p, %a, %b; selp.b32 %d, %a, %c, %p;",
            three,
            "u32",
            lambda a, b, c: a if a < b else c,
        ),
        Case(
            "add.cc.u32 %d, %a, %b; addc.u32 %d, %c, 0;",
            three,
            "u32",
            lambda a, b, c: c + (a + b >> 32),
        ),
        Case(
            "sub.cc.u32 %d, %a, %b; subc.u32 %d, %c, 0;",
            three,
            "u32",
            lambda a, b, c: c - int(a < b),
        ),
        Case(
            "mad.lo.cc.u32 %d, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0;",
            three,
            "u32",
            lambda a, b, c: a * b + c >> 32,
        ),
    ]
    return cases


def _comparisons() -> list[Case]:
    relations: dict[str, Reference] = {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
    }
    cases = []
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for name, relation in relations.items():
            test = f"setp.{name}.{kind} %p, %a, %b; selp.b32 %d, 1, 0, %p;"
            cases.append(Case(test, (kind, kind), "u32", lambda a, b, f=relation: int(f(a, b))))
    cases += [
        Case(
            "setp.hs.u32 %p|%q, %a, %b; selp.b32 %d, 2, 3, %q;",
            ("u32", "u32"),
            "u32",
            lambda a, b: 2 if a < b else 3,
        ),
        Case(
            "setp.ne.b32 %q, %c, 0; setp.lo.xor.u32 %p, %a, %b, !%q; selp.b32 %d, 1, 0, %p;",
            ("u32", "u32", "u32"),
            "u32",
            lambda a, b, c: int((a < b) != (c == 0)),
        ),
        Case("set.gt.s32.s32 %d, %a, %b;", ("s32", "s32"), "u32", lambda a, b: -int(a > b)),
    ]
    return cases


def _conversions() -> list[Case]:
    kinds = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    cases = []
    for source in kinds:
        for to in kinds:
            extended = to if width(to) >= 16 else ("s16" if to[0] == "s" else "u16")

            def wrap(a: int, to: str = to) -> int:
                return _signed(to, a & ((1 << width(to)) - 1))

            def saturate(a: int, to: str = to) -> int:
                high = (1 << (width(to) - (to[0] == "s"))) - 1
                return max(-high - 1 if to[0] == "s" else 0, min(high, a))

            cases.append(Case(f"cvt.{to}.{source} %d, %a;", (source,), extended, wrap))
            cases.append(Case(f"cvt.sat.{to}.{source} %d, %a;", (source,), extended, saturate))
    return cases


CASES = _arithmetic() + _bits() + _comparisons() + _conversions()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.instruction)
def test_instruction_agrees_with_python(driver: Driver, case: Case) -> None:
    found, _ = run_instruction(driver, case.instruction, case.kinds, case.result)
    mask = (1 << container(case.result)) - 1
    columns = [
        [_signed(kind, value) for value in column]
        for kind, column in zip(case.kinds, operands(case.kinds), strict=True)
    ]
    expected = [case.reference(*row) & mask for row in zip(*columns, strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))
