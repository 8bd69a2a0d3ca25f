"""Section check: kernels against references, and three suspicions about CUTLASS.

Each kernel meets an enclosure in FP64 that says where every element of a right output lies
(`profiler/reference.cu`), with poisoned outputs; then, a plain product, the oracle in FP32 on the
host. The beginning of its output is kept, for `apply` to compare with the virtual GPU's bit by bit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.items import Check, Sanitized, Suspicion
from benchmarks.gpu.rig import Rig, UnusableError
from boltgen.bench.results import DONE, Form, open_results, packed
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.ir.outcome import Failure, Fault
from boltgen.measure.operands import TensorSet
from boltgen.measure.worker import Prepared
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.reference import run
from boltgen.problems.workload import Layer, Workload

RIGHT, WRONG, NOT_THERE = "right", "wrong", "not there"
CONFIRMED, REFUTED = "confirmed", "refuted"
# Rounding of the output, and of FP32 sums in another order; of FP16 sums a rounding each step,
# which grow like a random walk.
_SUMS = 2.0**-13
# Operands are about 1, and so are outputs; but of a few elements all may be near 0, or be 0.
_LEAST_NORM = 0.5
_SANITIZER_S = 75.0
# What compute-sanitizer ends with where it found errors, and else with what its program ends with.
_FOUND_ERRORS = 99
# Of an output, elements that are kept: they do not compress, and results have to travel.
_MOST_KEPT = 1 << 12
# Longer than a sample is meant to be, so that one launch is one.
_ONE_LAUNCH_US = 1e9


def run_check(rig: Rig, item: Check) -> Form:
    """A kernel against all references.

    Raises:
        UnusableError: it was not built.
    """
    product, choice = item.product, item.product.choices[0]
    rig.built(choice.kernel)
    outcome = rig.measure(product, choice)
    if isinstance(outcome, Failure):
        return {"verdict": f"{WRONG}: {outcome.reason}", "columns": {}}
    prepared = rig.prepared(product, choice)
    output = _launch(rig, prepared, product.workload.last.problem)
    result: Form = {"columns": {"boltgen": {"median_us": outcome.median_us}}}
    kept = output.ravel()[:_MOST_KEPT]
    result["output"], result["dtype"] = packed(kept.tobytes()), str(kept.dtype)
    result["verdict"] = RIGHT
    if not all(_has_oracle(layer) for layer in product.workload.layers):
        return result
    expected = _expected(rig, product.workload, prepared.operands.sets[0])
    error = relative_error(output.astype(np.float64), expected)
    limit = sum(_limit(layer.problem) for layer in product.workload.layers)
    result["relative_error"], result["limit"] = error if isfinite(error) else None, limit
    if not error <= limit:
        result["verdict"] = f"{WRONG}: off by {error:.3g} of its norm"
    return result


def _has_oracle(layer: Layer) -> bool:
    """Whether the oracle computes a layer from A, B and the epilogue's operands alone."""
    return isinstance(layer.problem, (Gemm, Conv2d)) and layer.prologue.is_identity


def _limit(problem: Problem) -> float:
    """Return how far a right output may be from FP32's, relative to its norm."""
    is_narrow = problem.acc_dtype is not DType.F32
    sums = problem.acc_dtype.unit_roundoff * problem.gemm.k**0.5 if is_narrow else _SUMS
    return problem.in_dtype.ulp + sums


def _launch(rig: Rig, prepared: Prepared, problem: Problem) -> NDArray[Any]:
    """The output of one launch into poisoned memory."""
    shape, dtype = problem.d_shape, problem.out_dtype
    first = prepared.arguments[0]
    rig.profiler.poison(first.d, prod(shape) * dtype.size_bytes)
    sampler = rig.in_turn([prepared], _ONE_LAUNCH_US)
    try:
        sampler.sample_us(1)
    finally:
        sampler.close()
    return rig.download(first.d, shape, dtype.value)


