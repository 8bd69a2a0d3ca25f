"""Find the parts of nvcc's time for a kernel for sm_90a, and what could reduce it.

Processor seconds of a unit that includes CUTLASS's headers and instantiates nothing; of one with
its CollectiveBuilder and device adapter alone, a plain GEMM, which is what anybody's kernel costs;
of one of ours of the same tile with bias and ReLU; of two of ours in one unit, each; and of one
with less optimisation of the code of the host. They are compiled one after the other, in turn.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import replace

from benchmarks.library import compile_seconds
from benchmarks.record import summary, write
from boltgen.arch import arch_named
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import TranslationUnit, kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.registry import kernel_spec
from boltgen.families.source import render_kernel
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from

HEADERS = """\
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
"""
# D = A B with FP16 operands and FP32 sums, as CUTLASS's users write it.
ALONE = (
    HEADERS
    + """
using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using TileShape = cute::Shape<cute::_128, cute::_192, cute::_64>;
using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, 8, Half, Row, 8,
    cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Row, 8, Half, Column, 8, float,
    TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using GemmKernel = cutlass::gemm::kernel::GemmUniversal<
    cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
using Device = cutlass::gemm::device::GemmUniversalAdapter<GemmKernel>;
int run(Device::Arguments const& arguments, void* workspace, cudaStream_t stream) {
  Device gemm;
  if (gemm.can_implement(arguments) != cutlass::Status::kSuccess) return 1;
  return int(gemm.run(arguments, workspace, stream));
}
"""
)


def our_units() -> tuple[TranslationUnit, TranslationUnit]:
    """A pingpong and a cooperative kernel with bias and ReLU."""
    builder = ElementwiseBuilder()
    biased = builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.ROW))
    builder.unary(UnaryOp.RELU, biased)
    gemm = Gemm(m=4096, n=4096, k=4096, b_layout=Layout.COLUMN)
    workload, tools = Workload.of(gemm, builder.build()), find_toolchain(settings_from())

    def unit(n: int, schedule: Schedule) -> TranslationUnit:
        config = Cutlass3Config(threadblock=Shape(128, n, 64), cluster_m=2, schedule=schedule)
        kernel = render_kernel(kernel_spec(workload, config, arch_named("sm_90a").name))
        return kernel_unit(kernel, tools, DeviceCode.SASS_AND_PTX)

    return unit(192, Schedule.PINGPONG), unit(128, Schedule.COOPERATIVE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="how often each is compiled")
    repeats: int = parser.parse_args().repeats
    pingpong, cooperative = our_units()
    # Without the stand-ins for headers that our kernels do not use.
    others = replace(pingpong, include=pingpong.include[-2:])
    units = {
        "headers": replace(others, text=HEADERS),
        "collective_builder_alone": replace(others, text=ALONE),
        "ours_pingpong": pingpong,
        "ours_cooperative": cooperative,
        "two_of_ours": replace(pingpong, text=f"{pingpong.text}\n{cooperative.text}"),
        "ours_pingpong_host_o1": replace(pingpong, flags=(*pingpong.flags, "-Xcompiler=-O1")),
    }
    compile_seconds([units["headers"]], 1)  # nvcc's and CUTLASS's files into memory
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        for name, unit in units.items():
            seconds[name].append(compile_seconds([unit], 1)[0])
    alone = statistics.median(seconds["collective_builder_alone"])
    of_two = statistics.median(seconds["two_of_ours"]) / 2
    write(
        "compile_sm90a",
        {
            "cpu_seconds": {name: summary(values) for name, values in seconds.items()},
            "ratio_ours": statistics.median(seconds["ours_pingpong"]) / alone,
            "ratio_each_of_two": of_two / alone,
        },
        target="seconds of a kernel in a unit, against CollectiveBuilder and adapter alone: 0.4",
    )


if __name__ == "__main__":
    main()
