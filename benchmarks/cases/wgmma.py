"""Kernels of the family `cutlass3` that tests execute, and what they are executed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.cases.kernels import KernelCase, in_bf16
from boltgen.arch import Arch, arch_named
from boltgen.families.boundary import with_rows
from boltgen.families.cutlass3.config import Cutlass3Config, Raster, Schedule, Scheduler
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

SM90A = arch_named("sm_90a")


GEMM = Gemm(m=512, n=512, k=512, b_layout=Layout.COLUMN)
CONV = Conv2d(n=2, h=14, w=14, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaKernel:
    """A kernel, and the problem that it is made for."""

    config: Cutlass3Config
    epilogue: ElementwiseGraph
    problem: Problem

    @property
    def workload(self) -> Workload:
        """The problem with its epilogue."""
        return Workload.of(self.problem, self.epilogue)

    @property
    def spec(self) -> KernelSpec:
        """What is compiled of it."""
        return kernel_spec(self.workload, self.config, SM90A.name)

    def case(self, workload: Workload) -> KernelCase:
        """A launch of it."""
        sizes = launch(workload, self.config).sizes
        return KernelCase(
            name=str(self.config),
            spec=self.spec,
            problem=workload.single.problem,
            swizzle=sizes["swizzle"],
            split_k=sizes["split_k"],
            raster=sizes["raster"],
        )

    def boundary(self, index: int) -> Workload:
        """One of those that it is checked on before it ships: ragged, small, or persistent."""
        workload = boundaries(self.workload, self.config, SM90A)[index]
        assert not violations(workload, self.config, SM90A)
        return workload

    def persistent(self, arch: Arch) -> Workload:
        """Several tiles for each threadblock on a whole device of `arch`."""
        small = self.boundary(2).single
        rows = 3 * arch.sm_count * self.config.threadblock.m + 1
        return Workload.of(with_rows(small.problem, rows), small.epilogue)


def _every_load() -> ElementwiseGraph:
    """relu(acc + bias) * column + residual, with an FP32 column."""
    graph = ElementwiseBuilder()
    biased = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW))
    scaled = graph.binary(
        BinaryOp.MULTIPLY,
        graph.unary(UnaryOp.RELU, biased),
        graph.load(LoadKind.COLUMN, DType.F32),
    )
    graph.binary(BinaryOp.ADD, scaled, graph.load(LoadKind.TENSOR))
    return graph.build()


def _bias_gelu() -> ElementwiseGraph:
    graph = ElementwiseBuilder()
    biased = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW, DType.F32))
    graph.unary(UnaryOp.GELU_TANH, biased)
    return graph.build()


_STREAM_K = WgmmaKernel(
    config=Cutlass3Config(
        threadblock=Shape(256, 192, 64),
        schedule=Schedule.COOPERATIVE,
        cluster_m=2,
        scheduler=Scheduler.STREAM_K,
    ),
    epilogue=_bias_gelu(),
    problem=replace(GEMM, batch=2),
)


# Both schedules, clusters of one, two and four, both orders of B, both types of D, batches, the
# largest tile that the registers hold, both rasters; tiles that stream-K splits, and that have a
# number of slices; convolutions of both schedules, one of uneven strides, paddings and dilations.
KERNELS = {
    "pingpong": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64),
            schedule=Schedule.PINGPONG,
            cluster_m=2,
            swizzle=2,
            raster=Raster.ALONG_N,
        ),
        epilogue=_every_load(),
        problem=GEMM,
    ),
    "cooperative": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(256, 192, 64),
            schedule=Schedule.COOPERATIVE,
            cluster_m=2,
            cluster_n=2,
        ),
        epilogue=ElementwiseGraph(),
        problem=replace(GEMM, batch=3, b_layout=Layout.ROW),
    ),
    "alone": WgmmaKernel(
        config=Cutlass3Config(threadblock=Shape(128, 256, 64), schedule=Schedule.COOPERATIVE),
        epilogue=_bias_gelu(),
        problem=replace(GEMM, batch=3, out_dtype=DType.F32),
    ),
    "conv-pingpong": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(64, 128, 64), schedule=Schedule.PINGPONG, cluster_n=2
        ),
        epilogue=_every_load(),
        problem=CONV,
    ),
    "conv-cooperative": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64), schedule=Schedule.COOPERATIVE, cluster_m=2
        ),
        epilogue=_every_load(),
        problem=replace(
            CONV,
            stride=(2, 1),
            dilation=(1, 2),
            padding=(1, 2, 0, 3),
            out_dtype=DType.F32,
        ),
    ),
    "bf16": WgmmaKernel(
        config=Cutlass3Config(threadblock=Shape(128, 128, 64), schedule=Schedule.PINGPONG),
        epilogue=in_bf16(_every_load()),
        problem=replace(GEMM, in_dtype=DType.BF16, out_dtype=DType.BF16),
    ),
    "conv-bf16": WgmmaKernel(
        config=Cutlass3Config(threadblock=Shape(128, 64, 64), schedule=Schedule.COOPERATIVE),
        epilogue=_bias_gelu(),
        problem=replace(CONV, in_dtype=DType.BF16, out_dtype=DType.BF16),
    ),
    "stream-k": _STREAM_K,
    "stream-k-slices": replace(
        _STREAM_K, config=replace(_STREAM_K.config, raster=Raster.ALONG_N, split_k=4)
    ),
    "conv-stream-k": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64),
            schedule=Schedule.COOPERATIVE,
            cluster_n=2,
            scheduler=Scheduler.STREAM_K,
        ),
        epilogue=_every_load(),
        problem=CONV,
    ),
    # B by rows of 32 bytes of swizzle; wgmmas of widths that CUTLASS has to be asked for.
    "wide-rows": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(256, 176, 64), schedule=Schedule.COOPERATIVE, cluster_m=2
        ),
        epilogue=_every_load(),
        problem=replace(GEMM, b_layout=Layout.ROW),
    ),
    "narrow-rows": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(64, 112, 64), schedule=Schedule.PINGPONG, cluster_n=8
        ),
        epilogue=_bias_gelu(),
        problem=replace(GEMM, b_layout=Layout.ROW),
    ),
    "cluster-2x4": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 96, 64),
            schedule=Schedule.PINGPONG,
            cluster_m=2,
            cluster_n=4,
        ),
        epilogue=_every_load(),
        problem=GEMM,
    ),
    "cluster-4x2": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 224, 64),
            schedule=Schedule.COOPERATIVE,
            cluster_m=4,
            cluster_n=2,
        ),
        epilogue=_every_load(),
        problem=replace(GEMM, out_dtype=DType.F32),
    ),
    "wide-stream-k": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 160, 64),
            schedule=Schedule.COOPERATIVE,
            cluster_m=2,
            scheduler=Scheduler.STREAM_K,
        ),
        epilogue=_bias_gelu(),
        problem=replace(GEMM, b_layout=Layout.ROW),
    ),
    # CUTLASS fills shared memory to the last stage.
    "fullest": WgmmaKernel(
        config=Cutlass3Config(threadblock=Shape(128, 208, 64), schedule=Schedule.COOPERATIVE),
        epilogue=ElementwiseGraph(),
        problem=replace(GEMM, out_dtype=DType.F32),
    ),
    "narrowest": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(64, 16, 64), schedule=Schedule.PINGPONG, cluster_m=2, cluster_n=4
        ),
        epilogue=_every_load(),
        problem=replace(GEMM, b_layout=Layout.ROW, out_dtype=DType.F32),
    ),
    "conv-narrow": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 48, 64), schedule=Schedule.COOPERATIVE, cluster_m=2
        ),
        epilogue=_every_load(),
        problem=CONV,
    ),
}


def launches(arch: Arch) -> Iterator[tuple[str, WgmmaKernel, Workload]]:
    """What the kernels are executed on where all of a device of `arch` is at hand."""
    for name, kernel in KERNELS.items():
        yield f"{name}-ragged", kernel, kernel.boundary(0)
        yield f"{name}-small", kernel, kernel.boundary(1)
        yield f"{name}-persistent", kernel, kernel.persistent(arch)
