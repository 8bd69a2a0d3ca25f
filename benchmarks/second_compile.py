"""A second `boltgen.compile` of a model against `tvm.compile` of the partitioned module alone.

Times are taken in turn in one process, so that a noisy machine disturbs them alike: `tvm.compile`
of the partitioned module, whose leftover operators go through nvcc; the whole way from the ONNX
file to the folder with the library, with only the kernels and what their check found in the cache;
the same without a check; the same as users have it, where the compiled model itself is in the cache
too; and the check of all kernels, as if none had been checked before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx

import boltgen
from benchmarks.record import summary, write
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Silent
from boltgen.build.toolchain import find_toolchain
from boltgen.check.kernels import check_kernels
from boltgen.pipeline import PipelineOptions, build_regions
from boltgen.settings import settings_from
from models import build

REPEATS = 5
MODELS: dict[str, dict[str, int]] = {
    "resnet18": {"batch": 1, "image_size": 64},
    "resnet50": {"batch": 32, "image_size": 224},
}


def tvm_compile_alone(path: Path) -> float:
    """Seconds that `tvm.compile` takes on the partitioned model, everything of ours being done.

    Code that TVM generates goes through nvcc, as in every `tvm.compile`.
    """
    from boltgen.frontend import relax  # noqa: PLC0415 (TVM comes after its CUDA runtime,
    from boltgen.tvm_build import relax_link as link  # noqa: PLC0415 which `boltgen.compile` has loaded)

    settings = settings_from()
    annotated = relax.annotate(relax.import_model(path).module)
    built = build_regions(annotated.regions, "sm_80", PipelineOptions(settings=settings))
    module = relax.attach(annotated, built.objects, built.symbols, built.plan.workspaces)
    with tempfile.TemporaryDirectory() as name:
        empty = Cache(Path(name) / "cache")
        started = perf_counter()
        link.build_library(module, arch_named("sm_80"), find_toolchain(settings), empty)
        return perf_counter() - started


def check_alone(path: Path) -> float:
    """Seconds that every kernel of a compiled model takes to be executed, nothing being known."""
    settings = settings_from()
    artifact = boltgen.compile(path)
    found = check_kernels(artifact.folder, artifact.metadata, settings, reporter=Silent())
    if not found.passed:
        raise SystemExit(f"{path.stem}: {found}")
    return found.seconds


def measure(path: Path) -> dict[str, Any]:
    """The figures of a model, in seconds and relative to `tvm.compile`."""
    timed: dict[str, Callable[[], object]] = {
        "kernels_cached_unchecked": lambda: boltgen.compile(path, reuse=False, check="none"),
        "kernels_cached": lambda: boltgen.compile(path, reuse=False),
        "model_cached": lambda: boltgen.compile(path),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*timed, "check", "tvm_compile_alone")}
    for repeat in range(REPEATS + 1):
        for name, run in timed.items():
            started = perf_counter()
            run()
            seconds[name].append(perf_counter() - started)
        seconds["check"].append(check_alone(path))
        seconds["tvm_compile_alone"].append(tvm_compile_alone(path))
        if not repeat:  # the first fills the cache and is the warm-up
            for values in seconds.values():
                values.clear()
    base = statistics.median(seconds["tvm_compile_alone"])
    return {
        **{f"{name}_seconds": summary(values) for name, values in seconds.items()},
        **{f"ratio_{name}": statistics.median(seconds[name]) / base for name in timed},
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        for model, options in MODELS.items():
            path = Path(name) / f"{model}.onnx"
            onnx.save(build(model, **options), path)
            figures[model] = {**options, **measure(path)}
    write("second_compile", figures, target="check 15 s; kernels cached 1.3x of tvm.compile")


if __name__ == "__main__":
    main()
