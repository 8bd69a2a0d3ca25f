"""Measure the host time of a call of dynamic sizes beyond fixed sizes: the look-up in its table.

Two regions of one product, of open rows and of known ones, are compiled as in every library, except
that their kernels do nothing. Each is called many times; the calls take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm_ffi

import boltgen
from benchmarks.record import write
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.ir.extent import Symbol, symbolic
from boltgen.pipeline import plan_regions
from boltgen.problems.cells import localised
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.region import LayerRoles, Region
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from

MOST, WIDTH = 32768, 768
ROWS = (1, 512, MOST)
CALLS, REPEATS = 100_000, 15

_DRIVER = """
#include <chrono>
#include <type_traits>

namespace {

DLTensor matrix(int64_t* shape) {
  static char memory[16];
  static int64_t strides[] = {WIDTH, 1};
  return {memory, {kDLCUDA, 0}, 2, {kDLFloat, 16, 1}, shape, strides, 0};
}

template <typename Region>
double nanoseconds(Region region, int64_t rows, int calls) {
  int64_t a_shape[] = {rows, WIDTH}, b_shape[] = {WIDTH, WIDTH}, bytes[] = {1 << 24, 1};
  DLTensor a = matrix(a_shape), b = matrix(b_shape), d = matrix(a_shape), w = matrix(bytes);
  TensorView const p0(&a), p1(&b), output(&d), workspace(&w);
  auto const started = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    if constexpr (std::is_invocable_v<Region, TensorView, TensorView, TensorView, TensorView>) {
      region(p0, p1, output, workspace);
    } else {
      region(p0, p1, output);
    }
  }
  std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - started;
  return took.count() / calls;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) double open_ns(int64_t rows, int calls) {
  return nanoseconds(call_open, rows, calls);
}

extern "C" __attribute__((visibility("default"))) double known_ns(int64_t rows, int calls) {
  return nanoseconds(call_known, rows, calls);
}
"""


def region(symbol: str, rows: int) -> Region:
    """A product of so many rows."""
    workload, _ = localised(Workload.of(Gemm(m=rows, n=WIDTH, k=WIDTH)))
    roles = (LayerRoles(b=1),)
    return Region(
        symbol=symbol, label="matmul", workload=workload, parameter_count=2, a=0, layers=roles
    )


def library(known_rows: int, folder: Path) -> tuple[Any, int]:
    """The two regions and what times them, and the rows of the open one's table."""
    rows = symbolic(Symbol("rows", 1, MOST))
    plan = plan_regions([region("open", rows), region("known", known_rows)], "sm_80")
    kernels = {kernel for launch in plan.launches for kernel in launch.kernels}
    stubs = "".join(
        f'extern "C" int {name}(boltgen_gemm_args const*, boltgen_status*) {{ return 0; }}\\n'
        for name in sorted(kernels)
    )
    text = plan.adapter + _DRIVER.replace("WIDTH", str(WIDTH)) + stubs.replace("\\n", "\n")
    settings = settings_from()
    tools = find_toolchain(settings)
    made = compile_unit(adapter_unit(f"lookup{known_rows}", text, tools), Cache(settings.cache_dir))
    if not isinstance(made, CompiledObject):
        raise SystemExit(made.message)
    found = ctypes.CDLL(str(link_shared([made.path], folder / f"{known_rows}.so", tools)))
    for function in (found.open_ns, found.known_ns):
        function.argtypes, function.restype = [ctypes.c_int64, ctypes.c_int], ctypes.c_double
    return found, len(plan.launches[0].choices)


def medians(rows: int, *timed: Callable[[int, int], float]) -> list[float]:
    """The median nanoseconds of a call of each function, which take turns; warm-up first."""
    for function in timed:
        function(rows, CALLS)
    turns = [[function(rows, CALLS) for function in timed] for _ in range(REPEATS)]
    return [statistics.median(times) for times in zip(*turns, strict=True)]


def main() -> None:
    """Time, and record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    boltgen.activate("vgpu")
    ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), mode=ctypes.RTLD_GLOBAL)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for rows in ROWS:
            made, table_rows = library(rows, Path(name))
            ours, known = medians(rows, made.open_ns, made.known_ns)
            found[str(rows)] = {
                "open_ns": round(ours),
                "known_ns": round(known),
                "look_up_ns": round(ours - known),
                "table_rows": table_rows,
            }
    write("dynamic_lookup", {"by_rows": found}, target="1 us for a look-up")


if __name__ == "__main__":
    main()
