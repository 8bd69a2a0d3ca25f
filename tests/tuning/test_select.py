"""Selection: few kernels for a model, each legal, the same in every run, from any cost source."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from benchmarks.cases.resnet50_layers import biased, resnet50_tasks
from boltgen.arch import ARCHES, arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.registry import candidates, kernel_spec, violations
from boltgen.ir.outcome import Failure, Fault
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.select import (
    Costs,
    Decision,
    ModelCosts,
    Task,
    WithoutFaults,
    select,
)

SM80 = arch_named("sm_80")


def kernels(decisions: tuple[Decision, ...], arch: str) -> set[object]:
    return {kernel_spec(d.workload, d.config, arch) for d in decisions}


def test_the_layer_list_is_resnet50():
    tasks = resnet50_tasks(1)
    assert len(tasks) == 54
    # 4.09 G multiply-adds. Source: torchvision's model page, ResNet50_Weights.
    assert sum(task.workload.flops for task in tasks) / 2 == pytest.approx(4.09e9, rel=0.005)
    problems = [task.workload.single.problem for task in tasks]
    assert sum(isinstance(problem, Conv2d) for problem in problems) == 20


@pytest.mark.parametrize("name", ARCHES)
@pytest.mark.parametrize("batch", [1, 32])
def test_resnet50_takes_at_most_12_kernels(name, batch):
    tasks = resnet50_tasks(batch)
    decisions = select(tasks, arch_named(name))
    assert len(kernels(decisions, name)) <= 12
    assert [decision.workload for decision in decisions] == [task.workload for task in tasks]
    for decision in decisions:
        assert violations(decision.workload, decision.config, arch_named(name)) == ()
        assert decision.origin == "predicted by the analytical model"
    assert decisions == select(tasks, arch_named(name))
    # What sharing costs: each kernel left out would have saved at most its price.
    free = select(tasks, arch_named(name), kernel_price_us=0)
    total, best = (sum(d.time_us for d in each) for each in (decisions, free))
    assert best <= total <= 1.1 * best


def test_a_high_price_leaves_one_kernel_per_identity():
    tasks = resnet50_tasks(32)
    decisions = select(tasks, SM80, kernel_price_us=1e9)
    # relu, residual and bias GEMMs; relu, bias and three-channel convolutions.
    assert len(kernels(decisions, "sm_80")) == 6


@dataclass(frozen=True)
class ByTile:
    """A profiler's stand-in: likes one tile height per problem, and fails as told."""

    liked: dict[int, int]
    fails: bool = False

    def costs(self, workload):
        configs = candidates(workload, SM80)
        return Costs(by_config={c: self.cost(workload, c) for c in configs}, origin="measured")

    def cost(self, workload, config):
        if self.fails:
            return Failure(fault=Fault.COMPILE, reason="nvcc was killed")
        if config.threadblock.m == 256:
            return Failure(fault=Fault.COMPILE, reason="ran out of registers")
        return 10.0 if config.threadblock.m == self.liked[workload.single.problem.m] else 12.0


def gemm_tasks(*heights: int, occurrences: int = 1) -> list[Task]:
    return [
        Task(workload=Workload.of(Gemm(m=m, n=512, k=512)), occurrences=occurrences)
        for m in heights
    ]


def test_a_kernel_is_added_only_where_it_saves_more_than_its_price():
    source = ByTile({512: 64, 1024: 128})
    cheap = select(gemm_tasks(512, 1024), SM80, source, kernel_price_us=1.0)
    assert [d.time_us for d in cheap] == [10.0, 10.0]
    assert len(kernels(cheap, "sm_80")) == 2
    dear = select(gemm_tasks(512, 1024), SM80, source, kernel_price_us=3.0)
    assert len(kernels(dear, "sm_80")) == 1
    assert sorted(d.time_us for d in dear) == [10.0, 12.0]
    often = select(gemm_tasks(512, 1024, occurrences=2), SM80, source, kernel_price_us=3.0)
    assert len(kernels(often, "sm_80")) == 2
    assert {d.origin for d in often} == {"measured"}


