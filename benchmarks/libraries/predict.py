"""A model at the sizes of its users, predicted in a process of its own.

    python -m benchmarks.libraries.predict NAME [found]

A library's model is exported by torch.export, a found one is as it is tried. It is partitioned;
nothing is compiled or run.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from benchmarks.known_models import found_source
from benchmarks.libraries.install import make_importable
from benchmarks.libraries.models import models_named
from benchmarks.libraries.trial import seeded
from benchmarks.trials.account import Account
from benchmarks.trials.predicted import alone, predicted
from boltgen.arch import arch_named
from boltgen.frontend import relax
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition

ARCH = "sm_80"


def main(name: str, kind: str = "") -> int:
    """Predict the model."""
    account, arch = Account(), arch_named(ARCH)
    source, options = found_source(name) if kind else (_exported(name), PipelineOptions())
    account.add("export")
    shapes = {key: tuple(shape) for key, shape in options.shapes.items()}
    account.add("alone", **alone(relax.import_model(source, shapes=shapes).module, arch))
    imported = import_model(source, options)
    partition(imported, ARCH, options)
    account.add_partition(imported.partitioned)
    account.add("predict", **predicted(imported, arch))
    return 0


def _exported(name: str) -> Any:
    make_importable()
    (model,) = models_named([name])
    # Fresh weights mislead: a scale of 1e-6 keeps its residual in FP32.
    sample = seeded(model, real=True)
    with torch.no_grad():
        return torch.export.export(sample.module, sample.inputs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("kind", nargs="?", default="")
    sys.exit(main(**vars(parser.parse_args())))
