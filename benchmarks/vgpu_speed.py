"""Speed of the virtual GPU: kernels of ours, what checks cost, and a whole model.

Every instruction set of the host executes an FP16 product of 1024^3 by the kernel 128x128x32 with
three stages, and a 3x3 convolution of 56x56x64 to 64 channels, batch 4, with one thread and with
two. So does the best of them sm_90a's GEMMs of 2048^3 from CUTLASS's collective builder. Checks
slow down every kernel of the numeric tests; ResNet-18 runs with two threads. Results are checked
against numpy first. An empty kernel is launched 10,000 times in a stream, in a graph, and in a
graph of three nodes that is launched as often, by one thread (`vgpu_launches.cu`).

The compared runs are measured in turn. `wall` is the time that passed, `cpu` the time that the
threads had a core: on a machine that does other work only the second says how fast the code is.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import boltgen
from benchmarks.cases.kernels import KernelCase, all_cases
from benchmarks.cuda_programs import build_programs, program_unit
from benchmarks.harness.driver import Driver
from benchmarks.harness.hopper_gemms import GEMMS, Product, build_gemms
from benchmarks.harness.kernel_launch import Cuda, Inputs, KernelLibrary, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from benchmarks.record import summary, write
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.build.vgpu import vgpu_libraries
from boltgen.codegen.nvcc import DeviceCode
from boltgen.device.choose import activate
from boltgen.device.vgpu import LaunchRecord, Vgpu
from boltgen.device.vgpu_program import run_program
from boltgen.errors import VgpuError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import kernel_spec
from boltgen.families.source import KernelSource, render_kernel
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.reference import error_bound, run
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from models import build

GEMM = Gemm(m=1024, n=1024, k=1024, b_layout=Layout.COLUMN)
CONV = Conv2d(n=4, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
CONV_CONFIG = Cutlass2Config(
    threadblock=Shape(128, 64, 32),
    warp=Shape(64, 32, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
HOPPER_EXTENT = 2048  # of M, N and K
CHECKS = "memcheck,initcheck"
REPEATS = 5
# All variants, of which this CPU executes some.
SETTINGS = replace(settings_from(), vgpu_isas=("avx512", "avx2", "generic"))

Figures = dict[str, Any]


def _usable_isas(vgpu: Vgpu) -> Iterator[str]:
    for isa in ("avx512", "avx2", "generic"):
        try:
            vgpu.set_option("isa", isa)
        except VgpuError:
            continue  # not an instruction set of this host
        yield isa


def _measure(vgpu: Vgpu, launch: Launch, inputs: Inputs) -> LaunchRecord:
    """The second of two launches: the first parses the PTX where that is new, and warms up."""
    for _ in range(2):
        launch.run(inputs)
    return vgpu.launches()[-1]


# --- kernels of ours, one thread and two ---------------------------------------------------------


def build_kernel(kernel: KernelSource, folder: Path) -> KernelLibrary:
    """Compile the kernel to a library of its own, through the user's cache."""
    tools = find_toolchain(SETTINGS)
    units = [kernel_unit(kernel, tools, DeviceCode.PTX)]
    (built,) = objects_or_raise(compile_all(units, Cache(SETTINGS.cache_dir), jobs=1))
    return KernelLibrary(link_shared([built.path], folder / "libkernel.so", tools))


def checked_launch(cuda: Cuda, case: KernelCase, folder: Path) -> tuple[Launch, Inputs]:
    folder.mkdir()  # a loaded library must not be overwritten
    launch = Launch(cuda, build_kernel(render_kernel(case.spec), folder), case)
    inputs = random_inputs(case, np.random.default_rng(0))
    expected = run(case.problem, ElementwiseGraph(), inputs.a, inputs.b, [])
    bound = error_bound(case.problem, ElementwiseGraph(), inputs.a, inputs.b, [])
    if not (np.abs(launch.run(inputs) - expected) <= bound).all():
        raise SystemExit(f"{case.name}: the result is wrong; no figure is recorded")
    return launch, inputs


