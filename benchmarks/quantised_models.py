"""Quantise models with trained weights, and measure what each loses, beside ONNX Runtime's own.

Both quantisers see the same samples, and quantise the same layers; theirs takes the least and the
largest numbers. The error is that of the results on other samples, relative to FP32, computed
operator by operator, with all layers in integers that are accurate enough. The digits have labels,
so that their accuracy is measured too. Times are predicted for sm_80.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization

import boltgen
from benchmarks.found.judge import made_inputs
from benchmarks.found.sources import model_named
from benchmarks.found.wheels import file_of
from benchmarks.record import ROOT, write
from boltgen.quantiser import model as loader
from boltgen.quantiser.quantise import QuantisationReport, relative_error
from models.digits import load_heldout

Array = np.ndarray[Any, Any]
Sample = Mapping[str, Array]
_FOUND = ("orientation", "opennsfw", "minilm-l3")
_TARGET = "digits lose at most 0.3 points; the error is at most ONNX Runtime's"
# Samples are one that the table of found models makes, with noise of this share of its spread.
_NOISE, _SEEN, _JUDGED = 0.1, 4, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    name: str
    path: Path
    seen: Sequence[Sample]
    judged: Sequence[Sample]


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left = list(samples)

    def get_next(self) -> Sample | None:
        return self._left.pop() if self._left else None


def _digits() -> _Case:
    batches = [{"input": each} for each in load_heldout().batches()]
    return _Case(
        name="digits",
        path=ROOT / "models" / "digits" / "digits.onnx",
        seen=batches[:2],
        judged=batches,
    )


def _found(name: str) -> _Case:
    model = model_named(name)
    path = file_of(model)
    made = made_inputs(model, onnx.load(path))
    random = np.random.default_rng(0)

    def noisy(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        noise = _NOISE * array.std() * random.standard_normal(array.shape)
        return np.asarray(array + noise, array.dtype)

    samples = [{key: noisy(each) for key, each in made.items()} for _ in range(_SEEN + _JUDGED)]
    return _Case(name=name, path=path, seen=samples[:_SEEN], judged=samples[_SEEN:])


def _theirs(case: _Case, report: QuantisationReport, folder: Path) -> Path:
    """Quantise the same layers by ONNX Runtime's quantiser."""
    prepared, path = folder / "prepared.onnx", folder / "theirs.onnx"
    onnx.save(loader.load(case.path), prepared)
    quantization.quantize_static(
        prepared,
        path,
        _Reader(case.seen),
        per_channel=True,
        nodes_to_quantize=[each.name for each in report.layers if each.is_quantised],
        extra_options={"ActivationSymmetric": True},
    )
    return path


def _results(path: Path, samples: Sequence[Sample]) -> list[list[Array]]:
    runner = loader.Runner(onnx.load(path))
    return [runner.results(each) for each in samples]


def _row(case: _Case, folder: Path) -> dict[str, Any]:
    path, began = folder / f"{case.name}.onnx", perf_counter()
    report = boltgen.quantize(case.path, case.seen, path, even_if_slower=True)
    seconds = perf_counter() - began
    faster = boltgen.quantize(case.path, case.seen, folder / "faster.onnx")
    found = {
        "fp32": _results(case.path, case.judged),
        "ours": _results(path, case.judged),
        "theirs": _results(_theirs(case, report, folder), case.judged),
    }
    row: dict[str, Any] = {
        "model": case.name,
        "layers": len(report.layers),
        "quantised": report.quantised,
        "why_not": dict(Counter(e.reason for e in faster.layers if not e.is_quantised)),
        "quantised_where_faster": faster.quantised,
        "error": round(relative_error(found["ours"], found["fp32"]), 5),
        "onnxruntime_error": round(relative_error(found["theirs"], found["fp32"]), 5),
        "predicted_us_fp16": round(faster.float_us, 1),
        "predicted_us": round(faster.quantised_us, 1),
        "predicted_us_all": round(report.quantised_us, 1),
        "seconds": round(seconds, 1),
    }
    if case.name == "digits":
        logits = {name: np.concatenate([each[0] for each in got]) for name, got in found.items()}
        row["accuracy"] = {n: round(load_heldout().accuracy(x), 4) for n, x in logits.items()}
    print(row)
    return row


def main() -> None:
    """Quantise all models, and keep the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    cases = [_digits(), *map(_found, _FOUND)]
    with tempfile.TemporaryDirectory(prefix="boltgen-") as folder:
        rows = [_row(case, Path(folder)) for case in cases]
    write("quantised_models", {"rows": rows}, _TARGET)


if __name__ == "__main__":
    main()
