"""The times by which padding is chosen: of one device that has them all, else the model's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from boltgen.arch import arch_named
from boltgen.families.family import Config
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.outcome import Failure, Fault, Outcome
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.graph_costs import CostSurvey, GraphTimes
from boltgen.tuning.choice.select import Measurements, ModelCosts
from tests.tuning.samples import CONFIG, timing

SM80 = arch_named("sm_80")
MODEL = ModelCosts(SM80).origin
NARROW = Conv2d(n=8, h=28, w=28, c=46, k=32, r=3, s=3, padding=(1, 1, 1, 1))
WIDE = replace(NARROW, c=48)
POINTWISE = replace(WIDE, r=1, s=1, padding=(0, 0, 0, 0))
BROKEN = Failure(fault=Fault.WRONG_RESULT, reason="2 of 64 elements differ")


@dataclass(frozen=True)
class Known:
    """A device that has one outcome for some problems, with the plain epilogue alone."""

    origin: str
    found: Mapping[Problem, Outcome]

    def outcomes(self, workload: Workload) -> Mapping[Config, Outcome]:
        """That of the problem."""
        known = {Workload.of(problem): outcome for problem, outcome in self.found.items()}
        return {CONFIG: known[workload]} if workload in known else {}


def times(*devices: Measurements) -> GraphTimes:
    @contextmanager
    def measurements() -> Iterator[Sequence[Measurements]]:
        yield devices

    return GraphTimes(SM80, measurements)


def asked(*problems: Problem) -> list[Workload]:
    return [Workload.of(problem) for problem in problems]


def test_the_first_device_that_has_timed_all_decides() -> None:
    some = Known("one device", {NARROW: timing(9.0)})
    both = Known("another one", {NARROW: timing(5.0), WIDE: timing(4.0)})
    found = times(some, both).kernels_us(asked(NARROW, WIDE))
    assert (found.times_us, found.origin) == ((5.0, 4.0), "another one")
    assert times(some, both).kernels_us(asked(NARROW)).origin == "one device"


def test_times_of_a_device_and_of_the_model_are_never_compared() -> None:
    some = Known("one device", {NARROW: timing(9.0)})
    assert times(some).kernels_us(asked(NARROW, WIDE)) == times().kernels_us(asked(NARROW, WIDE))
    assert times().kernels_us(asked(NARROW, WIDE)).origin == MODEL == times().move_origin


def test_what_failed_on_a_device_is_not_chosen() -> None:
    device = Known("one device", {NARROW: timing(9.0), WIDE: BROKEN})
    found = times(device).kernels_us(asked(NARROW, WIDE))
    assert (found.times_us, found.origin) == ((9.0, math.inf), "one device")


def test_problems_are_asked_for_as_they_run() -> None:
    device = Known("one device", {POINTWISE.gemm: timing(7.0)})
    assert times(device).kernels_us(asked(POINTWISE)).times_us == (7.0,)
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    other = Workload.of(POINTWISE, builder.build())
    assert times(device).kernels_us([other]).origin == MODEL


def test_where_no_kernel_is_legal_the_time_is_infinite() -> None:
    found = times().kernels_us(
        asked(replace(NARROW, h=1 << 13, w=1 << 13))
    )  # beyond 32-bit offsets
    assert found.times_us == (math.inf,)


def test_a_move_is_its_bytes_and_a_launch() -> None:
    one, two = times().move_us(10**6, 1), times().move_us(2 * 10**6, 1)
    launch = times().move_us(0, 1)
    assert 0 < launch < one
    assert two - one == pytest.approx(one - launch)
    assert times().move_us(10**6, 0) == pytest.approx(one - launch)


def test_a_survey_answers_alike_and_names_what_is_to_be_timed() -> None:
    survey = CostSurvey(times())
    illegal = replace(NARROW, h=1 << 13, w=1 << 13)
    wanted = asked(NARROW, WIDE, illegal)
    assert survey.kernels_us(wanted) == times().kernels_us(wanted)
    survey.kernels_us(asked(NARROW, POINTWISE))
    assert all(task.is_alternative for task in survey.tasks)
    assert [task.workload for task in survey.tasks] == asked(NARROW, WIDE, POINTWISE.gemm)