def _share_of_classes(vgpu: Vgpu, launch: Launch, inputs: Inputs) -> dict[str, float]:
    """Return each instruction class's share of the time inside operations, largest first."""
    vgpu.set_option("counters", "on")
    launch.run(inputs)
    vgpu.set_option("counters", "off")
    cycles: dict[str, int] = vgpu.counters()[-1]["host_cycles"]
    total = sum(cycles.values())
    shares = {name: round(spent / total, 3) for name, spent in cycles.items()}
    return {n: s for n, s in sorted(shares.items(), key=lambda item: -item[1]) if s}


def _kernel_figures(
    flops: int, records: Sequence[tuple[LaunchRecord, LaunchRecord]]
) -> dict[str, Any]:
    """`records` are launches with one thread and with two."""

    def ratio(pairs: Iterator[tuple[float, float]]) -> float:
        return statistics.median(one / two for one, two in pairs)

    return {
        "gflop_per_s_cpu": summary([flops / one.cpu_s / 1e9 for one, _ in records]),
        "gflop_per_s_wall": summary([flops / one.wall_s / 1e9 for one, _ in records]),
        "two_threads_over_one_wall": ratio((one.wall_s, two.wall_s) for one, two in records),
        # The result of two idle cores: the blocks are shared evenly.
        "two_threads_over_one_cpu": ratio((one.cpu_s, two.cpu_s / 2) for one, two in records),
    }


def measure_kernels(vgpu: Vgpu, cuda: Cuda, folder: Path) -> Figures:
    figures: Figures = {}
    for name, problem, config in (("gemm", GEMM, CONFIG), ("conv2d", CONV, CONV_CONFIG)):
        spec = kernel_spec(Workload.of(problem), config, "sm_80")
        case = KernelCase(name=name, spec=spec, problem=problem)
        launch, inputs = checked_launch(cuda, case, folder / name)
        records: dict[str, list[tuple[LaunchRecord, LaunchRecord]]] = {}
        shares = {}
        for _ in range(REPEATS):
            for isa in _usable_isas(vgpu):
                by_threads = []
                for threads in (1, 2):
                    vgpu.set_option("threads", threads)
                    by_threads.append(_measure(vgpu, launch, inputs))
                records.setdefault(isa, []).append((by_threads[0], by_threads[1]))
                if isa not in shares:
                    shares[isa] = _share_of_classes(vgpu, launch, inputs)
        figures[name] = {
            isa: _kernel_figures(problem.flops, pairs) | {"share_of_time": shares[isa]}
            for isa, pairs in records.items()
        }
    vgpu.set_option("isa", "auto")
    return figures


# --- kernels of CUTLASS for sm_90a ---------------------------------------------------------------


def measure_hopper(vgpu: Vgpu) -> Figures:
    """GEMMs with TMA, multicast and wgmma in clusters of two; one thread and two."""
    driver = Driver(vgpu, vgpu_libraries(SETTINGS))
    vgpu.set_option("device", "sm_90")
    library = ctypes.CDLL(str(build_gemms()))
    products = {name: Product.random(driver, name, *(HOPPER_EXTENT,) * 3) for name in GEMMS}
    flops = 2 * HOPPER_EXTENT**3
    speed: dict[str, list[float]] = defaultdict(list)
    ratio: dict[str, list[float]] = defaultdict(list)
    for repeat in range(1 + REPEATS):
        for name, product in products.items():
            wall = []
            for threads in (1, 2):
                vgpu.set_option("threads", threads)
                if product.launch(library):
                    raise SystemExit(f"{name}: {vgpu.last_error()}")
                record = vgpu.launches()[-1]
                wall.append(record.wall_s)
                if repeat and threads == 1:
                    speed[name].append(flops / record.cpu_s / 1e9)
            if repeat:  # the first one parses the PTX
                ratio[name].append(wall[0] / wall[1])
    for product in products.values():
        error, bound = product.errors(driver.read(product.buffers[3]))
        if not (error <= bound).all():
            raise SystemExit(f"{product.name}: the result is wrong; no figure is recorded")
    driver.close()
    vgpu.set_option("device", "sm_80")
    return {
        name: {
            "gop_per_s_cpu": summary(speed[name]),
            "two_threads_over_one_wall": statistics.median(ratio[name]),
        }
        for name in products
    }


# --- checks --------------------------------------------------------------------------------------


