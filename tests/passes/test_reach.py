"""Which small numbers FP16 and BF16 lose, and what operators make of them."""

from __future__ import annotations

import itertools
from math import isfinite

import numpy as np
import pytest

from boltgen.ir.dtypes import DType
from boltgen.passes.precision.reach import (
    BEYOND,
    SMALL,
    WITHIN,
    Reach,
    clipped_reach,
    floor_of,
    power_reach,
    reach_of,
    smallest_floor,
)


def constant(value: float) -> Reach:
    return Reach.of_constant(np.float32(value).reshape(()))


GUARDED = reach_of("maximum", (WITHIN, constant(1e-12)))


@pytest.mark.parametrize(
    ("number", "precision", "is_lost"),
    [
        (1e-12, DType.F16, True),
        (1e-5, DType.F16, True),  # subnormal: three digits are left at most
        (1e-4, DType.F16, False),
        (0.0, DType.F16, False),
        (0.1, DType.F16, False),
        (1 - 1e-7, DType.F16, True),
        (1 - 1e-4, DType.F16, True),
        (0.999, DType.F16, False),
        (0.999, DType.BF16, True),
        (-1 + 1e-6, DType.F16, True),
        (5 - 1e-5, DType.F16, True),
        (1e-12, DType.BF16, False),
        (65504.0, DType.F16, False),
        (-1e30, DType.F16, False),
        (float("inf"), DType.F16, False),
    ],
)
def test_numbers_that_are_lost(number: float, precision: DType, is_lost: bool) -> None:
    assert (floor_of(number, precision) < DType.F16.smallest_normal) == is_lost


def test_a_guard_lasts_until_it_is_used() -> None:
    assert GUARDED.has_guard
    assert not GUARDED.is_outside  # a product may multiply it
    assert reach_of("negative", (GUARDED,)).has_guard
    assert reach_of("sqrt", (GUARDED,)).has_guard
    assert not reach_of("log", (GUARDED,)).is_beyond
    assert not reach_of("divide", (WITHIN, GUARDED)).is_beyond
    assert clipped_reach(0.0, 1 - 1e-7, WITHIN, DType.F16).has_guard
    assert not clipped_reach(0.0, 6.0, WITHIN, DType.F16).is_beyond


def test_the_reciprocal_of_a_guard_is_large_until_it_multiplies() -> None:
    for made in (reach_of("divide", (constant(1.0), GUARDED)), power_reach(-1.0, GUARDED)):
        assert made.over
        assert not reach_of("multiply", (WITHIN, made)).is_beyond
        assert reach_of("multiply", (constant(3.0), made)).over
    assert not reach_of("rsqrt", (reach_of("add", (WITHIN, constant(1e-5))),)).is_beyond


def test_factors_make_small_and_large_again() -> None:
    small = reach_of("multiply", (WITHIN, constant(1e-6)))
    assert small.is_small
    assert reach_of("tanh", (small,)).is_small
    assert not reach_of("add", (WITHIN, small)).is_beyond
    assert not reach_of("divide", (small, small)).is_beyond
    assert not reach_of("multiply", (constant(1e6), small)).is_beyond
    assert not reach_of("divide", (small, constant(1e-6))).is_beyond


def test_estimates_stay_finite_and_above_zero() -> None:
    """Sizes of 1e-45 and guards of 1e-38 multiply to what no FP64 number is."""
    found = [
        WITHIN,
        GUARDED,
        constant(1e-45),
        constant(3e38),
        constant(1e-38),
        power_reach(-9.0, GUARDED),
    ]
    for _ in range(3):
        for (name, a), b in itertools.product(
            itertools.product(("add", "multiply", "divide", "rsqrt", "square"), found[:24]),
            found[:6],
        ):
            made = reach_of(name, (a, b) if name in {"add", "multiply", "divide"} else (a,))
            assert made.size > 0.0
            assert 0.0 < made.floor <= 1.0
            assert isfinite(made.size)
            if made not in found:
                found.append(made)


# What an operator makes of numbers; its range follows from those of its operands.
_EXACT = {
    "add": np.add,
    "subtract": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negative": np.negative,
    "abs": np.abs,
    "nn.relu": lambda x: np.maximum(x, 0.0),
    "exp": np.exp,
}
_RANGES = [Reach(over=over, under=under) for over in (False, True) for under in (False, True)]


def _numbers(reach: Reach) -> np.ndarray:
    """Numbers of a range: some within FP16's, and some beyond it where the range says so."""
    large = [1e5] * reach.over + [-1e5] * reach.under
    return np.array([-2.0, -1.0, 0.0, 1.0, 2.0, *large])


