"""The main job on real input: `make demo`.

Compiles the trained digits model for sm_80, runs the held-out images through the library on the
virtual GPU, and compares with ONNX Runtime in FP32.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from rich.console import Console

import boltgen
from boltgen.build.progress import reporter_for
from boltgen.cli.inspect import region_lines
from boltgen.cli.terminal import tables
from boltgen.running.artifact import Artifact
from models.digits import MODEL_PATH, Heldout, load_heldout

FOLDER = Path("build") / "digits.boltgen"

# The accuracy that FP16 may cost, in percentage points.
_MOST_LOST_POINTS = 0.3


def reference_logits(heldout: Heldout) -> np.ndarray:
    """Logits (360, 10) in FP32, by ONNX Runtime on the CPU."""
    session = onnxruntime.InferenceSession(str(MODEL_PATH), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"input": x})[0] for x in heldout.batches()])


def compiled_logits(artifact: Artifact, heldout: Heldout) -> np.ndarray:
    """Logits (360, 10) of the compiled library on the virtual GPU."""
    runs = [artifact.run({"input": x}, device="vgpu") for x in heldout.batches()]
    return np.concatenate([outputs["logits"] for outputs in runs])


def main() -> int:
    """Run the demo; the exit status is 1 where FP16 loses too much."""
    console = Console()
    started = time.monotonic()
    # Before TVM is loaded: on a machine with a GPU it would take that one.
    reporter = reporter_for(console)
    boltgen.activate("vgpu", reporter=reporter)
    boltgen.compile(MODEL_PATH, arch="sm_80", reporter=reporter).save(FOLDER)
    artifact = boltgen.load(FOLDER)
    heldout = load_heldout()

    began = time.monotonic()
    logits = compiled_logits(artifact, heldout)
    run_seconds = time.monotonic() - began
    expected = reference_logits(heldout)

    for line in (
        *region_lines(artifact.metadata, console.width),
        *tables.phases(artifact.metadata),
        f"{run_seconds:8.2f} s run {len(heldout.images)} images on the virtual GPU",
    ):
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    accuracy, reference = heldout.accuracy(logits), heldout.accuracy(expected)
    agreement = float(np.mean(logits.argmax(axis=1) == expected.argmax(axis=1)))
    lost_points = 100 * (reference - accuracy)
    console.print(f"accuracy            {accuracy:8.2%}   of {len(heldout.images)} held-out images")
    console.print(f"FP32 reference      {reference:8.2%}   (ONNX Runtime on the CPU)")
    console.print(f"same answer         {agreement:8.2%}")
    console.print(
        f"largest error       {np.abs(logits - expected).max():8.5f}   of logits up to "
        f"{np.abs(expected).max():.2f}"
    )
    console.print(f"everything took     {time.monotonic() - started:8.1f} s")
    console.print("worth opening:", style="bold")
    for path in artifact.worth_opening():
        console.print(f"  {path}", soft_wrap=True, highlight=False)
    if not lost_points <= _MOST_LOST_POINTS:
        console.print(f"FP16 lost {lost_points:.2f} points of accuracy, more than allowed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
