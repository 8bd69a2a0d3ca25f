"""The floating-point forms of sm_100: arithmetic on two f32 at once, and extremes of three."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from tests.vgpu.float_reference import Reference, arithmetic, extreme
from tests.vgpu.lanes import operands, run_instruction
from tests.vgpu.refusals import Code, refused
from tests.vgpu.rounding import F32

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
SIGN, MAGNITUDE, EXPONENT, WORD = 1 << 31, (1 << 31) - 1, 0x7F800000, (1 << 32) - 1

_ONE_NAN = (0x7FC00001, 0xFF800123)  # beside the canonical ones of `operands`


@pytest.fixture(autouse=True)
def blackwell(driver: Driver) -> None:
    driver.vgpu.set_option("device", "sm_100")


def _flushed(bits: int) -> int:
    return bits if bits & EXPONENT else bits & SIGN


def _columns(count: int) -> list[list[int]]:
    """Return edge values of f32 against each other, with NaNs that carry a payload."""
    columns = operands(("f32",) * count)
    for column, (at, nan) in zip(
        columns, [(3, _ONE_NAN[0]), (7, _ONE_NAN[1]), (9, 1)], strict=False
    ):
        column[at] = nan
    return columns


def _pairs(columns: list[list[int]]) -> list[list[int]]:
    """Join each value with the one at the other end of its column, in the high half."""
    return [
        [low | high << 32 for low, high in zip(column, reversed(column), strict=True)]
        for column in columns
    ]


def _halves(found: Array) -> tuple[Array, Array]:
    return (found & np.uint64(WORD)).astype(np.uint32), (found >> np.uint64(32)).astype(np.uint32)


def _expected(columns: list[list[int]], rule: Reference, *, flush: bool) -> Array:
    if not flush:
        return np.array([rule(*row) for row in zip(*columns, strict=True)], np.uint32)
    rows = zip(*columns, strict=True)
    return np.array([_flushed(rule(*map(_flushed, row))) for row in rows], np.uint32)


@pytest.mark.parametrize("flush", ["", ".ftz"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_each_half_of_a_pair_rounds_exactly(driver: Driver, op: str, mode: str, flush: str) -> None:
    columns = _columns(3 if op == "fma" else 2)
    names = ", ".join(f"%{name}" for name in "abc"[: len(columns)])
    found, _ = run_instruction(
        driver,
        f"{op}.{mode}{flush}.f32x2 %d, {names};",
        ("u64",) * len(columns),
        "u64",
        _pairs(columns),
        header=HEADER,
    )
    expected = _expected(columns, arithmetic(F32, op, mode), flush=bool(flush))
    low, high = _halves(found)
    np.testing.assert_array_equal(low, expected)
    np.testing.assert_array_equal(high, expected[::-1])


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_a_pair_is_rounded_to_nearest_without_a_mode(driver: Driver, op: str) -> None:
    columns = _columns(2)
    found, _ = run_instruction(
        driver, f"{op}.f32x2 %d, %a, %b;", ("u64", "u64"), "u64", _pairs(columns), header=HEADER
    )
    expected = _expected(columns, arithmetic(F32, op), flush=False)
    np.testing.assert_array_equal(_halves(found)[0], expected)


@pytest.mark.parametrize("form", ["of two", "of three", "of three magnitudes"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("flush", ["", ".ftz"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_extreme(driver: Driver, op: str, flush: str, nan: str, form: str) -> None:
    of_two = extreme(F32, largest=op == "max", nan=bool(nan))
    magnitude = ".abs" if form == "of three magnitudes" else ""
    names = "abc" if "three" in form else "ab"

    def rule(*bits: int) -> int:
        return reduce(of_two, [b & MAGNITUDE if magnitude else b for b in bits])

    columns = _columns(len(names))
    found, _ = run_instruction(
        driver,
        f"{op}{flush}{nan}{magnitude}.f32 %d, {', '.join('%' + name for name in names)};",
        ("f32",) * len(names),
        "f32",
        columns,
        header=HEADER,
    )
    np.testing.assert_array_equal(found, _expected(columns, rule, flush=bool(flush)))


def test_an_undefined_half_leaves_the_other_defined(driver: Driver) -> None:
    """The low half of a pair is stored; the high half of one operand was never written."""
    body = """
        ld.param.u64 %at, [p0]; mov.b32 %x, 0f3fc00000; {} mov.b64 %a, {{%x, %y}};
        add.rn.f32x2 %b, %a, %a; mov.b64 {{%x, %y}}, %b; st.global.f32 [%at], {}; ret;"""
    registers = ".reg .b32 %x, %y; .reg .b64 %a, %b, %at;"
    driver.vgpu.set_option("check", "initcheck")
    for define, stored, kinds in [
        ("", "%x", []),
        ("", "%y", ["uninitialised result"]),
        ("mov.b32 %y, 0;", "%y", []),
    ]:
        driver.vgpu.clear_findings()
        out = driver.buffer(np.zeros(1, np.float32))
        driver.run(HEADER + entry(["u64"], registers, body.format(define, stored)), [out])
        value = driver.read(out)[0]
        assert [found.kind for found in driver.vgpu.findings()] == kinds
        assert stored == "%y" or value == 3.0


@pytest.mark.parametrize(
    "instruction",
    [
        "add.rn.sat.f32x2 %d, %a, %b;",
        "mad.rn.f32x2 %d, %a, %b, %c;",
        "max.f32x2 %d, %a, %b;",
        "neg.f32x2 %d, %a;",
        "max.f64 %d, %a, %b, %c;",
        "max.u64 %d, %a, %b, %c;",
        "max.xorsign.abs.f32 %w, %w, %w, %w;",
        "max.abs.f32 %w, %w, %w;",
    ],
)
def test_forms_that_ptxas_refuses_are_refused_by_name(driver: Driver, instruction: str) -> None:
    registers = ".reg .b64 %a, %b, %c, %d; .reg .b32 %w;"
    function = driver.function(driver.load(HEADER + entry([], registers, instruction)), "k")
    with refused(Code.INVALID_PTX, instruction.split(maxsplit=1)[0]):
        driver.launch(function, [])


@pytest.mark.parametrize("instruction", ["add.f32x2 %d, %d, %d;", "max.f32 %w, %w, %w, %w;"])
def test_older_targets_are_refused(driver: Driver, instruction: str) -> None:
    ptx = HEADER.replace("sm_100a", "sm_90") + entry([], ".reg .b64 %d; .reg .b32 %w;", instruction)
    function = driver.function(driver.load(ptx), "k")
    with refused(Code.INVALID_PTX, instruction.split(maxsplit=1)[0], "sm_100", "sm_90"):
        driver.launch(function, [])


def test_a_pair_keeps_the_float_unit_busy_for_two(driver: Driver) -> None:
    def busy(instruction: str) -> tuple[int, float]:
        registers = ".reg .b64 %d<2>; .reg .b32 %f<2>;"
        ptx = HEADER + entry([], registers, "mov.b64 %d0, 0; mov.b32 %f0, 0;" + 4000 * instruction)
        driver.run(ptx, [], grid=(4, 1, 1), block=(128, 1, 1))
        (launch,) = driver.vgpu.counters()[-1:]
        kind = "float_pair" if "x2" in instruction else "float"
        return launch["instructions"][kind], launch["modelled"]["us"]

    driver.vgpu.set_option("counters", "on")
    one, single = busy("add.f32 %f1, %f0, %f0;")
    two, double = busy("add.f32x2 %d1, %d0, %d0;")
    assert one == two == 4000 * 16
    assert double == pytest.approx(2 * single, rel=0.05)
