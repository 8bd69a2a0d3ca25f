"""Run a whole compiled model on the virtual GPU, on random inputs, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from boltgen.artifact.checked import ModelCheck
from boltgen.artifact.metadata import Metadata, TensorInfo
from boltgen.device.choose import activate
from boltgen.errors import BoltgenError
from boltgen.ir.dtypes import DType
from boltgen.running.arrays import read_arrays, write_arrays
from boltgen.running.artifact import Artifact
from boltgen.running.sizes import names_in, shape_at
from boltgen.tvm_build.model import Array

# Computes the outputs of the author's model, in order, for inputs in order.
Reference: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]

# A choice, not a bound: over the layers of a deep model the roundings of FP16 add up to some
# thousandths of the outputs. A kernel that is wrong, or reads another tensor, changes the outputs
# far more.
MOST_ERROR = 0.05
_SEED = 0
# Small, so that a model runs in seconds; above 1, so that a batch has several items.
_LEAST_SIZE = 3
_INPUTS, _OUTPUTS, _FINDINGS = "inputs.npz", "outputs.npz", "findings.json"
_LOG_CHARACTERS = 1000


def check_model(artifact: Artifact, reference: Reference | None = None) -> ModelCheck:
    """Run `artifact` with memcheck on, and compare its outputs with the `reference`'s, if given.

    Floating-point inputs are uniform in [-1, 1), integers 0 or 1. Only floating-point outputs are
    compared. Each dynamic dimension gets a small size of its own.
    """
    started = time.monotonic()
    infos = artifact.metadata.inputs
    sizes = _sizes(artifact.metadata)
    if sizes is None:
        return ModelCheck(why_not="an input has an unknown rank", seconds=0.0)
    rng = np.random.default_rng(_SEED)
    inputs = {info.name: _random(info, sizes, rng) for info in infos}
    outputs, faults = _run(artifact.folder, inputs)
    error = None
    if outputs is not None:
        floats = [i.name for i in artifact.metadata.outputs if _is_float(np.dtype(i.dtype))]
        if reference is not None:
            expected = dict(
                zip(
                    (info.name for info in artifact.metadata.outputs),
                    reference([inputs[info.name] for info in infos]),
                    strict=True,
                )
            )
            error = max((_distance(outputs[n], expected[n]) for n in floats), default=None)
            if error is not None and not error <= MOST_ERROR:
                faults.append(f"its outputs differ from TVM's by {error:.2g} of their size")
        elif not all(np.isfinite(outputs[name]).all() for name in floats):
            faults.append("its outputs are not finite")
    seconds = round(time.monotonic() - started, 3)
    return ModelCheck(error=error, faults=tuple(faults), seconds=seconds)


def _sizes(metadata: Metadata) -> dict[str, int] | None:
    """Choose a size for each dynamic dimension of the inputs; None if a rank is unknown."""
    if any(info.shape is None for info in metadata.inputs):
        return None
    limits = {each.name: each for each in metadata.dimensions}
    found: dict[str, int] = {}
    for name in names_in(metadata.inputs):
        size = _LEAST_SIZE + len(found)
        if known := limits.get(name):
            size = max(size if known.high is None else min(size, known.high), known.low)
        found[name] = size
    return found


def _random(info: TensorInfo, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    assert info.shape is not None
    shape = shape_at(info.shape, sizes)
    dtype = np.dtype(info.dtype)
    if _is_float(dtype):
        return rng.uniform(-1.0, 1.0, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return bool(np.issubdtype(dtype, np.floating)) or dtype == DType.BF16.numpy


def _distance(found: Array, expected: Array) -> float:
    """Return the root mean square (RMS) of the difference, relative to the RMS of `expected`.

    The result is infinite if the arrays are not finite at the same elements.
    """
    there, wanted = found.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isfinite(there), np.isfinite(wanted)):
        return float("inf")
    both = np.isfinite(wanted)
    size = float(np.sqrt(np.mean(np.square(wanted[both])))) if both.any() else 0.0
    error = float(np.sqrt(np.mean(np.square(there[both] - wanted[both])))) if both.any() else 0.0
    return 0.0 if error == 0.0 else error / size if size else float("inf")


def _run(folder: Path, inputs: Mapping[str, Array]) -> tuple[dict[str, Array] | None, list[str]]:
    """Run the model in a process; return its outputs, None if it failed, and its faults."""
    with tempfile.TemporaryDirectory(prefix="boltgen-check-") as name:
        files = Path(name)
        write_arrays(files / _INPUTS, dict(inputs))
        done = subprocess.run(
            (sys.executable, "-m", "boltgen.check.model", str(folder), name),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            said = (done.stderr.strip() or f"status {done.returncode}")[-_LOG_CHARACTERS:]
            return None, [f"the run failed: {said}"]
        faults: list[str] = json.loads((files / _FINDINGS).read_text(encoding="utf-8"))
        return read_arrays(files / _OUTPUTS), faults


def main() -> None:
    """Run the model in folder argv[1] on the inputs in folder argv[2]; write the results there."""
    folder, files = map(Path, sys.argv[1:])
    try:
        artifact = Artifact.load(folder)
        device = activate("vgpu", arch=artifact.metadata.arch)
        assert device.vgpu is not None
        device.vgpu.set_option("check", "memcheck")
        outputs = artifact.run(read_arrays(files / _INPUTS), device="vgpu")
    except BoltgenError as error:
        sys.exit(str(error))
    write_arrays(files / _OUTPUTS, outputs)
    findings = [found.message for found in device.vgpu.findings()]
    (files / _FINDINGS).write_text(json.dumps(findings), encoding="utf-8")
    sys.stdout.flush()
    # Memory that TVM keeps until the end of the process is not a leak of the model.
    os._exit(0)


if __name__ == "__main__":
    main()
