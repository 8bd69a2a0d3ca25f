"""TVM's MetaSchedule and boltgen's strategies on the same tables.

    python -m benchmarks.metaschedule_arena [--seeds N] [--kept]

A family's knobs become the decisions of a schedule whose function computes nothing: one
`sample_categorical` for each knob. A postprocessor refuses what breaks a rule, as MetaSchedule's
own refuse what a GPU cannot run, and a mutator draws one decision anew. All else is MetaSchedule's:
the evolution that Ansor became, with its own settings but for the size of a batch, which is the
arena's. Its model is XGBoost as MetaSchedule trains it, on the knobs and the logarithm of the
analytical time, from the first batch on or, by default, from 100 trials on; or the analytical model
itself. A search takes half a minute: `--kept` reuses the courses of an earlier run, with their
seeds and models, and only a table without courses is searched. The tables are
`benchmarks.search_arena`'s, of a device that does not exist.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from time import process_time
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te
from tvm.ir.utils import derived_object
from tvm.target import Target

from benchmarks.arena import ALL_STRATEGIES
from benchmarks.arena.tables import Table, other_device
from benchmarks.record import RESULTS, write
from benchmarks.search_arena import BATCH, TRIALS, Course, above, course, figures
from boltgen.families.family import Config
from boltgen.families.space import AnySpace
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.experience import Experience
from boltgen.tvm_build.rest.search import load_tuner

meta = load_tuner()
_FAMILY = "family"
_ANALYTICAL = "MetaSchedule, analytical model"
# MetaSchedule begins with so many that it has not measured; its 50 are for batches of 64. One in
# twenty settings of knobs is legal: it may draw more often than the five times of its default.
_FRESH, _DRAWS = 8, 50
COURSES = RESULTS / "metaschedule_courses.json"


class _Settings:
    """Schedules as configurations: each decision is the place of a knob's value."""

    def __init__(self, spaces: Sequence[AnySpace]) -> None:
        self._spaces = {space.family: space for space in spaces}
        self._legal: dict[Config, bool] = {}

    def designs(self, schedule: s_tir.Schedule) -> list[s_tir.Schedule]:
        """A schedule for each family, whose block has its knobs as annotations."""
        found = []
        for family, space in self._spaces.items():
            design = schedule.copy()
            block = design.get_sblock("b")
            design.annotate(block, _FAMILY, family)
            for knob in space.knobs:
                count = len(knob.values)
                place = design.sample_categorical(list(range(count)), [1.0 / count] * count)
                design.annotate(block, knob.name, place)
            found.append(design)
        return found

    def config(self, schedule: s_tir.Schedule) -> Config | None:
        """The configuration of a schedule; None where its knobs leave none."""
        told = schedule.get(schedule.get_sblock("b")).annotations
        space = self._spaces[str(told[_FAMILY])]
        return space.config_at(
            {knob.name: knob.values[int(told[knob.name])] for knob in space.knobs}
        )

    def is_legal(self, schedule: s_tir.Schedule) -> bool:
        """Whether its configuration breaks no rule."""
        config = self.config(schedule)
        if config is None:
            return False
        if config not in self._legal:
            self._legal[config] = not self._spaces[config.family].broken(config)
        return self._legal[config]


def _postprocessor(settings: _Settings) -> Any:
    @derived_object
    class Legal(meta.postproc.PyPostproc):  # type: ignore[misc, name-defined]
        """Refuses what breaks a rule."""

        def _initialize_with_tune_context(self, context: Any) -> None: ...

        def apply(self, schedule: s_tir.Schedule) -> bool:
            return settings.is_legal(schedule)

        def clone(self) -> Any:
            return Legal()

    return Legal()


