"""The curves of tuning: the best time after each trial, and the page's part about them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.report.curves import (
    CURVE_HEIGHT,
    CURVE_WIDTH,
    Attempt,
    Curve,
    curves,
    workloads_of,
)
from boltgen.report.facts import TimeKind, facts_of
from boltgen.report.page import page
from boltgen.running.artifact import Artifact


def attempts(*times: float | None, device: str = "A100") -> list[Attempt]:
    return [Attempt(device=device, kind=TimeKind.MEASURED, time_us=us) for us in times]


@pytest.fixture
def made(artifact: Artifact) -> tuple[Curve, ...]:
    workload, *_ = workloads_of(artifact.metadata)
    modelled = Attempt(device="<vgpu>", kind=TimeKind.MODELLED, time_us=7.0)
    return curves({workload: [*attempts(None, 4.0, 5.0, None, 2.0, 3.0), modelled]})


def test_a_curve_for_each_device(made: tuple[Curve, ...]) -> None:
    measured, modelled = made
    assert (measured.device, measured.kind) == ("A100", TimeKind.MEASURED)
    assert (measured.trials, measured.failures, measured.found_at) == (6, 2, 5)
    assert (measured.first_us, measured.best_us) == (4.0, 2.0)
    # From the second trial's time to the fifth's, and on to the last one.
    xs, ys = zip(*measured.line, strict=True)
    assert len(measured.line) == 4
    assert ys[0] == ys[1] < ys[2] == ys[3]
    assert xs[0] < xs[1] == xs[2] < xs[3] < CURVE_WIDTH
    assert (modelled.kind, modelled.trials, modelled.best_us) == (TimeKind.MODELLED, 1, 7.0)


def test_no_curve_without_a_time(artifact: Artifact) -> None:
    workload, *_ = workloads_of(artifact.metadata)
    assert curves({}) == ()
    assert curves({workload: []}) == ()
    assert curves({workload: attempts(None, None)}) == ()


@given(times=st.lists(st.none() | st.floats(1e-3, 1e6), min_size=1, max_size=30))
def test_lines_stay_in_their_figures_and_only_fall(
    artifact: Artifact, times: list[float | None]
) -> None:
    workload, *_ = workloads_of(artifact.metadata)
    for curve in curves({workload: attempts(*times)}):
        assert times[curve.found_at - 1] == curve.best_us
        for (x, y), (after_x, after_y) in pairwise(curve.line):
            assert 0 <= x <= after_x <= CURVE_WIDTH
            assert 0 <= y <= after_y <= CURVE_HEIGHT


def test_the_page_has_them_where_they_are_asked_for(
    artifact: Artifact, made: tuple[Curve, ...]
) -> None:
    facts = facts_of(artifact.folder, artifact.metadata)
    assert 'id="tuning"' not in page(facts)
    none = page(facts, curves=())
    assert "no trial of what this model computes on sm_80" in none
    text = page(facts, curves=made)
    assert text.count('<svg class="curve"') == len(made)
    assert "&lt;vgpu&gt;" in text
    assert "<vgpu>" not in text
