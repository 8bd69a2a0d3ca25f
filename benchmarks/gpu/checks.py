"""Section check: kernels against references, and three suspicions about CUTLASS.

Each kernel meets an enclosure in FP64 that says where every element of a right output lies
(`profiler/reference.cu`), with poisoned outputs; then, on fresh random operands, PyTorch in FP32
(NumPy where there is no GPU); and, bit by bit, what the virtual GPU computed.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.items import Check, Sanitized, Suspicion
from benchmarks.gpu.results import DONE, open_slice, packed
from benchmarks.gpu.rig import Rig, UnusableError
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Load, LoadKind
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.reference import input_shapes, output_shape, run
from boltgen.ir.workload import Layer, layers_of
from boltgen.measure.operands import Tensor, input_tensors
from boltgen.measure.worker import Prepared
from boltgen.tuning.outcome import Failure, Fault

RIGHT, WRONG, NOT_THERE = "right", "wrong", "not there"
CONFIRMED, REFUTED = "confirmed", "refuted"
# Where the virtual GPU's output of an item lies in the bundle.
OUTPUTS = "outputs-{arch}"
# Rounding of the output, and of FP32 sums in another order; of FP16 sums a rounding each step,
# which grow like a random walk.
_OUTPUT_ULP, _SUMS = 2.0**-10, 2.0**-13
_HALF_ULP = 2.0**-11
# Operands are about 1, and so are outputs; but of a few elements all may be near 0, or be 0.
_LEAST_NORM = 0.5
_SANITIZER_S = 200.0
# What compute-sanitizer ends with where it found errors, and else with what its program ends with.
_FOUND_ERRORS = 99
# Of an output, elements that are compared bit by bit: they do not compress, and a bundle is small.
_MOST_COMPARED = 1 << 15
# Longer than a sample is meant to be, so that one launch is one.
_ONE_LAUNCH_US = 1e9


def run_check(rig: Rig, item: Check) -> dict[str, Any]:
    """A kernel against all references."""
    product, choice = item.product, item.product.choices[0]
    outcome = rig.measure(product, choice)
    if isinstance(outcome, Failure):
        return {"verdict": f"{WRONG}: {outcome.reason}", "columns": {}}
    prepared = rig.prepared(product, choice)
    layers = layers_of(product.problem, product.epilogue)
    output = _launch(rig, prepared, layers[-1].problem)
    result: dict[str, Any] = {"columns": {"boltgen": {"median_us": outcome.median_us}}}
    result["bits"] = _bits(rig, item, output)
    if rig.turns.modelled:
        result["output"] = packed(output.ravel()[:_MOST_COMPARED].tobytes())
    error = _fresh_error(rig, layers, prepared)
    rig.place().forget_operands()  # they are no longer those that the envelope is of
    limit = sum(_limit(layer.problem) for layer in layers)
    result["relative_error"], result["limit"] = error if isfinite(error) else None, limit
    result["verdict"] = RIGHT if error <= limit else f"{WRONG}: off by {error:.3g} of its norm"
    return result


def _limit(problem: Problem) -> float:
    """How far a right output may be from FP32's, relative to its norm."""
    k = problem.gemm.k if isinstance(problem, Conv2d) else problem.k
    sums = _HALF_ULP * k**0.5 if problem.acc_dtype is DType.F16 else _SUMS
    return _OUTPUT_ULP + sums


def _launch(rig: Rig, prepared: Prepared, problem: Problem) -> NDArray[Any]:
    """The output of one launch into poisoned memory."""
    shape, dtype = output_shape(problem), problem.out_dtype
    first = prepared.arguments[0]
    rig.profiler.poison(first.d, prod(shape) * dtype.size_bytes)
    sampler = rig.in_turn([prepared], _ONE_LAUNCH_US)
    try:
        sampler.sample_us(1)
    finally:
        sampler.close()
    return rig.download(first.d, shape, dtype.value)


def _bits(rig: Rig, item: Check, output: NDArray[Any]) -> dict[str, Any] | None:
    """How the output differs from the virtual GPU's, which had the same operands."""
    path = rig.bundle / OUTPUTS.format(arch=rig.device.arch) / f"{item.name}.xz"
    if not path.is_file():
        return None
    there = np.frombuffer(lzma.decompress(path.read_bytes()), output.dtype)
    steps = _steps_between(output.ravel()[:_MOST_COMPARED], there)
    return {
        "elements": int(steps.size),
        "different": int(np.count_nonzero(steps)),
        "most_ulps": int(steps.max(initial=0)),
    }


