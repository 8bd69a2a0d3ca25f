"""Samples in turn, and which difference is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from benchmarks.gpu.timing import Timed, Turns, time_in_turn

QUICK = Turns(samples=3, least_rounds=8, most_rounds=8, warm_up_us=0.0)


class Sampler:
    """Times from a list, again and again; tells the order in which samplers were asked."""

    launches = 1

    def __init__(self, name: str, times: list[float], asked: list[str]) -> None:
        self._name, self._asked = name, asked
        self._times: Iterator[float] = itertools.cycle(times)

    def sample_us(self, samples: int) -> list[float]:
        self._asked.append(self._name)
        return [next(self._times) for _ in range(samples)]

    def close(self) -> None:
        pass


def timed(ours: list[float], theirs: list[float], turns: Turns = QUICK) -> tuple[Timed, list[str]]:
    asked: list[str] = []
    samplers = {"a": Sampler("a", ours, asked), "b": Sampler("b", theirs, asked)}
    return time_in_turn(samplers, turns, lambda: 1980.0), asked


def test_things_are_timed_in_turn():
    result, asked = timed([1.0], [2.0])
    assert asked == ["a", "b"] * 8
    assert result.form["clocks_mhz"] == [1980.0] * 8
    assert result.form["columns"]["b"] == {
        "median_us": 2.0,
        "low_us": 2.0,
        "high_us": 2.0,
        "samples": 24,
    }


@pytest.mark.parametrize(
    ("theirs", "ratio", "verdict"),
    [([2.0], 2.0, "faster"), ([0.5], 0.5, "slower"), ([1.005], 1.005, "tie"), ([1.0], 1.0, "tie")],
)
def test_a_difference_beyond_noise_has_a_verdict(theirs, ratio, verdict):
    found = timed([1.0], theirs)[0].ratio("b", "a")
    assert found["ratio"] == pytest.approx(ratio)
    assert found["verdict"] == verdict


def test_a_ratio_whose_interval_has_one_in_it_is_a_tie():
    # Rounds of three samples each: theirs is faster in one and slower in the next.
    result, _ = timed([1.0], [0.9] * 3 + [1.2] * 3)
    found = result.ratio("b", "a")
    assert found["low"] < 1.0 < found["high"]
    assert found["verdict"] == "tie"


def test_modelled_times_are_sampled_once():
    result, asked = timed([1.0], [3.0], Turns(modelled=True))
    assert asked == ["a", "b"]
    assert result.ratio("b", "a")["ratio"] == 3.0
