"""A second `boltgen.compile` of a model against `tvm.compile` of the partitioned module alone.

boltgen's time is that of the whole way, from the ONNX file to the folder with the library, with
the kernels in the cache. TVM's is `tvm.compile` alone, twice: "stock", with the CUDA compiler that
TVM's wheel registers and that a user without boltgen would wait for, and "cached", with boltgen's
cached one, which is the time that TVM's own passes take. All three are timed in turn in one
process, so that a noisy machine disturbs them alike.
"""

from __future__ import annotations

import argparse
import os
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
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.onnx"
        onnx.save(build(options.model, image_size=options.image_size), path)
        boltgen.compile(path)  # fills the cache, warms up, and loads TVM as compile does
        _write(options, *_measure(path))


def _measure(path: Path) -> tuple[list[float], list[float], list[float]]:
    import tvm  # noqa: PLC0415 (after compile has provided the CUDA runtime)

    from boltgen.arch import arch_named  # noqa: PLC0415
    from boltgen.build.cache import Cache  # noqa: PLC0415
    from boltgen.build.toolchain import find_toolchain  # noqa: PLC0415
    from boltgen.frontend import relax  # noqa: PLC0415
    from boltgen.runtime import link  # noqa: PLC0415
    from boltgen.settings import settings_from  # noqa: PLC0415

    settings = settings_from()
    arch, tools, cache = arch_named("sm_80"), find_toolchain(settings), Cache(settings.cache_dir)
    # TVM's own callback looks for nvcc on PATH and for its mode in the environment.
    os.environ["PATH"] = f"{tools.nvcc.path.parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["TVM_CUDA_COMPILE_MODE"] = "nvcc"
    annotated = relax.annotate(relax.import_model(path).module)
    module = relax.compile_regions(annotated, arch="sm_80")
    target = link.cuda_target(arch)

    def stock() -> None:
        with target:
            tvm.compile(module, target=target)

    runs = {
        "ours": lambda: boltgen.compile(path),
        "stock": stock,
        "cached": lambda: link.build_library(module, arch, tools, cache),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, run in runs.items():
            started = perf_counter()
            run()
            if repeat:  # the first is the warm-up
                seconds[name].append(perf_counter() - started)
    return seconds["ours"], seconds["stock"], seconds["cached"]


def _write(
    options: argparse.Namespace, ours: list[float], stock: list[float], cached: list[float]
) -> None:
    middle = statistics.median(ours)
    write(
        "second_compile",
        {
            "model": options.model,
            "image_size": options.image_size,
            "boltgen_compile_seconds": summary(ours),
            "tvm_compile_stock_seconds": summary(stock),
            "tvm_compile_cached_seconds": summary(cached),
            "ratio_to_stock": middle / statistics.median(stock),
            "ratio_to_cached": middle / statistics.median(cached),
        },
        target="1.2x of tvm.compile",
    )


if __name__ == "__main__":
    main()
