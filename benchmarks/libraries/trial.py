"""A library's model through torch.export and boltgen, in a process of its own.

    python -m benchmarks.libraries.trial NAME HOW [DOOR [PRECISION]]

DOOR is "torch", "onnx", or "relay": the last two get the model as ONNX. PRECISION is "fp16" or
"bf16"; Relay's is FP16.

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
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.found.judge import OF_RELAY, PYTHONS
from benchmarks.libraries.eager import run_eager, run_rounded
from benchmarks.libraries.install import make_importable
from benchmarks.libraries.models import models_named
from benchmarks.libraries.samples import LibraryModel, Sample
from benchmarks.libraries.weights import make_telling
from benchmarks.trials.account import Account
from benchmarks.trials.errors import STEPS, Array, judge
from benchmarks.trials.process import Row, run_module
from boltgen.arch import arch_named
from boltgen.device.choose import activate
from boltgen.errors import BoltgenError, ModelImportError
from boltgen.frontend.imported import TensorSpec
from boltgen.ir.dtypes import Precision
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition

ARCH = "sm_80"
_SEED = 0
_OPSET = 17
_RELAY_LIMIT_S = 600.0
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def main(name: str, how: str, door: str = "torch", precision: str = "fp16") -> int:
    """Try the model; the status is 1 where boltgen refuses it."""
    account = Account()
    make_importable()
    (model,) = models_named([name])
    sample = seeded(model)
    account.add("construct")
    wanted, rounded = run_eager(sample), run_rounded(sample, _DTYPES[precision])
    account.add("eager")
    with tempfile.TemporaryDirectory() as folder:
        source = exported(sample, door, Path(folder))
        account.add("export")
        try:
            if door == "relay":
                actual = _by_relay(source, sample, how, account)
            else:
                options = PipelineOptions(precision=Precision(precision))
                actual = _by_boltgen(source, sample, how, options, account)
        except BoltgenError as error:
            account.add("refused", refusal=f"{type(error).__name__}: {error}")
            return 1
    account.add("run")
    products, step = account.values["products"], STEPS[precision]
    account.add("judge", **judged(actual, wanted, rounded, sample, products, step=step))
    return 0


def exported(sample: Sample, door: str, folder: Path) -> Any:
    """Return a model as torch.export's program, or the path of its ONNX file in `folder`."""
    if door == "torch":
        return torch.export.export(sample.module, sample.inputs)
    path = folder / "model.onnx"
    names = [f"input{place}" for place in range(len(sample.inputs))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the exporter is the older one
        torch.onnx.export(
            *(sample.module, sample.inputs, str(path)),
            **{"dynamo": False, "opset_version": _OPSET, "input_names": names},
        )
    return str(path)


def seeded(model: LibraryModel, *, real: bool = False) -> Sample:
    """The model with an input, the same every time; at the sizes of its users if it is `real`."""
    torch.manual_seed(_SEED)
    sample = model.build_real() if real and model.build_real else model.build()
    make_telling(sample.module, _SEED)
    return sample


def _by_relay(path: str, sample: Sample, how: str, account: Account) -> list[Array]:
    """Return the outputs of a found model's trial, which Relay's TVM runs in its own process."""
    inputs, outputs = Path(path).with_name("inputs.npz"), Path(path).with_name("outputs.npz")
    arrays = {f"input{place}": each.numpy() for place, each in enumerate(sample.inputs)}
    np.savez(inputs, allow_pickle=False, **arrays)
    row = run_module(
        "benchmarks.found.trial",
        [path, "relay", how, str(inputs), str(outputs)],
        _RELAY_LIMIT_S,
        python=PYTHONS["relay"],
        environment=OF_RELAY,
    )
    account.values |= row
    if row["outcome"] != "ran":
        raise ModelImportError(row.get("refusal", row["outcome"]))
    with np.load(outputs) as found:
        return [found[key] for key in found.files]


def _by_boltgen(
    program: Any, sample: Sample, how: str, options: PipelineOptions, account: Account
) -> list[Array]:
    arrays = [tensor.numpy() for tensor in sample.inputs]
    imported = import_model(program, options)
    account.add("import")
    partition(imported, ARCH, options)
    account.add_partition(imported.partitioned)
    account.add_plan(imported.partitioned, ARCH)
    rest = imported.rest_functions(arch_named(ARCH))
    account.add("rest", rest={each.kernel.name: each.kernel.count for each in rest})
    if how == "compile":
        return _on_virtual_gpu(program, imported.inputs, arrays, options.precision, account)
    from benchmarks.harness.oracle_kernels import Model  # noqa: PLC0415

    played = Model.of_annotated(imported.partitioned)
    account.add("build")
    return list(played.run(*arrays))


def _on_virtual_gpu(
    program: Any,
    inputs: Sequence[TensorSpec],
    arrays: Sequence[Array],
    precision: Precision,
    account: Account,
) -> list[Array]:
    """Return the model's outputs, compiled as `boltgen compile` does it."""
    import boltgen  # noqa: PLC0415

    artifact = boltgen.compile(
        program, arch=ARCH, frontend="relax", precision=precision.value, reuse=False
    )
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
    *,
    step: float = STEPS["fp16"],
) -> Row:
    """The errors of what is to be compared; "wrong" too where anything is no finite number."""
    given, exact, least = (
        [_compared(each, sample.real) for each in outputs] for outputs in (actual, wanted, rounded)
    )
    row = judge(given, exact, least, products, step)
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
    parser.add_argument("door", nargs="?", default="torch")
    parser.add_argument("precision", nargs="?", default="fp16")
    sys.exit(main(**vars(parser.parse_args())))
