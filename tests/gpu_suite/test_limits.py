"""What ends what takes too long."""

from __future__ import annotations

import contextlib
import time

import pytest

from benchmarks.gpu import limits
from benchmarks.gpu.limits import at_most


def test_what_takes_too_long_is_ended():
    with pytest.raises(TimeoutError, match="it took over 0 s"), at_most(0.05):
        while True:
            time.sleep(0.01)


def test_what_takes_failures_for_choices_is_ended_too(monkeypatch: pytest.MonkeyPatch):
    """As PyTorch's autotuner does; and even where the first word is lost."""
    monkeypatch.setattr(limits, "_TOLD_AGAIN_S", 0.05)
    told = 0
    with pytest.raises(TimeoutError, match="it took over"), at_most(0.05):
        while True:
            try:
                with contextlib.suppress(Exception):
                    time.sleep(0.01)
            except BaseException:
                told += 1
                if told > 1:
                    raise
    time.sleep(0.1)  # nothing is told after the end
    assert told == 2


def test_what_is_done_in_time_is_left_alone():
    with at_most(0.05):
        done = True
    time.sleep(0.1)
    assert done
