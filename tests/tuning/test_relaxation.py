"""Knobs as real numbers: the smooth functions agree with the exact ones, and their slopes too."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.arena.relaxation import Relaxation
from boltgen.arch import arch_named
from boltgen.cost.model import ANALYTICAL
from boltgen.families.family import Level
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.session.candidates import Field

PLAIN = Workload.of(Gemm(m=1024, n=1024, k=1024))
CHAIN = Workload(layers=(Layer(problem=Gemm(m=4096, n=64, k=64)),) * 2)
# Every family with knobs that products have.
CASES = [
    ("sm_80", PLAIN),
    ("sm_90a", PLAIN),
    ("sm_80", CHAIN),
    ("sm_80", Workload.of(Gemm(m=1, n=4096, k=4096))),
]


def relaxations(arch: str, workload: Workload) -> list[tuple[Relaxation, object, Field]]:
    field = Field(workload, arch_named(arch), Level.FULL, ANALYTICAL)
    found = []
    for space in field.spaces:
        relaxation = Relaxation(space, space.candidates, random.Random(0))
        relaxation.fit(np.array(field.predicted_us(workload, relaxation.legal)))
        found.append((relaxation, space, field))
    return found


@pytest.mark.parametrize(("arch", "workload"), CASES)
def test_the_smooth_time_is_the_exact_one_at_the_anchors(arch: str, workload: Workload) -> None:
    for relaxation, space, field in relaxations(arch, workload):
        anchors = space.candidates[:32]
        smooth = relaxation.log_us(np.array([space.encode(each) for each in anchors]))
        exact = np.log(field.predicted_us(workload, anchors))
        assert smooth == pytest.approx(exact, abs=0.01), space.family
        outside = relaxation.penalty(np.array([space.encode(each) for each in anchors]))
        assert outside == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("arch", "workload"), CASES)
def test_slopes_are_those_of_the_objective(arch: str, workload: Workload) -> None:
    weight, step = 1.5, 1e-5
    for relaxation, space, _ in relaxations(arch, workload):
        rng = np.random.default_rng(0)
        points = rng.random((5, len(space.knobs)))

        def objective(at: np.ndarray, own: Relaxation = relaxation) -> np.ndarray:
            return own.log_us(at) + weight * own.penalty(at) ** 2

        slopes = relaxation.slope(points, penalty=weight)
        for knob in range(len(space.knobs)):
            aside = np.zeros(len(space.knobs))
            aside[knob] = step
            difference = (objective(points + aside) - objective(points - aside)) / (2 * step)
            assert slopes[:, knob] == pytest.approx(difference, abs=1e-3, rel=1e-3)


def test_illegal_settings_are_penalised_and_never_rounded_to() -> None:
    ((relaxation, space, _),) = relaxations("sm_80", PLAIN)
    rng = random.Random(0)
    drawn = [each for each in (space.random(rng) for _ in range(32)) if each is not None]
    illegal = [each for each in drawn if space.broken(each)]
    assert illegal
    penalties = relaxation.penalty(np.array([space.encode(each) for each in illegal]))
    assert penalties == pytest.approx([space.penalty(each) for each in illegal], abs=0.01)
    points = np.array([space.encode(each) for each in space.candidates[:3]])
    # Legality is asked about a few settings each time.
    found = [relaxation.rounded(points, {space.candidates[0]}, most=1000) for _ in range(3)]
    assert set(space.candidates[1:3]) <= set(found[-1])
    points = np.array([space.encode(each) for each in (*illegal, *space.candidates[:3])])
    found = relaxation.rounded(points, {space.candidates[0]}, most=1000)
    assert space.candidates[0] not in found
    assert not any(space.broken(each) for each in found)
    assert len(relaxation.rounded(points, set(), most=2)) == 2


def test_knobs_of_one_value_are_left_alone() -> None:
    field = Field(PLAIN, arch_named("sm_75"), Level.FULL, ANALYTICAL)
    (space,) = field.spaces
    relaxation = Relaxation(space, space.candidates, random.Random(0))
    relaxation.fit(np.full(len(relaxation.legal), 2.0))
    points = np.array([space.encode(each) for each in space.candidates[:4]])
    assert relaxation.log_us(points) == pytest.approx(np.log(2.0))
    assert all(each in space for each in relaxation.rounded(points, set(), most=8))
