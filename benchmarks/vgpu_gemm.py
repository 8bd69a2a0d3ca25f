"""Speed of the virtual GPU: a kernel of ours for sm_80, one thread.

An FP16 product of 1024^3 by the kernel 128x128x32, warps of 64x64, three stages. Seconds are the
kernel's, as the virtual GPU records them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.record import summary, write
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.kernel import KernelSource, render_kernel
from boltgen.codegen.nvcc import DeviceCode
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Gemm
from boltgen.ir.reference import error_bound, run
from boltgen.runtime.device import activate
from boltgen.settings import settings_from
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.space.kernel import kernel_spec
from tests.kernels.launch import Cuda, GemmArgs, KernelLibrary

CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
REPEATS = 5


def build_kernel(kernel: KernelSource, folder: Path) -> KernelLibrary:
    """The kernel in a library of its own, through the user's cache."""
    settings = settings_from()
    tools = find_toolchain(settings)
    units = [kernel_unit(kernel, tools, DeviceCode.PTX)]
    (built,) = objects_or_raise(compile_all(units, Cache(settings.cache_dir), jobs=1))
    return KernelLibrary(link_shared([built.path], folder / "libkernel.so", tools))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", help="avx512, avx2 or baseline; by default the machine's best")
    options = parser.parse_args()
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("threads", str(options.threads))
    if options.isa:
        vgpu.set_option("isa", options.isa)
    cuda = Cuda(vgpu)

    n = options.size
    problem = Gemm(m=n, n=n, k=n, b_layout=Layout.COLUMN)
    kernel = render_kernel(kernel_spec(problem, ElementwiseGraph(), CONFIG, "sm_80"))
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (n, n)).astype(np.float16) for _ in range(2))
    d = np.full((n, n), np.nan, np.float16)
    args = GemmArgs(m=n, n=n, k=n, batch=1, lda=n, ldb=n, ldd=n, split_k=1, swizzle=1)
    args.a, args.b, args.d = cuda.upload(a), cuda.upload(b), cuda.upload(d)
    with tempfile.TemporaryDirectory() as folder:
        library = build_kernel(kernel, Path(folder))
        for _ in range(1 + REPEATS):  # the first one parses the PTX, and warms up
            library.launch(kernel.symbol, args)
            cuda.synchronise()
    seconds = [record.wall_s for record in vgpu.launches()[-REPEATS:]]

    difference = np.abs(cuda.download(args.d, d) - run(problem, ElementwiseGraph(), a, b, []))
    if not (difference <= error_bound(problem, ElementwiseGraph(), a, b, [])).all():
        raise SystemExit("the kernel's result is wrong; no figure is recorded")
    write(
        "vgpu_gemm",
        {
            "size": n,
            "threads": options.threads,
            "isa": options.isa or "best",
            "kernel": kernel.symbol,
            "seconds": summary(seconds),
            "gflop_per_s": summary([problem.flops / s / 1e9 for s in seconds]),
        },
        target="35 GFLOP/s with one thread and AVX-512, 15 with AVX2",
    )


if __name__ == "__main__":
    main()
