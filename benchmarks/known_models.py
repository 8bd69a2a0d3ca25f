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
from benchmarks.trials.predicted import alone, predicted
from boltgen.arch import arch_named
from boltgen.frontend import relax
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition

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
    model = import_model(source, options)
    shapes = {name: tuple(shape) for name, shape in options.shapes.items()}
    by_tvm = alone(relax.import_model(source, shapes=shapes).module, arch)
    partition(model, _ARCH, options)
    found = predicted(model, arch)
    return {
        "share_of_flops": found["share_of_flops"],
        "launches": found["launches"],
        "launches_of_tvm_alone": by_tvm["launches_of_tvm_alone"],
        "predicted_us": found["predicted_us"],
    }


def source_of(name: str) -> tuple[object, PipelineOptions]:
    """Return a model, and the options with the sizes that it is tried on."""
    if name in LIBRARY:
        make_importable()
        (model,) = models_named([name])
        sample = seeded(model)
        return torch.export.export(sample.module, sample.inputs), PipelineOptions()
    return found_source(name)


def found_source(name: str) -> tuple[str, PipelineOptions]:
    """Return the file of a found model, and the options with the sizes that it is tried on."""
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
