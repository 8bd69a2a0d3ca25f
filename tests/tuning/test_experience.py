"""What a session's outcomes say of other configurations and problems, by the stated equations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.strategies.experience import Experience, Fact, Places

SMALL = Workload.of(Gemm(m=1023, n=1023, k=1023))
LARGE = Workload.of(Gemm(m=4095, n=1023, k=1023))  # two doublings larger
HUGE = Workload.of(Gemm(m=65535, n=65535, k=65535))
CONV = Workload.of(Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)))
A, B, C, D, WIDTH, DOUBLINGS, NOISE, FIRM = 0.3, 0.1, 0.1, 0.2, 0.25, 1.4, 0.08, 8
PRIOR = A**2 + B**2 + C**2 + D**2
HERE, ASIDE = (0.5, 0.5), (0.5, 0.7)


def told(*facts: tuple[Workload, tuple[float, ...], float | None]) -> Experience:
    """Outcomes of family "a"; None is a failure."""
    experience = Experience()
    for number, (workload, place, error) in enumerate(facts):
        experience.learn(
            workload, {number: Fact(predicted_us=1.0, family="a", place=place, error=error)}
        )
    return experience


def asked(
    experience: Experience, workload: Workload, place: tuple[float, ...] = HERE, family: str = "a"
) -> tuple[float, float]:
    errors, spreads = experience.posterior(workload).of(Places.of([(family, place)]))
    return float(errors[0]), float(spreads[0])


def test_without_outcomes_it_is_the_cost_model() -> None:
    assert asked(Experience(), SMALL) == (0.0, pytest.approx(math.sqrt(PRIOR)))


@pytest.mark.parametrize(
    ("workload", "place", "family", "covariance"),
    [
        (SMALL, HERE, "a", PRIOR),
        (SMALL, ASIDE, "a", A**2 + C**2 + math.exp(-(0.2**2) / 2 / WIDTH**2) * (B**2 + D**2)),
        (LARGE, HERE, "a", A**2 + B**2 + D**2 * math.exp(-(2**2) / 2 / DOUBLINGS**2)),
        (CONV, HERE, "a", A**2 + B**2),
        (SMALL, HERE, "b", A**2 + C**2),
        (CONV, HERE, "b", A**2),
    ],
)
def test_one_outcome_says_what_the_equations_do(
    workload: Workload, place: tuple[float, ...], family: str, covariance: float
) -> None:
    told_error = 0.5
    of_all = PRIOR + NOISE**2
    error, spread = asked(told((SMALL, HERE, told_error)), workload, place, family)
    scale = math.sqrt((FIRM + told_error**2 / of_all) / (FIRM + 1))
    assert error == pytest.approx(covariance * told_error / of_all)
    assert spread == pytest.approx(scale * math.sqrt(PRIOR - covariance**2 / of_all))


def test_at_the_far_end_sizes_are_the_cost_models() -> None:
    """What small problems said of their sizes is not carried to one that is far larger."""
    facts = [(SMALL, (x / 4, 0.5), 0.1 * x) for x in range(5)]
    near, far = (asked(told(*facts), each, (1.0, 0.5)) for each in (SMALL, HUGE))
    assert abs(far[0]) < abs(near[0])
    assert far[1] > 2 * near[1]
    assert asked(told(*facts), CONV, (1.0, 0.5))[0] == pytest.approx(far[0])


def test_failures_are_labels_for_other_problems() -> None:
    """A configuration that failed is less likely elsewhere, and one that ran beside it more."""
    failed = asked(told((SMALL, HERE, None)), HUGE)[0]
    assert failed == pytest.approx(1 / 1.3)
    assert asked(told((SMALL, HERE, None)), HUGE, family="b")[0] == 0.0
    assert 0.0 < asked(told((SMALL, HERE, None)), HUGE, ASIDE)[0] < failed
    assert asked(told((SMALL, HERE, None), (LARGE, HERE, 0.0)), HUGE)[0] == pytest.approx(1 / 2.3)
    assert asked(told((SMALL, HERE, None)), HUGE)[1] == pytest.approx(math.sqrt(PRIOR))


def test_a_newer_outcome_takes_an_older_ones_place() -> None:
    experience = told((SMALL, HERE, 3.0))
    experience.learn(SMALL, {0: Fact(predicted_us=1.0, family="a", place=HERE, error=0.5)})
    assert asked(experience, SMALL) == asked(told((SMALL, HERE, 0.5)), SMALL)


def test_it_looks_at_a_bounded_number_of_outcomes_its_own_first() -> None:
    experience = told((LARGE, HERE, 0.4))
    unlike = {
        number: Fact(predicted_us=float(number), family="a", place=(number / 300, 0.1), error=-0.4)
        for number in range(300)
    }
    experience.learn(CONV, unlike)
    assert asked(experience, LARGE)[0] == pytest.approx(0.4, abs=0.1)
    assert len(experience.posterior(LARGE)._failed) == 17
    assert len(experience.posterior(CONV)._failed) == 128
    assert SMALL not in experience
    assert CONV in experience


def test_of_other_problems_the_likeliest_count() -> None:
    """What the model calls slow may be off by more there; no choice by what was measured."""
    experience = Experience()
    facts = {
        number: Fact(
            predicted_us=1.0 + number, family="a", place=HERE, error=0.1 if number < 16 else 2.0
        )
        for number in range(32)
    }
    experience.learn(SMALL, facts)
    assert 0.0 < asked(experience, LARGE)[0] < 0.1
    assert asked(experience, SMALL)[0] == pytest.approx(1.05, abs=0.02)


def test_places_of_several_families_are_apart() -> None:
    places = Places.of([("a", (0.5,)), ("b", (0.5, 0.1)), ("a", (0.7,))])
    near = places.near(places[np.array([0, 1])], 0.2)
    assert near == pytest.approx(np.array([[1, 0], [0, 1], [math.exp(-0.5), 0]]))


def test_places_are_joined_by_kinds() -> None:
    first = Places.of([("a", (0.5,)), ("b", (0.1, 0.2))])
    second = Places.of([("b", (0.1, 0.2)), ("c", (0.3, 0.4, 0.5)), ("a", (0.5,))])
    joined = first.joined(second)
    expected = Places.of(
        [
            ("a", (0.5,)),
            ("b", (0.1, 0.2)),
            ("b", (0.1, 0.2)),
            ("c", (0.3, 0.4, 0.5)),
            ("a", (0.5,)),
        ]
    )
    assert joined.kinds == expected.kinds
    assert joined.numbers.tolist() == expected.numbers.tolist()
    assert joined.rows.tolist() == expected.rows.tolist()
    empty = Places.of([])
    assert empty.joined(first).rows.tolist() == first.rows.tolist()
