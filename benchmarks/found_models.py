"""Models that nobody here wrote, through boltgen's frontend as they come, against ONNX Runtime."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.found.sources import MODELS, FoundModel, model_named
from benchmarks.found.trial import MARK
from benchmarks.found.wheels import file_of
from benchmarks.record import ROOT, write

_TARGET = "all agree with ONNX Runtime; share of FLOPs: median 99 %, worst 90 %"
_PYTHONS = {"relax": ROOT / ".venv" / "bin" / "python", "relay": ROOT / ".venv-relay/bin/python"}


def made_inputs(model: FoundModel, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that the model is tried on, in its own dtypes; the same every time."""
    rng = np.random.default_rng(zlib.crc32(model.name.encode()))
    types = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in onnx.load(path, load_external_data=False).graph.input
    }
    return {
        name: np.asarray(each.make(rng, each.shape)).astype(types[name])
        for name, each in model.inputs.items()
    }


def wanted_outputs(
    path: Path, arrays: dict[str, np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray[Any, Any]] = session.run(None, arrays)
    return outputs


def errors_of(
    actual: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]
) -> tuple[float, float]:
    """The largest error and the root mean square of errors, both relative to the output's.

    Infinite where an element is no number, or a whole number is another.
    """
    if actual.shape != wanted.shape:
        return float("inf"), float("inf")
    exact = wanted.astype(np.float64)
    distance = np.abs(actual.astype(np.float64) - exact)
    is_whole = not np.issubdtype(wanted.dtype, np.floating)
    if not np.isfinite(distance).all() or (is_whole and distance.any()):
        return float("inf"), float("inf")
    scale = float(np.sqrt(np.mean(exact**2))) or 1.0
    return float(distance.max()) / scale, float(np.sqrt(np.mean(distance**2))) / scale


def try_model(
    model: FoundModel, frontend: str, how: str, limit_s: float
) -> dict[str, Any]:
    """A row of the table: what the model is, and what became of it."""
    path = file_of(model)
    proto = onnx.load(path)
    row: dict[str, Any] = {
        "model": model.name,
        "kind": model.kind,
        "source": model.wheel.requirement,
        "licence": model.wheel.licence,
        "bytes": path.stat().st_size,
        "opset": max(e.version for e in proto.opset_import if e.domain in {"", "ai.onnx"}),
        "nodes": len(proto.graph.node),
        "frontend": frontend,
    }
    arrays = made_inputs(model, path)
    wanted = wanted_outputs(path, arrays)
    with tempfile.TemporaryDirectory() as name:
        inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(inputs, **arrays)
        row |= _run_trial([str(path), frontend, how, str(inputs), str(outputs)], frontend, limit_s)
        if outputs.is_file():
            with np.load(outputs) as actual:
                row |= _judge([actual[key] for key in actual.files], wanted, row["products"])
    return row


def _judge(
    actual: list[np.ndarray[Any, Any]], wanted: list[np.ndarray[Any, Any]], products: int
) -> dict[str, Any]:
    """The error, and whether it is inside the bound.

    Each product rounds its weight and its result to FP16, by 2^-11 of each at most; to first order
    the errors of all products add up.
    """
    pairs = zip(actual, wanted, strict=True)
    largest, typical = map(max, zip(*(errors_of(*pair) for pair in pairs), strict=True))
    bound = max(products, 1) * 2.0**-10
    return {
        "error": largest,
        "rms_error": typical,
        "bound": bound,
        "agrees": largest <= bound,
    }


def _run_trial(arguments: list[str], frontend: str, limit_s: float) -> dict[str, Any]:
    """What a process of its own says of the trial, and how it ended."""
    command = [str(_PYTHONS[frontend]), "-m", "benchmarks.found.trial", *arguments]
    environment = {**os.environ, "TOPHUB_LOCATION": "NONE"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
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


def _last_account(printed: str) -> dict[str, Any]:
    lines = [line for line in printed.splitlines() if line.startswith(MARK)]
    account: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK)) if lines else {}
    return account


def _line(row: dict[str, Any]) -> str:
    share = f"{row['of_flops']:.1%}" if "of_flops" in row else "-"
    error = f"{row['error']:.2g}" if "error" in row else "-"
    verdict = "agrees" if row.get("agrees") else row["outcome"] if "error" not in row else "WRONG"
    text = f"{row['model']:20} {share:>7} {row.get('regions', '-'):>4} {error:>8}  {verdict}"
    return f"{text}: {row['refusal']}" if "refusal" in row else text


def main() -> int:
    """Try the models, keep the table, and end with status 1 where one does not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="their names; all by default")
    parser.add_argument("--frontend", choices=sorted(_PYTHONS), default="relax")
    parser.add_argument(
        "--compile", action="store_true", help="compile for sm_80 and run on the virtual GPU"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each model")
    parser.add_argument("--keep", type=Path, help="write the rows there instead of to the results")
    chosen = parser.parse_args()
    how = "compile" if chosen.compile else "oracle"
    rows = []
    for model in [model_named(name) for name in chosen.models] or MODELS:
        rows.append(try_model(model, chosen.frontend, how, chosen.limit))
        print(_line(rows[-1]), flush=True)
        if chosen.keep:
            chosen.keep.write_text(json.dumps(rows, indent=2))
    if not chosen.keep:
        write("found_models", {"rows": rows}, _TARGET)
    return 0 if all(row.get("agrees") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
