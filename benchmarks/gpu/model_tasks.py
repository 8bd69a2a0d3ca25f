"""What boltgen makes kernels of in each model of section models, kept for predictions.

    python -m benchmarks.gpu.model_tasks

writes `model_tasks.json`: importing the models takes minutes, predicting their times none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import models
from benchmarks.gpu import shapes
from benchmarks.gpu.kept_json import kept_json
from boltgen.ir.dtypes import DType
from boltgen.ir.region import AnyRegion, ChainRegion
from boltgen.pipeline import PipelineOptions, tasks_of
from boltgen.runtime.model import import_model, partition
from boltgen.tuning.json_form import decode, encode
from boltgen.tuning.select import AnyTask, ChainTask, distinct
from models.parameters import PeriodicParameters

FILE = Path(__file__).with_suffix(".json")
ARCHES = ("sm_80", "sm_90")
_SUM = DType.F32


def model_tasks(shape: shapes.ModelShape) -> dict[str, tuple[AnyTask, ...]]:
    """A model's kernels by arch: distinct tasks, each as often as the model runs it."""
    parameters = PeriodicParameters()
    model = models.build(shape.model, dtype="float16", parameters=parameters, **dict(shape.options))
    options = PipelineOptions()
    imported = import_model(model, options)
    found = {}
    for arch in ARCHES:
        partition(imported, arch, options)
        found[arch] = _tasks(imported.regions)
    return found


def _tasks(regions: tuple[AnyRegion, ...]) -> tuple[AnyTask, ...]:
    chains = [
        ChainTask(chain=execution_chain(region.accumulating_in(_SUM).chain))
        for region in regions
        if isinstance(region, ChainRegion)
    ]
    return distinct((*tasks_of(regions, _SUM), *chains))


@cache
def kept_tasks() -> Mapping[str, Mapping[str, tuple[AnyTask, ...]]]:
    """By arch and model, what `model_tasks` found when the file was written."""
    form = json.loads(FILE.read_text())
    return {
        arch: {name: decode(tuple[AnyTask, ...], tasks) for name, tasks in by_model.items()}
        for arch, by_model in form.items()
    }


def main() -> None:
    by_model = {name: model_tasks(shape) for name, shape in shapes.models().items()}
    form = {
        arch: {
            name: [encode(AnyTask, task) for task in tasks[arch]]
            for name, tasks in by_model.items()
        }
        for arch in ARCHES
    }
    FILE.write_text(kept_json(form) + "\n")


if __name__ == "__main__":
    main()