def test_tasks_without_a_common_tile_each_get_a_kernel_whatever_its_price():
    # A 32-row problem takes only tiles of 32 rows, which cost the other one nothing extra here.
    decisions = select(gemm_tasks(16, 4096), SM80, kernel_price_us=1e9)
    assert len(kernels(decisions, "sm_80")) == 1
    other = Task(workload=Workload.of(Gemm(m=4096, n=512, k=512), biased()))
    assert len(kernels(select([*gemm_tasks(16), other], SM80), "sm_80")) == 2


def test_a_source_without_any_cost_is_reported_with_its_reason():
    with pytest.raises(NoLegalConfigError, match=r"Gemm\(m=64.*sm_80.*nvcc was killed"):
        select(gemm_tasks(64), SM80, ByTile({}, fails=True))


def fused(m: int, *, relu: bool = True) -> Workload:
    layers = (Layer(problem=Gemm(m=m, n=64, k=64), epilogue=biased(relu=relu)) for _ in range(2))
    return Workload(layers=tuple(layers))


def test_fused_workloads_are_chosen_for_as_all_others_are():
    sizes = (4096, 8192, 16384)
    tasks = [Task(workload=fused(m)) for m in sizes]
    tasks += [Task(workload=fused(4096, relu=False)), *gemm_tasks(4096)]
    free = select(tasks, SM80, kernel_price_us=0)
    for task, decision in zip(tasks, free, strict=True):
        predicted = ModelCosts(SM80).costs(task.workload).by_config
        assert violations(task.workload, decision.config, SM80) == ()
        assert decision.time_us == predicted[decision.config] == min(predicted.values())
    # One kernel for all rows of the same layers; another epilogue, or one product, is another one.
    dear = select(tasks, SM80, kernel_price_us=1e9)
    assert [decision.config.family for decision in dear] == ["b2b"] * 4 + ["cutlass2"]
    specs = [kernel_spec(d.workload, d.config, "sm_80") for d in dear]
    assert specs[0] == specs[1] == specs[2]
    assert len(set(specs)) == 3


def test_a_source_may_be_of_another_cost_model():
    class Rows:
        name = "rows"

        def rejects(self, arch):
            return None

        def predict_us(self, workload, configs, arch):
            return [float(1000 - config.threadblock.m) for config in configs]

    (decision,) = select(gemm_tasks(4096), SM80, ModelCosts(SM80, Rows()))
    assert decision.config.threadblock.m == 256
    assert decision.origin == "predicted by the rows model"


def test_no_tasks_no_decisions():
    assert select([], SM80) == ()


def test_a_kernel_that_spills_is_chosen_only_if_there_is_no_other():
    workload = Workload.of(Gemm(m=512, n=512, k=512))
    source = ModelCosts(SM80)
    (first,) = select([Task(workload=workload)], SM80, source)
    spills = {kernel_spec(workload, first.config, "sm_80"): "it spills"}
    without = WithoutFaults(source, source, "sm_80", spills)
    (second,) = select([Task(workload=workload)], SM80, without)
    assert second.config.kernel != first.config.kernel
    costs = without.costs(workload)
    failed = {c for c, cost in costs.by_config.items() if isinstance(cost, Failure)}
    assert failed == {c for c in costs.by_config if c.kernel == first.config.kernel}
    assert {costs.by_config[c].reason for c in failed} == {"it spills"}

    measured = Fixed(Costs(by_config={first.config: 1.0, second.config: 2.0}, origin="measured"))
    (other,) = select([Task(workload=workload)], SM80, replace(without, source=measured))
    assert (other.config, other.origin) == (second.config, "measured")
    # A measurement of it alone says nothing of the others: the model chooses.
    alone = Fixed(Costs(by_config={first.config: 1.0}, origin="measured"))
    (third,) = select([Task(workload=workload)], SM80, replace(without, source=alone))
    assert (third.config, third.origin) == (second.config, source.origin)

    every = {kernel_spec(workload, c, "sm_80"): "it spills" for c in costs.by_config}
    assert replace(without, source=measured, faults=every).costs(workload) == measured.known


@dataclass(frozen=True)
class Fixed:
    """A source that always says the same."""

    known: Costs
    measurements: tuple[()] = ()

    def costs(self, workload: object) -> Costs:
        return self.known
