"""Launches and predicted times of the twelve models in the README, beside TVM alone.

Seven are found models with trained weights, five are models of libraries in small configurations.
`benchmarks.found_models` and `benchmarks.library_models` compare their outputs with the reference.
Nothing is compiled or executed here: launches are counted in the module that TVM would build, and
times are the analytical model's for sm_80.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import onnx
import torch

from benchmarks.found.judge import made_inputs
from benchmarks.found.sources import model_named
from benchmarks.found.wheels import file_of
from benchmarks.libraries.install import make_importable
from benchmarks.libraries.models import models_named
from benchmarks.libraries.trial import seeded
from benchmarks.record import write
from boltgen.arch import arch_named
from boltgen.artifact.coverage import coverage
from boltgen.families.constants import model_constants
from boltgen.frontend import relax
from boltgen.pipeline import PipelineOptions, plan_regions
from boltgen.tvm_build.lowering.schedules import unscheduled
from boltgen.tvm_build.model import import_model, partition
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.tvm_build.rest.relax_kernels import rest_kernels

FOUND = (
    "opennsfw",
    "nudenet",
    "ddddocr-det",
    "ocr-rec",
    "minilm-l3",
    "smart-turn",
    "silero-vad-v6",
)
LIBRARY = ("bert", "llama", "t5", "swin", "stable-diffusion-unet")
_ARCH = "sm_80"


def figures(source: object, options: PipelineOptions) -> dict[str, Any]:
    """Share of FLOPs, launches with boltgen and without it, and the predicted time in us."""
    arch = arch_named(_ARCH)
    target = cuda_target(arch)
    model = import_model(source, options)
    shapes = {name: tuple(shape) for name, shape in options.shapes.items()}
    alone = relax.of_tvm_alone(relax.import_model(source, shapes=shapes).module)
    partition(model, _ARCH, options)
    plan = plan_regions(model.regions, _ARCH)
    attached = relax.attach(model.partitioned, (), [each.symbol for each in model.regions], {})
    rest = rest_kernels(unscheduled(attached, target)) or ()
    by_tvm = rest_kernels(unscheduled(alone, target)) or ()
    ours = len(plan.launches) + sum(len(each.memory.moves) for each in plan.launches)
    regions_us = sum(row[0].time_us for row in plan.decisions)
    return {
        "share_of_flops": coverage(model.partitioned.placements).share,
        "launches": ours + sum(each.count for each in rest),
        "launches_of_tvm_alone": sum(each.count for each in by_tvm),
        "predicted_us": regions_us
        + sum(each.time_us(arch, model_constants(arch)) for each in rest),
    }


def source_of(name: str) -> tuple[object, PipelineOptions]:
    """Return a model, and the options with the sizes that it is tried on."""
    if name in LIBRARY:
        make_importable()
        (model,) = models_named([name])
        sample = seeded(model)
        return torch.export.export(sample.module, sample.inputs), PipelineOptions()
    found = model_named(name)
    path = file_of(found)
    arrays = made_inputs(found, onnx.load(path))
    shapes = {key: array.shape for key, array in arrays.items()}
    return str(path), replace(PipelineOptions(), shapes=shapes)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = {name: figures(*source_of(name)) for name in (*FOUND, *LIBRARY)}
    write("known_models", rows, "fewer launches than TVM alone")


if __name__ == "__main__":
    main()
