"""When two sessions of the tuner agree."""

from __future__ import annotations

from benchmarks.gpu.tuning import agreement


def test_the_same_winner_is_agreement():
    assert agreement([{"a": 1.0, "b": 2.0}], [{"a": 1.5, "b": 2.0}]) == (1, 1)


def test_a_winner_within_two_hundredths_of_the_others_is_agreement():
    assert agreement([{"a": 1.0, "b": 1.1}], [{"a": 1.015, "b": 1.0}]) == (1, 1)
    assert agreement([{"a": 1.0, "b": 1.1}], [{"a": 1.03, "b": 1.0}]) == (0, 1)


def test_a_winner_that_the_other_session_has_no_time_of_is_none():
    assert agreement([{"a": 1.0}], [{"b": 1.0}]) == (0, 1)


def test_tasks_without_times_do_not_count():
    assert agreement([{}, {"a": 1.0}], [{"a": 1.0}, {"a": 1.0}]) == (1, 1)