def measure_checks(vgpu: Vgpu, cuda: Cuda, folder: Path) -> Figures:
    """Measure how much memcheck and initcheck slow each kernel of the numeric tests down."""
    folder.mkdir()
    vgpu.set_option("threads", 1)
    cases = all_cases()
    libraries = build_libraries(list(dict.fromkeys(case.spec for case in cases)), folder)
    slow_down: dict[str, float] = {}
    for case in cases:
        launch = Launch(cuda, libraries[case.spec], case)
        inputs = random_inputs(case, np.random.default_rng(0))
        vgpu.set_option("check", "none")
        plain = _measure(vgpu, launch, inputs)
        vgpu.set_option("check", CHECKS)
        slow_down[case.name] = _measure(vgpu, launch, inputs).cpu_s / plain.cpu_s
    vgpu.set_option("check", "none")
    values = sorted(slow_down.values())
    return {
        "checks": CHECKS,
        "kernels": len(values),
        "slow_down_cpu": {
            "median": statistics.median(values),
            "ninth_decile": values[len(values) * 9 // 10],
            "max": values[-1],
            "slowest": max(slow_down, key=slow_down.__getitem__),
        },
    }


# --- a whole model -------------------------------------------------------------------------------


def measure_resnet18(vgpu: Vgpu, folder: Path) -> Figures:
    """ResNet-18 at 224x224, batch 1, with two threads: copies and TVM's own kernels included."""
    folder.mkdir()
    path = folder / "resnet18.onnx"
    onnx.save(build("resnet18"), path)
    artifact = boltgen.compile(path)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    vgpu.set_option("threads", 2)
    wall, cpu = [], []
    for repeat in range(1 + REPEATS):
        vgpu.clear_launches()
        started, had = time.perf_counter(), time.process_time()
        artifact.run({"input": image})
        if repeat:  # the first one loads the library and parses its PTX
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - had)
    spent: dict[str, float] = defaultdict(float)
    for record in vgpu.launches():
        spent[record.kernel] += record.cpu_s
    total = sum(spent.values())
    most = sorted(spent.items(), key=lambda one: -one[1])[:6]
    return {
        "threads": 2,
        "seconds_wall": summary(wall),
        "seconds_cpu": summary(cpu),
        "share_of_time": {name: round(s / total, 3) for name, s in most},
    }


# --- launches of nothing -------------------------------------------------------------------------


def measure_launches() -> Figures:
    """Microseconds of wall time for a launch of an empty kernel, by a program of its own."""
    tools = find_toolchain(SETTINGS)
    text = Path(__file__).with_name("vgpu_launches.cu").read_text(encoding="utf-8")
    (program,) = build_programs([program_unit("vgpu_launches", text, tools, arch="sm_80")])
    done = run_program(
        [str(program)],
        libraries=vgpu_libraries(SETTINGS),
        options={"device": "sm_80", "threads": "1"},
        settings=SETTINGS,
        capture=True,
    )
    if done.returncode:
        raise SystemExit(f"vgpu_launches: {done.stdout}{done.stderr}")
    figures: Figures = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=("launches", "hopper"), help="this part only; nothing is recorded"
    )
    only = parser.parse_args().only
    if only == "launches":
        print(json.dumps(measure_launches()))
        return
    vgpu = activate("vgpu", settings=SETTINGS).vgpu
    assert vgpu is not None
    if only == "hopper":
        print(json.dumps(measure_hopper(vgpu)))
        return
    cuda = Cuda(vgpu)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {
            "load_average": {"before": load},
            **measure_kernels(vgpu, cuda, folder),
            "sm_90a": measure_hopper(vgpu),
            "checks": measure_checks(vgpu, cuda, folder / "checks"),
            "resnet18": measure_resnet18(vgpu, folder / "resnet18"),
            "launches": measure_launches(),
        }
    figures["load_average"]["after"] = os.getloadavg()
    write(
        "vgpu_speed",
        figures,
        target="GFLOP/s, one thread: GEMM 35 with AVX-512 and 15 with AVX2, convolution 20 and 8; "
        "two threads 1.9 times as fast; checks 3 times as slow at most, median over our kernels; "
        "ResNet-18 in 5 s; an empty launch in 20 us, 5 us in a graph; with AVX-512, sm_90a's "
        "pingpong FP16 35, FP8 and INT8 30",
    )


if __name__ == "__main__":
    main()
