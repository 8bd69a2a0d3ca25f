"""`python -m benchmarks.cuda_case_runner FOLDER`: cases compiled for sm_80, on the virtual GPU.

A line of standard input has labels of cases that are compiled together. A line of standard output
is JSON: a label and its status, `ok`, `wrong`, `refused` (by name) or `failed`, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_case_runner import ATTENTION_FP16, difference
from boltgen.device.choose import provide_cuda_runtime
from boltgen.settings import settings_from

provide_cuda_runtime(settings_from())

from benchmarks.vgpu_batch import Outcome, Ran, results, said  # noqa: E402  loads TVM

# Operands, sums and results that are FP16 inside a model of FP32, each rounded by half an ulp.
_FP16 = 8 * 2.0**-11


def status(label: str, outcome: Outcome, data: Any) -> tuple[str, str]:
    """The status of a case, and the reason."""
    if not isinstance(outcome, Ran):
        return said(outcome)
    steps = ATTENTION_FP16 if "attention" in label else _FP16
    first = ""
    for kind in ("out ", "given "):
        wanted = [data[key] for key in data.files if key.startswith(kind)]
        if not wanted:
            continue
        found = difference(outcome.outputs, wanted, steps, has_fp16=outcome.has_fp16)
        if not found:
            return "ok", ""
        first = first or found
    return "wrong", first


def main() -> None:
    """Run what standard input names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the converters' prints
    for line in sys.stdin.read().splitlines():
        data = {label: np.load(folder / f"{label}.npz") for label in line.split()}
        models = {
            label: (
                folder / f"{label}.onnx",
                [found[key] for key in found.files if key.startswith("in ")],
            )
            for label, found in data.items()
        }
        for label, outcome in results(models).items():
            name, why = status(label, outcome, data[label])
            out.write(json.dumps({"label": label, "status": name, "why": why}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
