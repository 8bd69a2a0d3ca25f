"""A library's model through torch.export and boltgen, in a process of its own.

    python -m benchmarks.libraries.trial NAME HOW

HOW is "oracle" or "compile". With the first, the frontend runs whole, with the passes that
compiling for sm_80 has, TVM compiles its part for the CPU, and each kernel is played by the numpy
oracle. With the second, the model is compiled for sm_80 besides and run on the virtual GPU.

The outputs are judged by eager PyTorch's in FP32. Where an attention mask is given, only real
tokens are compared. A token of padding may see no token at all: if a model masks by adding the
least number of FP32, PyTorch then gives all hidden tokens the same weight, and boltgen gives them
none. But every number must be finite, the padding's too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.libraries.eager import run_eager, run_rounded
from benchmarks.libraries.install import make_importable
from benchmarks.libraries.models import models_named
from benchmarks.libraries.samples import LibraryModel, Sample
from benchmarks.libraries.weights import make_telling
from benchmarks.trials.account import Account
from benchmarks.trials.errors import Array, judge
from benchmarks.trials.process import Row
from boltgen.arch import arch_named
from boltgen.device.choose import activate
from boltgen.errors import BoltgenError
from boltgen.frontend.imported import TensorSpec
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition

ARCH = "sm_80"
_SEED = 0


def main(name: str, how: str) -> int:
    """Try the model; the status is 1 where boltgen refuses it."""
    account = Account()
    make_importable()
    (model,) = models_named([name])
    sample = seeded(model)
    account.add("construct")
    wanted, rounded = run_eager(sample), run_rounded(sample)
    account.add("eager")
    program = torch.export.export(sample.module, sample.inputs)
    account.add("export")
    try:
        actual = _by_boltgen(program, sample, how, account)
    except BoltgenError as error:
        account.add("refused", refusal=f"{type(error).__name__}: {error}")
        return 1
    account.add("run")
    account.add("judge", **judged(actual, wanted, rounded, sample, account.values["products"]))
    return 0


def seeded(model: LibraryModel) -> Sample:
    """The model with an input, the same every time."""
    torch.manual_seed(_SEED)
    sample = model.build()
    make_telling(sample.module, _SEED)
    return sample


def _by_boltgen(program: Any, sample: Sample, how: str, account: Account) -> list[Array]:
    arrays = [tensor.numpy() for tensor in sample.inputs]
    options = PipelineOptions()
    imported = import_model(program, options)
    account.add("import")
    partition(imported, ARCH, options)
    account.add_partition(imported.partitioned)
    account.add_plan(imported.partitioned, ARCH)
    rest = imported.rest_functions(arch_named(ARCH))
    account.add("rest", rest={each.kernel.name: each.kernel.count for each in rest})
    if how == "compile":
        return _on_virtual_gpu(program, imported.inputs, arrays, account)
    from benchmarks.harness.oracle_kernels import Model  # noqa: PLC0415

    played = Model.of_annotated(imported.partitioned)
    account.add("build")
    return list(played.run(*arrays))


def _on_virtual_gpu(
    program: Any, inputs: Sequence[TensorSpec], arrays: Sequence[Array], account: Account
) -> list[Array]:
    """Return the model's outputs, compiled as `boltgen compile` does it."""
    import boltgen  # noqa: PLC0415

    artifact = boltgen.compile(program, arch=ARCH, frontend="relax", reuse=False)
    account.add("compile", kernels=len(artifact.metadata.kernels))
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    names = [spec.name for spec in inputs]
    outputs = artifact.run(dict(zip(names, arrays, strict=True)), device="vgpu")
    account.values["launched"] = len(vgpu.launches())
    return list(outputs.values())


def judged(
    actual: Sequence[Array],
    wanted: Sequence[Array],
    rounded: Sequence[Array],
    sample: Sample,
    products: int,
) -> Row:
    """The errors of what is to be compared; "wrong" too where anything is no finite number."""
    given, exact, least = (
        [_compared(each, sample.real) for each in outputs] for outputs in (actual, wanted, rounded)
    )
    row = judge(given, exact, least, products)
    if not all(np.isfinite(each).all() for each in actual):
        row |= {"error": float("inf"), "rms_error": float("inf"), "outcome": "wrong"}
    return row


def _compared(output: Array, real: Any) -> Array:
    """The rows of an output that belong to real tokens; an output of another shape is whole."""
    if real is None or output.shape[: real.ndim] != tuple(real.shape):
        return output
    tokens: Array = output[real.numpy()]
    return tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for each in ("name", "how"):
        parser.add_argument(each)
    sys.exit(main(**vars(parser.parse_args())))
