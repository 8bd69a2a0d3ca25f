"""Kernels of the family `b2b_sm90` that tests execute, and what they are executed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.cases.chains import ChainCase, conv_chain, gemm_chain
from boltgen.arch import Arch, arch_named
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.boundary import of_rows
from boltgen.families.chain.traits import Residence
from boltgen.families.registry import boundaries, kernel_spec, violations
from boltgen.ir.dtypes import Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload

SM90A = arch_named("sm_90a")
BIAS_RELU = ("bias_relu", "bias_relu")
CONV = Conv2d(n=2, h=14, w=14, c=512, k=64, r=3, s=3, padding=(1, 1, 1, 1))
_RF, _SMEM = Residence.REGISTERS, Residence.SHARED_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSm90Kernel:
    """A kernel, and the workload that it is made for."""

    config: B2bSm90Config
    workload: Workload
    batched_operands: bool = False

    def boundary(self, index: int) -> Workload:
        """One of those that it is checked on before it ships: ragged, small, or persistent."""
        workload = boundaries(self.workload, self.config, SM90A)[index]
        assert not violations(workload, self.config, SM90A)
        return workload

    def persistent(self, arch: Arch) -> Workload:
        """Several tiles for each threadblock on a whole device of `arch`."""
        return of_rows(self.boundary(2), 2 * arch.sm_count * self.config.threadblock_m + 1)

    def case(self, name: str, workload: Workload) -> ChainCase:
        """The kernel on a workload that it computes."""
        return ChainCase(
            name=name,
            spec=kernel_spec(self.workload, self.config, SM90A.name),
            chain=workload,
            batched_operands=self.batched_operands,
        )


def _kernel(
    rows: int, residence: Residence, columns: tuple[int, ...], workload: Workload
) -> ChainSm90Kernel:
    config = B2bSm90Config(threadblock_m=rows, columns=columns, residence=residence)
    return ChainSm90Kernel(config=config, workload=workload, batched_operands=workload.batch > 1)


# One and two warpgroups below each other and two side by side, both orders of B, two to four
# layers, K that is no whole step, every kind of operand, batches, an output of odd columns and in
# FP32, the widest tile of each residence; convolutions, one of uneven strides, paddings and
# dilations.
KERNELS = {
    "rf": _kernel(
        128, _RF, (64, 64), gemm_chain(512, 512, (64, 40), ("bias_relu", "residual_before"))
    ),
    "rf-three": _kernel(
        64,
        _RF,
        (32, 96, 16),
        gemm_chain(
            512, 72, (24, 96, 8), ("per_channel", "columns", "bias_silu"), b_layout=Layout.ROW
        ),
    ),
    "rf-wide": _kernel(
        128,
        _RF,
        (256, 256),
        gemm_chain(512, 512, (256, 255), ("residual_before", "bias_relu"), dtypes="f32_f32"),
    ),
    "smem": _kernel(
        64,
        _SMEM,
        (512, 384),
        gemm_chain(512, 512, (400, 384), ("bias_relu", "two_tensors"), b_layout=Layout.ROW),
    ),
    "smem-four": _kernel(
        64,
        _SMEM,
        (32, 128, 64, 192),
        gemm_chain(
            512,
            72,
            (32, 104, 48, 136),
            ("residual_before", "columns", "bias_silu", "per_channel"),
            batch=3,
        ),
    ),
    "conv-rf": _kernel(
        128,
        _RF,
        (64, 32),
        conv_chain(
            replace(CONV, stride=(2, 1), dilation=(1, 2), padding=(1, 2, 0, 3)), (32,), BIAS_RELU
        ),
    ),
    "conv-smem": _kernel(
        64, _SMEM, (64, 32), conv_chain(CONV, (32,), ("bias_relu", "residual_before"))
    ),
}


def launches(arch: Arch) -> Iterator[ChainCase]:
    """What the kernels are executed on where all of a device of `arch` is at hand."""
    for name, kernel in KERNELS.items():
        yield kernel.case(f"wgmma-{name}-ragged", kernel.boundary(0))
        yield kernel.case(f"wgmma-{name}-small", kernel.boundary(1))
        yield kernel.case(f"wgmma-{name}-persistent", kernel.persistent(arch))
