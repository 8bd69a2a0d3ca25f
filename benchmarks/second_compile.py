"""A second `boltgen.compile` of a model against `tvm.compile` of the partitioned module alone.

The kernels are in the cache; both are timed in turn in one process, so that a noisy machine
disturbs both alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import onnx

import boltgen
from benchmarks.record import summary, write
from models import build

REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--image-size", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(build(options.model, image_size=options.image_size), path)
        boltgen.compile(path)  # fills the cache; also the warm-up

        # The public entry activates a device first; TVM is imported after that.
        from boltgen.compiler import tvm_compile_alone  # noqa: PLC0415

        ours, theirs = [], []
        for _ in range(REPEATS):
            started = perf_counter()
            boltgen.compile(path)
            ours.append(perf_counter() - started)
            theirs.append(tvm_compile_alone(path))
    ratio = statistics.median(ours) / statistics.median(theirs)
    write(
        "second_compile",
        {
            "model": options.model,
            "image_size": options.image_size,
            "boltgen_compile_seconds": summary(ours),
            "tvm_compile_seconds": summary(theirs),
            "ratio": ratio,
        },
        target="1.2x",
    )


if __name__ == "__main__":
    main()