def _mutator(rng: random.Random) -> Any:
    @derived_object
    class Redrawn(meta.mutator.PyMutator):  # type: ignore[misc, name-defined]
        """Draws one decision anew, as MetaSchedule's mutators of unrolling and threads do."""

        def _initialize_with_tune_context(self, context: Any) -> None: ...

        def apply(self, trace: Any, _: Any) -> Any:
            drawn = [each for each in trace.insts if each in trace.decisions]
            chosen = rng.choice([each for each in drawn if len(each.attrs[0]) > 1])
            others = set(range(len(chosen.attrs[0]))) - {int(trace.decisions[chosen])}
            return trace.with_decision(chosen, rng.choice(sorted(others)), remove_postproc=True)

        def clone(self) -> Any:
            return Redrawn()

    return Redrawn()


def _features(table: Table, settings: _Settings) -> Any:
    spaces = {space.family: space for space in table.problem.spaces}
    longest = max(len(space.knobs) for space in spaces.values())

    @derived_object
    class Knobs(meta.feature_extractor.PyFeatureExtractor):  # type: ignore[misc, name-defined]
        """The family, its knobs and the logarithm of the analytical time."""

        def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Any]:
            return [tvm.runtime.tensor(self._row(each.sch)) for each in candidates]

        def _row(self, schedule: s_tir.Schedule) -> np.ndarray[Any, Any]:
            config = settings.config(schedule)
            assert config is not None
            (time_us,) = table.problem.predicted_us([config])
            places = spaces[config.family].encode(config)
            rest = [0.0] * (longest - len(places))
            family = list(spaces).index(config.family)
            return np.array([[math.log(time_us), family, *places, *rest]])

    return Knobs()


def _analytical(table: Table, settings: _Settings) -> Any:
    @derived_object
    class Analytical(meta.cost_model.PyCostModel):  # type: ignore[misc, name-defined]
        """The model with which boltgen's strategies begin; it learns nothing."""

        def load(self, path: str) -> None: ...

        def save(self, path: str) -> None: ...

        def update(self, context: Any, candidates: Any, results: Any) -> None: ...

        def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray[Any, Any]:
            configs = [settings.config(each.sch) for each in candidates]
            known = [config for config in configs if config is not None]
            assert len(known) == len(configs)
            return 1.0 / np.array(table.problem.predicted_us(known), np.float64)

    return Analytical()


def _xgboost(table: Table, settings: _Settings, warm_up: int) -> Any:
    return meta.cost_model.XGBModel(
        extractor=_features(table, settings), num_warmup_samples=warm_up, num_tuning_cores=1
    )


MODELS = {
    "MetaSchedule": lambda table, settings: _xgboost(table, settings, 100),
    "MetaSchedule, trained from the first batch": lambda table, settings: _xgboost(
        table, settings, BATCH
    ),
    _ANALYTICAL: _analytical,
}


def metaschedule_course(name: str, table: Table, seed: int) -> Course:
    """MetaSchedule's search until the last number of trials, or its end."""
    rng = random.Random(f"{seed}/{table.name}")
    np.random.seed(seed)  # XGBModel's numbers before it is trained
    settings = _Settings(table.problem.spaces)
    model = MODELS[name](table, settings)
    started = process_time()
    memory = meta.database.MemoryDatabase()
    tuner = _tuner(settings, model, memory, rng)
    workload = memory.commit_workload(tuner.mod)
    seconds = process_time() - started
    found: list[float] = []
    while len(found) < TRIALS[-1]:
        started = process_time()
        candidates = tuner.generate_measure_candidates()
        seconds += process_time() - started
        if not candidates:
            break
        results = []
        for each in candidates:
            config = settings.config(each.sch)
            assert config is not None
            outcome = table.answer(config)
            time_us = outcome.median_us if isinstance(outcome, Timing) else math.inf
            found.append(min(time_us, *found[-1:], math.inf))
            timed = [time_us * 1e-6], None
            failed = None, "it fails"
            results.append(meta.runner.RunnerResult(*(timed if time_us < math.inf else failed)))
        started = process_time()
        tuner.notify_runner_results(candidates, results)
        model.update(tuner, candidates, results)
        for each, result in zip(candidates, results, strict=True):
            if result.run_secs is not None:
                told = each.sch.trace, workload, result.run_secs, tuner.target, each.args_info
                memory.commit_tuning_record(meta.database.TuningRecord(*told))
        seconds += process_time() - started
    return Course(best_us=tuple(found[: TRIALS[-1]]), seconds=seconds)


