"""The kept tasks of models are those that boltgen finds now."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.gpu.model_tasks import ARCHES, kept_tasks, model_tasks
from benchmarks.gpu.shapes import models
from boltgen.tuning.select import AnyTask


def flops(tasks: Sequence[AnyTask]) -> int:
    return sum(task.occurrences * task.problem.flops for task in tasks)


def test_the_kept_tasks_are_those_of_the_models():
    """Of one model, with chains. What is cut and padded how is the cost model's: flops change with
    it a little, and then `python -m benchmarks.gpu.model_tasks` may be run again.
    """
    found = model_tasks(models()["repvggaug_a0-b32"])
    for arch in ARCHES:
        kept = kept_tasks()[arch]["repvggaug_a0-b32"]
        assert flops(kept) == pytest.approx(flops(found[arch]), rel=0.1)


def test_every_model_is_kept_with_as_many_products_as_it_has():
    for arch in ARCHES:
        kept = kept_tasks()[arch]
        assert kept.keys() == models().keys()
        counts = {
            name: sum(
                task.occurrences * len(getattr(task.problem, "layers", (None,))) for task in tasks
            )
            for name, tasks in kept.items()
        }
        for batch in (1, 32):
            assert counts[f"resnet50-b{batch}"] == 54
            assert counts[f"vgg16-b{batch}"] == 16
            assert counts[f"repvgg_a0-b{batch}"] == 23
            # Six products with weights in each of twelve layers, and attention's two.
            assert counts[f"bert_base-b{batch}"] == 12 * 8