def _steps_between(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """How many numbers of their type lie between elements; 0 where the bits are equal."""

    def places(array: NDArray[Any]) -> NDArray[np.int64]:
        bits: NDArray[np.int64] = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
        least = np.int64(-(1 << (8 * array.dtype.itemsize - 1)))
        return np.where(bits < 0, least - bits, bits)

    steps: NDArray[np.int64] = np.abs(places(one) - places(other))
    return steps


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor on the device, with what it is filled with."""

    address: int
    shape: tuple[int, ...]
    tensor: Tensor


def _fresh_error(rig: Rig, layers: Sequence[Layer], prepared: Prepared) -> float:
    """The relative error on operands that were never seen before."""
    placed = _tensors(layers, prepared.arguments[0])
    seed = int.from_bytes(os.urandom(4), "little")
    for index, one in enumerate(each for layer in placed for each in layer):
        tensor = one.tensor
        rig.profiler.fill(
            one.address,
            tensor.dtype,
            tensor.count,
            seed=seed + index,
            low=tensor.low,
            high=tensor.high,
        )
    output = _launch(rig, prepared, layers[-1].problem).astype(np.float64)
    return relative_error(output, _expected(rig, layers, placed))


def relative_error(output: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The norm of the error over that of what is expected, infinite where it is not finite."""
    if not np.isfinite(output).all():
        return float("inf")
    return float(np.linalg.norm(output - expected) / max(np.linalg.norm(expected), _LEAST_NORM))


def _tensors(layers: Sequence[Layer], args: Any) -> list[list[_Placed]]:
    """Of each layer A (the first one's only), B and the epilogue's operands."""
    each = args.layers if len(layers) > 1 else (args,)
    found = []
    for index, (layer, at) in enumerate(zip(layers, each, strict=False)):
        a_shape, b_shape = input_shapes(layer.problem)
        loads = layer.epilogue.loads
        addresses = [at.b, *(at.operands[number].pointer for number in range(len(loads)))]
        shapes = [b_shape, *(_operand_shape(layer.problem, load) for load in loads)]
        a, *tensors = input_tensors(layer.problem, layer.epilogue)
        row = [_Placed(*one) for one in zip(addresses, shapes, tensors, strict=True)]
        found.append(row if index else [_Placed(args.a, a_shape, a), *row])
    return found


def _expected(
    rig: Rig, layers: Sequence[Layer], placed: Sequence[Sequence[_Placed]]
) -> NDArray[np.float64]:
    """The output by PyTorch in FP32, or by the oracle; layers hand each other FP16."""
    before: list[Any] = []
    for layer, row in zip(layers, placed, strict=True):
        if rig.vendor:
            there = [rig.vendor.as_tensor(x.address, x.shape, x.tensor.dtype.value) for x in row]
            result = rig.vendor.reference(layer.problem, layer.epilogue, [*before, *there])
            before = [result.half()]
        else:
            here = [rig.download(x.address, x.shape, x.tensor.dtype.value) for x in row]
            arrays = [*before, *here]
            result = run(layer.problem, layer.epilogue, arrays[0], arrays[1], arrays[2:])
            before = [result.astype(np.float16)]
    array = result.cpu().numpy() if rig.vendor else result
    return np.asarray(array, np.float64)


def _operand_shape(problem: Problem, load: Load) -> tuple[int, ...]:
    output = output_shape(problem)
    span = output[1:] if isinstance(problem, Gemm) else output
    if load.kind is LoadKind.TENSOR:
        return output
    return span[-1:] if load.kind is LoadKind.ROW else (int(np.prod(span[:-1])),)


def run_suspicion(rig: Rig, item: Suspicion) -> dict[str, Any]:
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


def run_sanitized(rig: Rig, item: Sanitized) -> dict[str, Any]:
    """Checks again in processes of their own, under compute-sanitizer."""
    places = (os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin")
    sanitizer = shutil.which("compute-sanitizer", path=os.pathsep.join(places))
    if rig.turns.modelled or sanitizer is None:
        return {"verdict": f"{NOT_THERE}: no compute-sanitizer on this machine", "columns": {}}
    with tempfile.TemporaryDirectory() as out:
        command = [sanitizer, "--tool", item.tool, "--error-exitcode", str(_FOUND_ERRORS)]
        command += [sys.executable, "-m", "benchmarks.gpu.worker"]
        command += ["--bundle", str(rig.bundle), "--unpacked", str(rig.folder), "--out", out]
        command += ["--number", "1", "--count", "1", "--seconds", str(_SANITIZER_S)]
        command += ["--only", ",".join(item.keys), "--no-vendor"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SANITIZER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnusableError(f"{item.tool}: {error}") from error
        kept = open_slice(Path(out), 1, 1).items
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
