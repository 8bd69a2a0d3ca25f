"""Counts what every kernel of section models' models does, on the virtual GPU, for predictions.

    python -m benchmarks.gpu.count_models [--arch sm_90] [MODEL...]

compiles each model twice, by boltgen and by TVM alone, as the suite's bundle has them, runs both
libraries once and writes `model_work.json`. Every kernel is launched as on a GPU, but only four
blocks of a grid are run, spread over it, and stand for all (`counters=sampled` of the virtual GPU):
outputs mean nothing. About an hour of processor time where nothing is compiled yet, else minutes.
"""

from __future__ import annotations

import argparse
import lzma
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.machine_code import machine_per_ptx
from benchmarks.gpu.model_build import build_model
from benchmarks.gpu.model_work import ALONE, OURS, KernelWork, kept_works, works_of, write
from benchmarks.gpu.shapes import ModelShape, models
from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Silent
from boltgen.build.toolchain import find_toolchain
from boltgen.runtime.device import activate
from boltgen.runtime.vgpu import Vgpu
from boltgen.settings import settings_from

# On one host thread: how often a block looks for another one would depend on chance.
_COUNTING: dict[str, str | int] = {"counters": "sampled", "fresh": "zero", "threads": 1}
_AFTERWARDS: dict[str, str | int] = {
    "counters": "off",
    "fresh": "nan",
    "threads": os.cpu_count() or 1,
}


def count_model(shape: ModelShape, arch: Arch, vgpu: Vgpu) -> dict[str, tuple[KernelWork, ...]]:
    """The kernels of one inference by either library; `vgpu` has become a device of `arch`."""
    settings = settings_from()
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    built = build_model(
        shape, arch, tools, cache, settings=settings, jobs=settings.jobs, reporter=Silent()
    )
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for column, packed in ((OURS, built.ours), (ALONE, built.alone)):
            library = Path(folder, f"{column}.so")
            library.write_bytes(lzma.decompress(packed.read_bytes()))
            found[column] = count_library(library, shape.input_shape, vgpu)
    return found


def count_library(library: Path, input_shape: Sequence[int], vgpu: Vgpu) -> tuple[KernelWork, ...]:
    """What one inference of a model with an FP16 input launches.

    Nothing that a kernel does depends on the input's numbers.
    """
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cuda(0))
    argument = tvm.runtime.tensor(np.zeros(input_shape, np.float16), tvm.cuda(0))
    for name, value in _COUNTING.items():
        vgpu.set_option(name, value)
    vgpu.clear_launches()
    try:
        machine["main"](argument)
        return works_of(vgpu.counters(), machine_per_ptx(library.read_bytes()))
    finally:
        for name, value in _AFTERWARDS.items():
            vgpu.set_option(name, value)


def main() -> None:
    """Count, and write after each model."""
    known = models()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    if unknown := set(options.models) - known.keys():
        parser.error(f"no models: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    arch = arch_named(options.arch)
    vgpu = activate("vgpu").vgpu
    if vgpu is None:
        raise AssertionError("this process uses the virtual GPU")
    vgpu.set_option("device", arch.name)
    works = kept_works()
    for name in options.models or known:
        works.setdefault(arch.name, {})[name] = count_model(known[name], arch, vgpu)
        write(works)
        print(f"{name}: counted")


if __name__ == "__main__":
    main()