def relative_error(output: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The norm of the error over that of what is expected, infinite where it is not finite."""
    if not np.isfinite(output).all():
        return float("inf")
    return float(np.linalg.norm(output - expected) / max(np.linalg.norm(expected), _LEAST_NORM))


def _expected(rig: Rig, workload: Workload, tensors: TensorSet) -> NDArray[np.float64]:
    """Compute the output by the oracle; layers hand each other their output."""
    first = workload.first.problem
    a = rig.download(tensors.a, first.a_shape, first.in_dtype.value)
    for layer, at in zip(workload.layers, tensors.layers, strict=True):
        problem = layer.problem
        operands = [
            rig.download(operand.pointer, _operand_shape(problem, load), load.dtype.value)
            for load, operand in zip(layer.epilogue.loads, at.operands, strict=True)
        ]
        b = rig.download(at.b, problem.b_shape, problem.in_dtype.value)
        result = run(problem, layer.epilogue, a, b, operands)
        a = result.astype(problem.out_dtype.numpy)
    return np.asarray(result, np.float64)


def _operand_shape(problem: Problem, load: Load) -> tuple[int, ...]:
    output = problem.d_shape
    span = output[1:] if problem.batch > 1 else output
    if load.kind is LoadKind.TENSOR:
        return output
    return span[-1:] if load.kind is LoadKind.ROW else (int(np.prod(span[:-1])),)


def run_suspicion(rig: Rig, item: Suspicion) -> Form:
    """Whether CUTLASS's own program is wrong where it is suspected to be."""
    outcome = rig.measure(item.product, item.product.choices[0])
    said = outcome.reason if isinstance(outcome, Failure) else "its output is right"
    if item.is_control:  # says whether the other programs' verdicts count
        verdict = f"control {WRONG if isinstance(outcome, Failure) else RIGHT}"
    elif isinstance(outcome, Failure) and outcome.fault is Fault.LAUNCH:
        verdict, said = REFUTED, f"it refuses, with {said!r}"
    else:
        verdict = CONFIRMED if isinstance(outcome, Failure) else REFUTED
    return {"verdict": f"{verdict}: {said}", "suspicion": item.suspicion, "columns": {}}


def run_sanitized(rig: Rig, item: Sanitized) -> Form:
    """Checks again in processes of their own, under compute-sanitizer."""
    places = (os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin")
    sanitizer = shutil.which("compute-sanitizer", path=os.pathsep.join(places))
    if rig.turns.modelled or sanitizer is None:
        return {"verdict": f"{NOT_THERE}: no compute-sanitizer on this machine", "columns": {}}
    with tempfile.TemporaryDirectory() as out:
        command = [sanitizer, "--tool", item.tool, "--error-exitcode", str(_FOUND_ERRORS)]
        command += [sys.executable, "-m", "benchmarks.gpu.worker"]
        command += ["--bundle", str(rig.bundle), "--work", str(rig.work), "--out", out]
        command += ["--seconds", str(_SANITIZER_S)]
        command += ["--only", ",".join(item.keys), "--no-vendor"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SANITIZER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnusableError(f"{item.tool}: {error}") from error
        kept = open_results(Path(out)).items
    ended = {key for key, one in kept.items() if one["status"] == DONE}
    said = "\n".join(line for line in done.stdout.splitlines() if line.startswith("====="))
    if kept and done.returncode == _FOUND_ERRORS:
        found = {"verdict": f"{WRONG}: {item.tool} found errors", "said": said[-4000:]}
    elif ended == set(item.keys) and done.returncode == 0:
        found = {"verdict": RIGHT, "said": said[-1000:]}
    else:  # the tool knows no such device, say, or took too long
        said = said or done.stderr
        found = {
            "verdict": f"{NOT_THERE}: {len(ended)} of {len(item.keys)} checks were done (status "
            f"{done.returncode}): {said[-300:]}"
        }
    return {**found, "columns": {}}
