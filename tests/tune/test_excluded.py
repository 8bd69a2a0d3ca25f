"""Kernels that failed a check are not chosen; a problem of which several failed is given up."""

from __future__ import annotations

import pytest

from boltgen.arch import arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import ChainLayer, GemmChain, separate
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import BatchedGemm, Gemm
from boltgen.pipeline import PipelineOptions, cutter, rejecter
from boltgen.tune.chains import cut_chain, decide_chain, fused_chains
from boltgen.tune.excluded import Excluded
from boltgen.tune.outcome import Failure, Trial
from boltgen.tune.select import Decision, ModelCosts, Task, select

ARCH = arch_named("sm_80")
GEMM = Gemm(m=512, n=256, k=1024)
LAYERS = (
    ChainLayer(problem=Gemm(m=65536, n=64, k=64), epilogue=Epilogue()),
    ChainLayer(problem=Gemm(m=65536, n=64, k=64), epilogue=Epilogue()),
)


def chosen(excluded: Excluded) -> Decision:
    task = Task(problem=GEMM, epilogue=Epilogue())
    (decision,) = select([task], ARCH, excluded.out_of(ModelCosts(ARCH), ARCH))
    return decision


def trial_of(decision: Decision) -> Trial:
    return Trial(problem=decision.problem, epilogue=decision.epilogue, config=decision.config)


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
    assert rejects(Gemm(m=8, n=8, k=8)) is None


def test_a_kernel_is_excluded_for_every_problem() -> None:
    excluded = Excluded()
    first = trial_of(chosen(excluded))
    excluded.add((first,), "sm_80", "wrong")
    other = Gemm(m=1024, n=256, k=1024)
    costs = excluded.out_of(ModelCosts(ARCH), ARCH).costs(other, Epilogue()).by_config
    failed = {config for config, cost in costs.items() if isinstance(cost, Failure)}
    assert failed
    assert {config.kernel for config in failed} == {first.config.kernel}


def test_where_all_have_failed_is_an_error() -> None:
    excluded = Excluded()
    problem = BatchedGemm(batch=2, m=7, n=33, k=100)
    known = ModelCosts(ARCH).costs(problem, Epilogue()).by_config
    trials = tuple(Trial(problem=problem, epilogue=Epilogue(), config=config) for config in known)
    excluded.add(trials, "sm_80", "wrong")
    task = Task(problem=problem, epilogue=Epilogue())
    with pytest.raises(NoLegalConfigError, match="it failed the check: wrong"):
        select([task], ARCH, excluded.out_of(ModelCosts(ARCH), ARCH))


def test_a_chain_is_replaced_and_then_cut() -> None:
    excluded, seen = Excluded(), []
    cut = cutter("sm_80", PipelineOptions(excluded=excluded))
    (chain,) = fused_chains(LAYERS, cut_chain(LAYERS, ARCH))
    assert isinstance(chain, GemmChain)
    for _ in range(3):
        assert cut(LAYERS).counts == (2,)
        costs = excluded.out_of(ModelCosts(ARCH), ARCH)
        decision = decide_chain(chain, ARCH, costs.measurements)
        assert decision.config not in seen
        seen.append(decision.config)
        trial = Trial(problem=decision.chain, epilogue=Epilogue(), config=decision.config)
        excluded.add((trial,), "sm_80", "wrong")
    assert cut(LAYERS).counts == separate(LAYERS).counts
