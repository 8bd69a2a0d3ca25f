"""A second `boltgen.compile` of a model against `tvm.compile` of the partitioned module alone.

Three times are taken in turn in one process, so that a noisy machine disturbs them alike:
`tvm.compile` of the partitioned module, whose leftover operators go through nvcc; the whole way
from the ONNX file to the folder with the library with only the kernels in the cache; and the same
as users have it, where the compiled model itself is in the cache too.
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
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.pipeline import PipelineOptions, build_regions
from boltgen.settings import settings_from
from models import build

REPEATS = 5


def tvm_compile_alone(path: Path) -> float:
    """Seconds that `tvm.compile` takes on the partitioned model, everything of ours being done.

    What TVM generates goes through nvcc, as in every `tvm.compile`.
    """
    from boltgen.frontend import relax  # noqa: PLC0415 (TVM comes after its CUDA runtime,
    from boltgen.runtime import link  # noqa: PLC0415 which `boltgen.compile` has loaded)

    settings = settings_from()
    annotated = relax.annotate(relax.import_model(path).module)
    built = build_regions(annotated.regions, "sm_80", PipelineOptions(settings=settings))
    module = relax.attach(annotated, built.objects, built.symbols, built.plan.workspaces)
    with tempfile.TemporaryDirectory() as name:
        empty = Cache(Path(name) / "cache")
        started = perf_counter()
        link.build_library(module, arch_named("sm_80"), find_toolchain(settings), empty)
        return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--image-size", type=int, default=64)
    options = parser.parse_args()
    kernels_cached, model_cached, tvm_alone = [], [], []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.onnx"
        onnx.save(build(options.model, image_size=options.image_size), path)
        for repeat in range(REPEATS + 1):
            started = perf_counter()
            boltgen.compile(path, reuse=False)
            middle = perf_counter()
            boltgen.compile(path)
            ended = perf_counter()
            alone = tvm_compile_alone(path)
            if repeat:  # the first fills the cache and is the warm-up
                kernels_cached.append(middle - started)
                model_cached.append(ended - middle)
                tvm_alone.append(alone)
    base = statistics.median(tvm_alone)
    write(
        "second_compile",
        {
            "model": options.model,
            "image_size": options.image_size,
            "tvm_compile_alone_seconds": summary(tvm_alone),
            "model_cached_seconds": summary(model_cached),
            "kernels_cached_seconds": summary(kernels_cached),
            "ratio_model_cached": statistics.median(model_cached) / base,
            "ratio_kernels_cached": statistics.median(kernels_cached) / base,
        },
        target="1.2x of tvm.compile",
    )


if __name__ == "__main__":
    main()
