"""DRAM bytes of depthwise convolutions against the least that they could be.

Each layer is executed with the configuration that the model predicts to be fastest, and checked
against the oracle. The virtual GPU estimates the touched bytes from four threadblocks, and counts
a sector once however often it is read. A second count follows all threadblocks of 32 images in
their order through an LRU cache of a quarter of L2. Pixels that leave the cache before the next row
of tiles reads them count again.

Depthwise separable convolutions of MobileNetV2 and MobileNetV3, each with its 1x1 convolution, are
executed as one kernel and as two. One kernel saves the tensor between, which is written once and
read once, and the partial sums of split-K where the second kernel has them. An estimate below the
least bytes of a depthwise convolution counts as the least.

    python -m benchmarks.depthwise_traffic --arch sm_80

With `--models` nothing is compiled or executed: launches and predicted times of whole models, with
the family `separable` and without it.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases.kernels import EPILOGUES, KernelCase
from benchmarks.cases.separable import same, separable
from benchmarks.harness.kernel_launch import Cuda, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from benchmarks.record import earlier, write
from benchmarks.timm_table import exported, predicted
from boltgen.arch import Arch, arch_named
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.device.choose import activate
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise.legality import blocks_of_slab
from boltgen.families.depthwise_tile import vector_of, vector_of_a
from boltgen.families.registry import FAMILIES, candidates, kernel_spec, launch, predict
from boltgen.families.source import kernel_symbol
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload

_TARGET = (
    "DRAM bytes at most 1.05 times the least; one kernel saves at least the tensor between two, to "
    "within 3 %; fewer launches of models"
)
_IMAGES, _IMAGE = 32, 224
LAYERS = {
    "56x56x144, 3x3": Depthwise(n=1, h=56, w=56, c=144, r=3, s=3, padding=(1, 1, 1, 1)),
    "112x112x32, 3x3": Depthwise(n=1, h=112, w=112, c=32, r=3, s=3, padding=(1, 1, 1, 1)),
    "28x28x240, 5x5, stride 2": Depthwise(
        n=1, h=28, w=28, c=240, r=5, s=5, stride=(2, 2), padding=(2, 2, 2, 2)
    ),
    "56x56x96, 7x7": Depthwise(n=1, h=56, w=56, c=96, r=7, s=7, padding=(3, 3, 3, 3)),
}

_GRAPHS = (EPILOGUES["bias_relu"], EPILOGUES["identity"])
SEPARABLE = {
    name: separable(first, columns, _GRAPHS)
    for name, first, columns in (
        ("112x112x96 to 24, 3x3, stride 2", same((1, 112, 112, 96), 3, 2), 24),
        ("56x56x144 to 24, 3x3", same((1, 56, 56, 144), 3), 24),
        ("28x28x192 to 32, 3x3", same((1, 28, 28, 192), 3), 32),
        ("14x14x576 to 96, 3x3", same((4, 14, 14, 576), 3), 96),
        ("28x28x120 to 40, 5x5", same((1, 28, 28, 120), 5), 40),
    )
}

MODELS = ("mobilenetv2_100", "mobilenetv3_large_100", "efficientnet_b0")

# Image, row and column of a pixel, and which slab of its channels.
_Pixels = tuple[int, int, int, int]


def least_bytes(problem: Depthwise) -> int:
    """Return the bytes of the activation, the filters, a bias and the output, each once."""
    m, n = problem.matrix
    element = problem.out_dtype.size_bytes
    return problem.a_bytes + problem.b_bytes + n * element + m * n * element


def pixels_of_blocks(problem: Depthwise, config: DepthwiseConfig) -> Iterator[set[_Pixels]]:
    """Yield the pixels that each threadblock reads, in the order in which a grid starts them."""
    vectors = problem.k // vector_of(problem)
    slab = config.of_slab(vectors)
    rows, columns = -(-problem.p // config.rows), -(-problem.q // config.columns)
    spans = [
        (extent - 1) * problem.stride[axis] + problem.dilation[axis] * (taps - 1) + 1
        for axis, (extent, taps) in enumerate(
            ((config.rows, problem.r), (config.columns, problem.s))
        )
    ]

    def met(first: int, axis: int, extent: int) -> range:
        begin = first * problem.stride[axis] - problem.padding[axis]
        return range(max(begin, 0), min(begin + spans[axis], extent))

    for block in range(blocks_of_slab(problem, config)):
        first, last = block * config.threads, (block + 1) * config.threads - 1
        read: set[tuple[int, int, int]] = set()
        for tile in range(first // slab, last // slab + 1):
            image, place = divmod(tile, rows * columns)
            if image < problem.n:
                row, column = place // columns * config.rows, place % columns * config.columns
                read |= {
                    (image, y, x) for y in met(row, 0, problem.h) for x in met(column, 1, problem.w)
                }
        for number in range(-(-vectors // slab)):
            yield {(*pixel, number) for pixel in read}


def missed_bytes(problem: Depthwise, config: DepthwiseConfig, cache_bytes: int) -> int:
    """Return the bytes of the activation that an LRU cache of that size reads from DRAM."""
    vectors = problem.k // vector_of(problem)
    slab = config.of_slab(vectors)
    vector_bytes = vector_of_a(problem) * problem.in_dtype.size_bytes
    kept: OrderedDict[_Pixels, None] = OrderedDict()
    most, missed = cache_bytes // (slab * vector_bytes), 0
    for read in pixels_of_blocks(problem, config):
        for pixels in sorted(read):
            if pixels in kept:
                kept.move_to_end(pixels)
                continue
            kept[pixels] = None
            missed += min(slab, vectors - pixels[-1] * slab) * vector_bytes
        while len(kept) > most:
            kept.popitem(last=False)
    return missed


def fastest(workload: Workload, arch: Arch) -> Any:
    """Return the configuration with the least predicted time."""
    found = candidates(workload, arch)
    return min(found, key=lambda config: predict(workload, config, arch).time_us)


def executed(workload: Workload, arch: Arch, device: Device, vgpu: Any) -> dict[str, Any]:
    """Execute the fastest kernel of a workload, check it, and return what was counted."""
    config = fastest(workload, arch)
    spec = kernel_spec(workload, config, arch.name)
    with tempfile.TemporaryDirectory() as folder:
        library = build_libraries([spec], Path(folder))[spec]
        vgpu.clear_launches()
        job = Job(symbol=kernel_symbol(spec), workload=workload, launch=launch(workload, config))
        worst = run_job(device, ctypes.CDLL(str(library.path)), job)
        device.free_all()
        if worst > 1.0:
            raise SystemExit(f"{workload.short}: the kernel is wrong: {worst} of its bound")
        problem = workload.first.problem
        if problem.is_matrix:  # again, without the gaps between rows that a check makes
            vgpu.clear_launches()
            case = KernelCase(
                name="packed",
                spec=spec,
                problem=problem,
                swizzle=config.swizzle,
                split_k=config.split_k,
            )
            inputs = random_inputs(case, np.random.default_rng(0))
            Launch(Cuda(vgpu), library, case, packed=True).run(inputs)
    (counted,) = (each for each in vgpu.counters() if "boltgen" in each["kernel"])
    return {
        "config": str(config),
        "largest_error_of_bound": round(worst, 3),
        "touched_dram_bytes": counted["modelled"]["dram_bytes"],
        "loaded_sector_bytes": 32 * counted["global_load"]["sectors"],
        "modelled_us": counted["modelled"]["us"],
        "bound_by": counted["modelled"]["bound_by"],
        "predicted_us": round(predict(workload, config, arch).time_us, 2),
    }


def figures_of(name: str, arch: Arch, device: Device, vgpu: Any) -> dict[str, Any]:
    """Execute a layer, and count its bytes."""
    problem = LAYERS[name]
    counted = executed(Workload.of(problem, EPILOGUES["bias_relu"]), arch, device, vgpu)
    least = least_bytes(problem)
    many = replace(problem, n=_IMAGES)
    chosen = fastest(Workload.of(many, EPILOGUES["bias_relu"]), arch)
    least_of_many = least_bytes(many)
    # The output goes through the cache as well, so that half of it is for the activation.
    missed = missed_bytes(many, chosen, arch.l2_bytes // 4)
    dram = least_of_many - many.a_bytes + missed
    return {
        "layer": problem.short,
        **counted,
        "least_bytes": least,
        "touched_over_least": round(counted["touched_dram_bytes"] / least, 4),
        "least_us": round(least / (arch.dram_gb_per_s * 1e3), 2),
        f"of_{_IMAGES}_images": {
            "config": str(chosen),
            "least_bytes": least_of_many,
            "dram_bytes": dram,
            "dram_over_least": round(dram / least_of_many, 4),
        },
    }


def saved(name: str, arch: Arch, device: Device, vgpu: Any) -> dict[str, Any]:
    """Execute a separable convolution as one kernel and as two, and compare their bytes."""
    workload = SEPARABLE[name]
    one = executed(workload, arch, device, vgpu)
    two = [executed(Workload(layers=(each,)), arch, device, vgpu) for each in workload.layers]
    first = workload.first.problem
    assert isinstance(first, Depthwise)
    two[0]["least_bytes"] = least_bytes(first)
    many = max(two[0]["least_bytes"], two[0]["touched_dram_bytes"]) + two[1]["touched_dram_bytes"]
    between = 2 * workload.intermediate_bytes
    return {
        "layers": name,
        "one": one,
        "two": two,
        "intermediate_written_and_read_bytes": between,
        "saved_over_intermediate": round((many - one["touched_dram_bytes"]) / between, 4),
        "one_over_two": round(one["touched_dram_bytes"] / many, 4),
    }


def predicted_model(name: str, arch: str, without: str | None) -> dict[str, Any]:
    """Return launches and predicted time of a model of timm; `without` names a family."""
    if without is not None:
        FAMILIES.remove(without)
    found = predicted(exported(name, _IMAGE, _IMAGES), arch_named(arch))
    return {"launches": found["launches"], "predicted_us": round(found["predicted_us"], 1)}


def models(arch: str) -> list[dict[str, Any]]:
    """Predict each model in processes of their own: what is predicted is remembered."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in MODELS:
            ways = {"one_kernel": None, "two_kernels": "separable"}
            made = {
                way: pool.apply(predicted_model, (name, arch, without))
                for way, without in ways.items()
            }
            rows.append({"model": name, "batch": _IMAGES, **made})
    return rows


def main() -> None:
    """Count the bytes of every layer, or the launches of every model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--models", action="store_true", help="launches of whole models")
    options = parser.parse_args()
    if options.models:
        figures = earlier("depthwise_traffic") | {"models": models(options.arch)}
        write("depthwise_traffic", figures, target=_TARGET)
        return
    arch = arch_named(options.arch)
    vgpu = activate("vgpu", arch=arch.name).vgpu
    assert vgpu is not None
    vgpu.set_option("counters", "on")
    device = Device(ctypes.CDLL("libcudart.so.13"), vgpu.last_error)
    counted = {
        "arch": arch.name,
        "layers": [figures_of(name, arch, device, vgpu) for name in LAYERS],
        "separable": [saved(name, arch, device, vgpu) for name in SEPARABLE],
    }
    write("depthwise_traffic", earlier("depthwise_traffic") | counted, target=_TARGET)


if __name__ == "__main__":
    main()