@pytest.mark.parametrize("name", _EXACT)
def test_ranges_are_those_of_the_numbers(name: str) -> None:
    count = 2 if name in {"add", "subtract", "maximum", "minimum"} else 1
    for reaches in itertools.product(_RANGES, repeat=count):
        with np.errstate(over="ignore"):
            made = _EXACT[name](*np.meshgrid(*map(_numbers, reaches)))
        found = reach_of(name, reaches)
        beyond = bool(made.max() > DType.F16.largest), bool(made.min() < -DType.F16.largest)
        assert (found.over, found.under) == beyond


@pytest.mark.parametrize("exponent", [2.0, 3.0])
def test_powers_have_the_signs_of_their_numbers(exponent: float) -> None:
    large = np.array([-1e3, 1e3]) ** exponent
    found = power_reach(exponent, WITHIN)
    assert found.over == (large.max() > DType.F16.largest)
    assert found.under == (large.min() < -DType.F16.largest)


LARGE = DType.F16.largest


@pytest.mark.parametrize(
    ("reach", "properties"),
    [
        (Reach(size=SMALL), ""),
        (Reach(size=SMALL / 2), "small fine outside beyond"),
        (Reach(floor=SMALL), ""),
        (Reach(floor=SMALL / 2), "guard fine beyond"),
        (Reach(under=True), "outside beyond"),
    ],
)
def test_what_a_reach_says(reach: Reach, properties: str) -> None:
    found = {
        "small": reach.is_small,
        "guard": reach.has_guard,
        "fine": reach.is_fine,
        "outside": reach.is_outside,
        "beyond": reach.is_beyond,
    }
    assert {name for name, holds in found.items() if holds} == set(properties.split())


@pytest.mark.parametrize(
    ("numbers", "over", "under"),
    [
        ([LARGE, -LARGE], False, False),
        ([65536.0], True, False),
        ([-65536.0], False, True),
        ([np.inf, -np.inf], False, False),
        ([np.inf, 65536.0], True, False),
    ],
)
def test_constants_are_beyond_fp16_where_their_finite_numbers_are(
    numbers: list[float], over: bool, under: bool
) -> None:
    found = Reach.of_constant(np.array(numbers, np.float32))
    assert (found.over, found.under) == (over, under)


@pytest.mark.parametrize(
    ("array", "floor"),
    [
        (np.array([1e-9, 3.0], np.float32), 1e-9),
        (np.array([-1e-9, 0.0], np.float32), 1e-9),
        (np.zeros(2, np.float32), 1.0),
        (np.zeros(0, np.float32), 1.0),
        (np.array([1, 2], np.int64), 1.0),
        (np.array([2.0**-24], np.float16), 1.0),
        (np.array([SMALL], np.float32), 1.0),
    ],
)
def test_the_smallest_guard_of_a_constant(array: np.ndarray, floor: float) -> None:
    assert smallest_floor(array, DType.F16) == pytest.approx(floor)


@pytest.mark.parametrize(
    ("name", "args", "over"),
    [
        ("multiply", (Reach(under=True), WITHIN), True),
        ("multiply", (constant(LARGE * 2.0**20), Reach(size=2.0**-20)), False),
        ("multiply", (constant(LARGE * 2.0**21), Reach(size=2.0**-20)), True),
        ("divide", (Reach(under=True), WITHIN), True),
        ("divide", (Reach(over=True), Reach(under=True)), False),
        ("divide", (constant(1.0), Reach(size=1 / LARGE, floor=1.0)), False),
        ("divide", (constant(1.0), Reach(size=0.5 / LARGE, floor=1.0)), True),
        ("where", (BEYOND, WITHIN, WITHIN), False),
        ("where", (WITHIN, WITHIN, BEYOND), True),
    ],
)
def test_which_results_are_beyond(name: str, args: tuple[Reach, ...], over: bool) -> None:
    found = reach_of(name, args)
    assert (found.over, found.under) == (over, over)


def test_a_power_of_an_unknown_exponent_may_be_anything() -> None:
    assert power_reach(None, WITHIN) == BEYOND


@pytest.mark.parametrize(
    ("bounds", "reach", "sides"),
    [
        ((-LARGE, LARGE), BEYOND, (False, False)),
        ((-65536.0, 65536.0), BEYOND, (True, True)),
        ((-65536.0, 65536.0), WITHIN, (False, False)),
        ((-1.0, 65536.0), Reach(under=True), (False, False)),
    ],
)
def test_a_clip_bounds_a_value(
    bounds: tuple[float, float], reach: Reach, sides: tuple[bool, bool]
) -> None:
    found = clipped_reach(*bounds, reach, DType.F16)
    assert (found.over, found.under) == sides
