"""Which items section models has, and which libraries and kernels they need.

Arrow: as `wanted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.gpu.items import RECIPE, Item, Tuning, WholeModel
from benchmarks.gpu.shapes import ModelShape
from boltgen.tuning.select import Task, distinct

if TYPE_CHECKING:
    from benchmarks.gpu.wanted import Wanted

# Names of a model's libraries, beside those of kernels.
MODEL_OURS, MODEL_ALONE = "model_{name}", "model_{name}_tvm_alone"
MODEL_TUNED = "model_{name}_tvm_metaschedule"
# Of a task's kernels with its epilogue, those that are in the bundle. The tuner's round two wants
# those that led its round one: it finds as many of them as the analytical model is right about.
_LIKELIEST_FUSED = 2
# What a session may take: well beyond what is aimed at, and two of them within an item's time.
_MOST_TUNING_S = 90.0


def models(wanted: Wanted, shapes: Mapping[str, ModelShape]) -> Iterator[Item]:
    """Whole models."""
    for name, shape in shapes.items():
        wanted.models[name] = shape
        yield WholeModel(
            section="models",
            name=name,
            model=shape.model,
            input_shape=shape.input_shape,
            ours=MODEL_OURS.format(name=name),
            alone=MODEL_ALONE.format(name=name),
            tuned=MODEL_TUNED.format(name=name) if name in wanted.logs else None,
            recipe=RECIPE.format(arch=wanted.arch.name, name=name),
        )


def tunings(wanted: Wanted, tasks_by_model: Mapping[str, Sequence[Task]]) -> Iterator[Item]:
    """boltgen's tuner on the products of models."""
    most = min(wanted.likeliest, _LIKELIEST_FUSED)
    for name, tasks in tasks_by_model.items():
        merged = tuple(task for task in distinct(tasks) if isinstance(task, Task))
        for task in merged:
            wanted.kernels(task.problem, task.epilogue, most)
        yield Tuning(section="models", name=f"tune-{name}", tasks=merged, most_s=_MOST_TUNING_S)
