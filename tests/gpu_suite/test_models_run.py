"""Section models: what ends what takes too long."""

from __future__ import annotations

import time

import pytest

from benchmarks.gpu.models_run import at_most


def test_what_takes_too_long_is_ended():
    with pytest.raises(TimeoutError, match="it took over 0 s"), at_most(0.05):
        while True:
            time.sleep(0.01)


def test_what_is_done_in_time_is_left_alone():
    with at_most(0.05):
        done = True
    time.sleep(0.1)
    assert done
