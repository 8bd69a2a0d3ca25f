"""A found model's row: tried in a process of its own, and judged by ONNX Runtime in FP32."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from benchmarks.found.rounding import in_single_precision, with_rounded_products
from benchmarks.found.sources import FoundModel
from benchmarks.found.trial import MARK
from benchmarks.found.wheels import file_of
from benchmarks.record import ROOT

Array: TypeAlias = NDArray[Any]
Row: TypeAlias = dict[str, Any]

PYTHONS = {"relax": Path(sys.executable), "relay": ROOT / ".venv-relay" / "bin" / "python"}


def try_model(model: FoundModel, frontend: str, how: str = "oracle", limit_s: float = 600.0) -> Row:
    """What the model is, and what became of it; `how` is that of `benchmarks.found.trial`.

    "outcome" is "agrees" or "wrong", or, where there are no outputs to judge, "refused", or how the
    process ended.
    """
    path = file_of(model)
    proto = onnx.load(path)
    row = {**_description(model, proto), "bytes": path.stat().st_size}
    row |= {"frontend": frontend, "how": how}
    arrays = made_inputs(model, proto)
    single = in_single_precision(proto)
    wanted = run_onnx(single, arrays)
    with tempfile.TemporaryDirectory() as name:
        inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(inputs, allow_pickle=False, **arrays)
        arguments = [str(path), frontend, how, str(inputs), str(outputs)]
        row |= _run_trial(arguments, PYTHONS[frontend], limit_s)
        if row["outcome"] == "ran":
            with np.load(outputs) as actual:
                rounded = run_onnx(with_rounded_products(single), arrays)
                results = [actual[key] for key in actual.files]
                row |= judge(results, wanted, rounded, row["products"])
    return row


def _description(model: FoundModel, proto: Any) -> Row:
    return {
        "model": model.name,
        "kind": model.kind,
        "source": model.wheel.requirement,
        "licence": model.wheel.licence,
        "opset": max(e.version for e in proto.opset_import if e.domain in {"", "ai.onnx"}),
        "nodes": _nodes(proto.graph),
    }


def _nodes(graph: Any) -> int:
    """Nodes of a graph, and of the branches and bodies in them."""
    inner = [
        attribute.g
        for node in graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]
    return len(graph.node) + sum(map(_nodes, inner))


def made_inputs(model: FoundModel, proto: Any) -> dict[str, Array]:
    """The arrays that the model is tried on, in its own dtypes; the same every time."""
    rng = np.random.default_rng(zlib.crc32(model.name.encode()))
    types = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in proto.graph.input
    }
    return {
        name: np.asarray(each.make(rng, each.shape)).astype(types[name])
        for name, each in model.inputs.items()
    }


def run_onnx(proto: Any, arrays: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime computes, on the CPU; FP16 arrays are given to it in the model's type."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; of a model it warns of what its exporter left over
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {each.name: each.type for each in session.get_inputs()}
    given = {
        name: array.astype(np.float32) if types[name] == "tensor(float)" else array
        for name, array in arrays.items()
    }
    outputs: list[Array] = session.run(None, given)
    return outputs


def judge(
    actual: Sequence[Array], wanted: Sequence[Array], rounded: Sequence[Array], products: int
) -> Row:
    """The errors of all outputs, and whether they are inside the bounds.

    Each product rounds its weight and its result to FP16, by 2^-11 of each at most; to first order
    the errors of all products add up, and, as they are independent, their squares do. A model may
    enlarge them: then `rounded`, its outputs with nothing but that done to it, says by how much.
    What else is rounded, and that other values are rounded up, is allowed a factor of four.
    """
    if len(actual) != len(wanted):
        return {"outcome": f"{len(actual)} outputs where {len(wanted)} were wanted"}
    largest, typical = _worst(actual, wanted)
    allowed = [4 * error if np.isfinite(error) else 0.0 for error in _worst(rounded, wanted)]
    bound = max(products * 2.0**-10, allowed[0], 2.0**-10)
    rms_bound = max(products**0.5 * 2.0**-10, allowed[1], 2.0**-10)
    return {
        "error": largest,
        "bound": bound,
        "rms_error": typical,
        "rms_bound": rms_bound,
        "outcome": "agrees" if largest <= bound and typical <= rms_bound else "wrong",
    }


def _worst(actual: Sequence[Array], wanted: Sequence[Array]) -> tuple[float, float]:
    errors = [errors_of(*pair) for pair in zip(actual, wanted, strict=True)]
    return max(each for each, _ in errors), max(each for _, each in errors)


def errors_of(actual: Array, wanted: Array) -> tuple[float, float]:
    """The largest error and the errors' root mean square, relative to that of the output.

    Infinite where a shape or a whole number is another, or an element is no number.
    """
    if actual.shape != wanted.shape:
        return float("inf"), float("inf")
    if wanted.size == 0:
        return 0.0, 0.0
    exact = wanted.astype(np.float64)
    distance = np.abs(actual.astype(np.float64) - exact)
    is_whole = not np.issubdtype(wanted.dtype, np.floating)
    if not np.isfinite(distance).all() or (is_whole and distance.any()):
        return float("inf"), float("inf")
    scale = float(np.sqrt(np.mean(exact**2))) or 1.0
    return float(distance.max()) / scale, float(np.sqrt(np.mean(distance**2))) / scale


def _run_trial(arguments: Sequence[str], python: Path, limit_s: float) -> Row:
    """What a process of its own says of the trial, and how it ended."""
    try:
        done = subprocess.run(
            [str(python), "-m", "benchmarks.found.trial", *arguments],
            cwd=ROOT,
            # Relay's TVM would look for schedules of its authors' on the network.
            env={**os.environ, "TOPHUB_LOCATION": "NONE"},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode(errors="replace")
        return {**_last_account(printed), "outcome": f"took over {limit_s:.0f} s"}
    account = _last_account(done.stdout)
    if "refusal" in account:
        return {**account, "outcome": "refused"}
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {**account, "outcome": f"ended with status {done.returncode}: {last}"}
    return {**account, "outcome": "ran"}


def _last_account(printed: str) -> Row:
    lines = [line for line in printed.splitlines() if line.startswith(MARK)]
    account: Row = json.loads(lines[-1].removeprefix(MARK)) if lines else {}
    return account
