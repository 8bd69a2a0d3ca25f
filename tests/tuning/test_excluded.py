"""Kernels that failed a check are not chosen; a workload of which several failed is given up."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from boltgen.arch import arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.registry import compiled
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Failure
from boltgen.model_passes import cutter, rejecter
from boltgen.pipeline import PipelineOptions
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload, separate
from boltgen.tuning.choice.excluded import Excluded
from boltgen.tuning.choice.fusion import cut_layers
from boltgen.tuning.choice.select import Costs, Decision, ModelCosts, Task, WithoutFaults, select

ARCH = arch_named("sm_80")
GEMM = Workload.of(Gemm(m=512, n=256, k=1024))
LAYERS = (
    Layer(problem=Gemm(m=65536, n=64, k=64)),
    Layer(problem=Gemm(m=65536, n=64, k=64)),
)


def chosen(excluded: Excluded, workload: Workload = GEMM) -> Decision:
    task = Task(workload=workload)
    (decision,) = select([task], ARCH, excluded.out_of(ModelCosts(ARCH), ARCH))
    return decision


def trial_of(decision: Decision) -> Trial:
    return Trial(workload=decision.workload, config=decision.config)


def test_the_next_best_is_chosen_and_after_three_none() -> None:
    excluded, seen = Excluded(), []
    rejects = rejecter("sm_80", PipelineOptions(excluded=excluded))
    for number in range(3):
        assert rejects(GEMM) is None
        decision = chosen(excluded)
        kernel = trial_of(decision).spec("sm_80")
        assert kernel not in seen
        seen.append(kernel)
        excluded.add((trial_of(decision),), "sm_80", f"reason {number}")
    assert chosen(Excluded()).time_us <= decision.time_us
    reason = rejects(GEMM)
    assert reason is not None
    assert "3 kernels" in reason
    assert "reason 2" in reason
    assert rejects(Workload.of(Gemm(m=8, n=8, k=8))) is None


def test_a_kernel_is_excluded_for_every_workload() -> None:
    excluded = Excluded()
    first = trial_of(chosen(excluded))
    excluded.add((first,), "sm_80", "wrong")
    other = Workload.of(Gemm(m=1024, n=256, k=1024))
    costs = excluded.out_of(ModelCosts(ARCH), ARCH).costs(other).by_config
    failed = {config for config, cost in costs.items() if isinstance(cost, Failure)}
    assert failed
    assert {compiled(config) for config in failed} == {compiled(first.config)}


def test_where_all_have_failed_is_an_error() -> None:
    excluded = Excluded()
    workload = Workload.of(Gemm(batch=2, m=7, n=33, k=100))
    known = ModelCosts(ARCH).costs(workload).by_config
    trials = tuple(Trial(workload=workload, config=config) for config in known)
    excluded.add(trials, "sm_80", "wrong")
    with pytest.raises(NoLegalConfigError, match="it failed the check: wrong"):
        chosen(excluded, workload)


@dataclass(frozen=True)
class Measured:
    """A source that knows one time."""

    known: Costs
    measurements: tuple[()] = ()

    def costs(self, workload: Workload) -> Costs:
        del workload
        return self.known


def test_where_all_that_was_measured_has_failed_the_model_chooses() -> None:
    excluded = Excluded()
    first = trial_of(chosen(excluded))
    measured = Measured(Costs(by_config={first.config: 1.0}, origin="measured"))
    assert excluded.out_of(measured, ARCH).costs(GEMM) == measured.known
    excluded.add((first,), "sm_80", "wrong")
    (decision,) = select([Task(workload=GEMM)], ARCH, excluded.out_of(measured, ARCH))
    assert compiled(decision.config) != compiled(first.config)
    assert decision.origin == ModelCosts(ARCH).origin


def test_a_kernel_that_spills_is_better_than_one_that_failed() -> None:
    excluded = Excluded()
    wrong = trial_of(chosen(excluded))
    excluded.add((wrong,), "sm_80", "wrong")
    spilling = trial_of(chosen(excluded))
    both = Costs(by_config={wrong.config: 1.0, spilling.config: 2.0}, origin="", is_predicted=True)
    source = excluded.out_of(Measured(both), ARCH)
    model = excluded.out_of(ModelCosts(ARCH), ARCH)
    others = [Trial(workload=GEMM, config=c) for c in model.costs(GEMM).by_config]
    spills = {trial.spec("sm_80"): "it spills" for trial in others if trial != wrong}
    left = WithoutFaults(source, model, "sm_80", spills).costs(GEMM).by_config
    assert isinstance(left[wrong.config], Failure)
    assert left[spilling.config] == 2.0


def test_a_chain_is_replaced_and_then_cut() -> None:
    excluded, seen = Excluded(), []
    cut = cutter("sm_80", PipelineOptions(excluded=excluded))
    assert cut_layers(LAYERS, ARCH).counts == (2,)
    for _ in range(3):
        assert cut(LAYERS).counts == (2,)
        decision = chosen(excluded, Workload(layers=LAYERS))
        assert decision.config not in seen
        seen.append(decision.config)
        excluded.add((trial_of(decision),), "sm_80", "wrong")
    assert cut(LAYERS).counts == separate(LAYERS).counts