def _tuner(settings: _Settings, model: Any, memory: Any, rng: random.Random) -> Any:
    a = te.placeholder((1,), name="a")
    function = te.create_prim_func([a, te.compute((1,), lambda i: a[i], name="b")])
    tuner = meta.TuneContext(
        tvm.IRModule({"main": function.with_attr("global_symbol", "main")}),
        target=Target("llvm"),
        space_generator=meta.space_generator.ScheduleFn(
            settings.designs,
            sch_rules=[],
            postprocs=[_postprocessor(settings)],
            mutator_probs={_mutator(rng): 1.0},
        ),
        search_strategy=meta.search_strategy.EvolutionarySearch(
            init_min_unmeasured=_FRESH, max_fail_count=_DRAWS
        ),
        task_name="knobs",
        rand_state=rng.randrange(1, 2**30),
        num_threads=1,
        logger=logging.getLogger(__name__),
    )
    tuner.pre_tuning(
        max_trials=TRIALS[-1],
        num_trials_per_iter=BATCH,
        design_spaces=tuner.generate_design_space(),
        database=memory,
        cost_model=model,
    )
    return tuner


_Kept = dict[str, dict[str, dict[str, dict[str, Any]]]]


def _kept_models(kept: _Kept) -> list[str]:
    """The models that every table has a course of, where there is one."""
    tables = [courses for by_table in kept.values() for courses in by_table.values()]
    return [name for name in MODELS if all(name in courses for courses in tables)]


def _searched(table: Table, seed: int, kept: _Kept, models: Sequence[str]) -> dict[str, Course]:
    """MetaSchedule's courses, which are then `kept`: by seed, table and model."""
    found = {name: metaschedule_course(name, table, seed) for name in models}
    kept[str(seed)][table.name] = {
        name: {"best_us": [round(us, 4) for us in each.best_us], "seconds": round(each.seconds, 2)}
        for name, each in found.items()
    }
    COURSES.write_text(json.dumps(kept) + "\n")
    return found


def _recalled(table: Table, seed: int, kept: _Kept, models: Sequence[str]) -> dict[str, Course]:
    """MetaSchedule's courses, as they were kept."""
    found = kept[str(seed)][table.name]
    return {
        name: Course(best_us=tuple(found[name]["best_us"]), seconds=found[name]["seconds"])
        for name in models
    }


def main() -> None:
    """Run both on each device's tables, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kept", action="store_true")
    asked = parser.parse_args()
    kept: _Kept = json.loads(COURSES.read_text()) if asked.kept else defaultdict(dict)
    models = _kept_models(kept)
    runs: dict[str, list[tuple[Course, float]]] = defaultdict(list)
    for seed in sorted(map(int, kept)) if asked.kept else range(asked.seeds):
        for table in other_device(seed):
            courses = {
                name: course(make, table, seed, Experience())
                for name, make in ALL_STRATEGIES.items()
            }
            is_kept = table.name in kept[str(seed)]
            courses |= (_recalled if is_kept else _searched)(table, seed, kept, models)
            best_us = min(table.best_us, *(each.best_us[-1] for each in courses.values()))
            for name, each in courses.items():
                runs[name].append((each, best_us))
    write(
        "metaschedule_arena",
        {
            name: figures(each) | {"above_metaschedule_analytical": above(each, runs[_ANALYTICAL])}
            for name, each in runs.items()
        },
        target="fewer trials than MetaSchedule's evolution at equal regret",
    )


if __name__ == "__main__":
    main()
