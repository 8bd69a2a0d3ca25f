"""Medians and their intervals."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.measure.stats import percentile, summarise

SAMPLES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=300)


@given(SAMPLES)
def test_the_summary_is_in_order_and_agrees_with_the_standard_library(samples):
    summary = summarise(samples)
    assert summary.median == pytest.approx(statistics.median(samples))
    assert min(samples) <= summary.low <= summary.median <= summary.high <= max(samples)
    assert summary.low <= summary.high
    assert summary.p20 <= summary.median <= summary.p80


def test_percentiles_are_those_of_the_standard_library():
    values = sorted(random.Random(1).uniform(0, 1) for _ in range(97))
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (5, 20, 50, 80, 99):
        assert percentile(values, percent / 100) == pytest.approx(cuts[percent - 1])


@pytest.mark.parametrize("count", [6, 10, 20, 50, 200])
def test_the_interval_holds_the_median_as_often_as_it_says(count):
    # Skewed samples, as times are: the exponential distribution's median is ln 2.
    generator, median = random.Random(count), 0.6931471805599453
    rounds = 2000
    held = 0
    for _ in range(rounds):
        summary = summarise([generator.expovariate(1.0) for _ in range(count)])
        held += summary.low <= median <= summary.high
    # Coverage is at least 95 %: 2000 rounds are below 93.5 % with a probability of 0.1 %.
    assert held / rounds > 0.935


def test_few_samples_give_their_range():
    summary = summarise([3.0, 1.0, 2.0])
    assert (summary.low, summary.high) == (1.0, 3.0)
    assert not summary.is_within(0.02)


def test_equal_samples_are_certain():
    summary = summarise([5.0] * 10)
    assert (summary.low, summary.median, summary.high) == (5.0, 5.0, 5.0)
    assert summary.is_within(0.0)
