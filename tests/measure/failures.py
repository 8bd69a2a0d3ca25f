"""What tests of workers ask of a candidate that failed."""

from __future__ import annotations

from boltgen.ir.outcome import Failure, Fault, Outcome


def assert_failed(outcome: Outcome, fault: Fault, words: str) -> None:
    """The outcome is a failure of that kind, with these words in its reason."""
    assert isinstance(outcome, Failure)
    assert outcome.fault is fault, outcome
    assert words in outcome.reason
