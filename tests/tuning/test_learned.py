"""Cost models that records train: what they learn, and what they refuse."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.harness.cross_validation import cross_validated
from benchmarks.model_against_data import RTX_2080_TI, times
from boltgen import cli
from boltgen.arch import arch_named
from boltgen.cost.learned import (
    VERSION,
    Example,
    Learned,
    _features,
    load,
    regrets,
    train,
)
from boltgen.cost.model import ANALYTICAL, TRAINED, cost_model_named, serving
from boltgen.errors import BoltgenError, RecordError
from boltgen.families.mma_sync.legality import violations
from boltgen.families.registry import predict, spaces
from boltgen.options import TuneOptions
from boltgen.options.option import chosen
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.options import SessionOptions
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import A100, record
from tests.tuning.sessions import ALL, Heard, session

SM_80 = arch_named("sm_80")
PROBLEMS = [
    Workload.of(Gemm(m=m, n=n, k=768)) for m in (256, 640, 1024, 4096) for n in (512, 2304, 768)
]


def slowed(workload: Workload, *, by: float = 2.0) -> list[Example]:
    """A device on which two warps along M cost `by` times what the analytical model says."""
    configs = [each for space in spaces(workload, SM_80) for each in space.candidates][:40]
    return [
        Example(
            workload=workload,
            config=config,
            arch=SM_80,
            time_us=predict(workload, config, SM_80).time_us
            * (by if getattr(config, "stages", 0) == 3 else 1.0),
        )
        for config in configs
    ]


EXAMPLES = [example for workload in PROBLEMS for example in slowed(workload)]


@cache
def trained_on_all() -> Learned:
    return train(EXAMPLES)


def test_it_learns_what_the_analytical_model_does_not_know() -> None:
    model = trained_on_all()
    training = model.training
    assert (training.arch, training.problems, training.times) == ("sm_80", 12, len(EXAMPLES))
    # On problems that it has not seen: the device's rule is one of stages, which all share.
    assert training.analytical_regret > 1.0
    assert training.regret < training.analytical_regret
    assert training.log_error < training.analytical_log_error / 2
    unseen = Workload.of(Gemm(m=2048, n=1024, k=768))
    found = slowed(unseen)
    predicted = model.predict_us(unseen, [each.config for each in found], SM_80)
    fastest = min(each.time_us for each in found)
    assert found[int(np.argmin(predicted))].time_us < 1.1 * fastest
    assert model.predict_us(unseen, [], SM_80) == []


def test_no_problem_is_predicted_by_a_model_that_has_seen_it() -> None:
    # The times of one problem are others' doubled: who has seen it knows, who has not cannot.
    odd = [
        replace(each, time_us=3 * each.time_us) if each.workload == PROBLEMS[0] else each
        for each in EXAMPLES
    ]
    predicted = cross_validated(odd)
    first = [index for index, each in enumerate(odd) if each.workload == PROBLEMS[0]]
    errors = [predicted[index] - np.log(odd[index].time_us) for index in first]
    assert np.median(errors) == pytest.approx(-np.log(3), abs=0.2)


def test_regret_is_of_the_first_pick_of_each_problem() -> None:
    two = [
        replace(each, time_us=time_us)
        for each, time_us in zip(EXAMPLES[:2], (30.0, 20.0), strict=True)
    ]
    assert regrets(two, np.array([1.0, 2.0])) == [1.5]
    assert regrets(two, np.array([2.0, 1.0])) == [1.0]


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    model = trained_on_all()
    path = tmp_path / "a100.ubj"
    model.save(path)
    again = cost_model_named(str(path))
    configs = [each.config for each in EXAMPLES[:20]]
    assert again.predict_us(PROBLEMS[0], configs, SM_80) == model.predict_us(
        PROBLEMS[0], configs, SM_80
    )
    assert again.name == model.name == f"learned-sm_80-{len(EXAMPLES)}"
    assert load(path).training == model.training
    assert chosen(TuneOptions, None, {"cost_model": str(path)}).cost_model.name == model.name


def test_at_the_far_end_the_analytical_model_remains() -> None:
    """The correction fades by exp(-d^2 / 2), d doublings beyond the largest problem seen."""
    model = trained_on_all()
    assert model.training.most_flops == max(workload.flops for workload in PROBLEMS)
    workload = PROBLEMS[-2]
    configs = [each.config for each in slowed(workload)]
    analytical = np.log(ANALYTICAL.predict_us(workload, configs, SM_80))

    def correction(doublings: float) -> np.ndarray:
        seen = replace(model.training, most_flops=workload.flops / 2**doublings)
        other = Learned(model._trees, seen)
        return np.log(other.predict_us(workload, configs, SM_80)) - analytical

    whole = correction(0.0)
    assert np.abs(whole).max() > 0.1
    assert correction(-3.0) == pytest.approx(whole)
    for doublings in (1.0, 2.0, 3.0):
        faded = whole * np.exp(-(doublings**2) / 2)
        assert correction(doublings) == pytest.approx(faded, abs=1e-6)


def test_of_kinds_that_it_has_not_seen_it_says_what_the_analytical_model_does() -> None:
    image = Conv2d(n=8, h=28, w=28, c=128, k=128, r=3, s=3, padding=(1, 1, 1, 1))
    workload = Workload.of(image)
    configs = [each for space in spaces(workload, SM_80) for each in space.candidates][:20]
    assert trained_on_all().predict_us(workload, configs, SM_80) == pytest.approx(
        ANALYTICAL.predict_us(workload, configs, SM_80)
    )


def test_trees_may_learn_which_is_faster() -> None:
    ranked = regrets(EXAMPLES, cross_validated(EXAMPLES, ranks=True))
    analytical = regrets(
        EXAMPLES,
        np.log([predict(each.workload, each.config, SM_80).time_us for each in EXAMPLES]),
    )
    assert np.mean(ranked) < np.mean(analytical)


@pytest.mark.parametrize("name", TRAINED)
def test_a_shipped_model_says_what_it_knows_and_serves_nothing_else(name: str) -> None:
    model = cost_model_named(name)
    training = model.training
    assert TRAINED[name].stat().st_size < 300_000
    assert training.regret < training.analytical_regret
    assert training.log_error < training.analytical_log_error
    assert "BSD-3-Clause" in training.source
    beside = TRAINED[name].with_name("README.md").read_text()
    shown = f"`{name}.ubj` | {training.arch}: {training.times:,} times of {training.problems}"
    assert shown in beside
    assert f"{training.regret:.3f}" in beside
    told: list[str] = []
    assert serving(model, arch_named(training.arch), told.append) is model
    assert not told
    assert serving(model, SM_80, told.append) is ANALYTICAL
    assert "sm_80" in told[0]
    with pytest.raises(BoltgenError, match=rf"there are analytical, .*{name}"):
        cost_model_named("another")


def test_the_shipped_model_knows_the_features_of_a_kernel() -> None:
    workload = Workload.of(Gemm(m=512, n=512, k=512))
    model = cost_model_named("rtx-2080-ti")
    config = spaces(workload, RTX_2080_TI)[0].candidates[0]
    assert set(_features(workload, config, RTX_2080_TI)) == set(model._trees.feature_names)


def test_the_shipped_model_is_nearer_to_what_it_was_trained_on() -> None:
    table = times()
    (problem, _), measured = max(table.items(), key=lambda each: each[0][0].flops)
    workload = Workload.of(problem)
    legal = [each for each in measured if not violations(problem, each, RTX_2080_TI)]
    logs = np.log([measured[each] for each in legal])
    errors = [
        np.sqrt(np.mean((np.log(model.predict_us(workload, legal, RTX_2080_TI)) - logs) ** 2))
        for model in (cost_model_named("rtx-2080-ti"), ANALYTICAL)
    ]
    assert errors[0] < errors[1] / 2


def test_it_knows_one_architecture() -> None:
    with pytest.raises(BoltgenError, match=r"knows sm_80, not sm_75.*--arch sm_75"):
        trained_on_all().predict_us(PROBLEMS[0], [EXAMPLES[0].config], arch_named("sm_75"))
    other = replace(EXAMPLES[0], arch=arch_named("sm_86"))
    with pytest.raises(RecordError, match=r"sm_80, sm_86"):
        train([*EXAMPLES, other])


def test_a_model_of_another_version_or_arch_is_refused_and_the_analytical_one_serves(
    tmp_path: Path,
) -> None:
    model = trained_on_all()
    path = tmp_path / "old.ubj"
    Learned(model._trees, replace(model.training, version=VERSION - 1)).save(path)
    with pytest.raises(BoltgenError, match=rf"{model.name}.*{VERSION - 1}.*{VERSION}"):
        load(path).predict_us(PROBLEMS[0], [EXAMPLES[0].config], SM_80)
    told: list[str] = []
    assert serving(load(path), SM_80, told.append) is ANALYTICAL
    assert serving(model, arch_named("sm_75"), told.append) is ANALYTICAL
    assert [model.name in each and "analytical" in each for each in told] == [True, True]
    assert "sm_75" in told[1]
    assert serving(model, SM_80, told.append) is model
    assert serving(ANALYTICAL, SM_80, told.append) is ANALYTICAL
    assert len(told) == 2
    heard = Heard()
    with Database(tmp_path / "records.sqlite") as database:
        options = SessionOptions(cost_model=load(path))
        made = session(FakeBench(), database, ALL, options=options, observer=heard)
        assert made.run().measured > 0
    assert len(heard.warnings) == 1
    assert model.name in heard.warnings[0]


def test_too_few_records_are_refused() -> None:
    with pytest.raises(RecordError, match=r"40 times of 1 problems.*100 of 10"):
        train(slowed(PROBLEMS[0]))
    with pytest.raises(RecordError, match=r"12 times of 12 problems"):
        train([slowed(workload)[0] for workload in PROBLEMS])


@pytest.mark.parametrize("content", [b"", b"{}", b"no model", b"\x00" * 64])
def test_other_files_are_no_models(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ubj"
    path.write_bytes(content)
    with pytest.raises(BoltgenError, match=r"a\.ubj is no cost model"):
        load(path)
    with pytest.raises(BoltgenError, match=r"b\.ubj is no cost model"):
        cost_model_named(str(tmp_path / "b.ubj"))


def test_without_xgboost_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(BoltgenError, match=r"pip install .*\[learned\]"):
        train(EXAMPLES)


def trained(tmp_path: Path, examples: list[Example], *arguments: object) -> tuple[int, str]:
    with Database(tmp_path / "records.sqlite") as database:
        database.add(
            record(each.time_us, workload=each.workload, config=each.config, device=A100)
            for each in examples
        )
        where = ["--database", str(database.path)]
    command = ["db", "train", *map(str, arguments), *where]
    result = CliRunner().invoke(cli.app, command)
    return result.exit_code, " ".join(result.output.split())


def test_db_train_writes_a_model_that_ranks_better(tmp_path: Path) -> None:
    path = tmp_path / "a100.ubj"
    status, text = trained(tmp_path, EXAMPLES, path)
    assert status == 0, text
    assert f"{len(EXAMPLES)} times of 12 problems" in text
    assert load(path).training.regret < load(path).training.analytical_regret


def test_db_train_writes_nothing_that_is_no_better(tmp_path: Path) -> None:
    path = tmp_path / "a100.ubj"
    same = [example for workload in PROBLEMS for example in slowed(workload, by=1.0)]
    status, text = trained(tmp_path, same, path)
    assert status != 0
    assert "1.000" in text
    assert not path.exists()
    status, text = trained(tmp_path, [], tmp_path / "a100.json")
    assert status != 0
    assert ".ubj" in text
