"""Kernels of the family `attention_sm90` that tests execute, and what they are executed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.cases.attention import attention, relu_and_residual, scaled
from benchmarks.cases.chains import ChainCase
from boltgen.arch import Arch, arch_named
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.registry import boundaries, kernel_spec
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.workload import Workload

SM90A = arch_named("sm_90a")
_TENSOR, _ROW, _COLUMN = LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN


def tile(rows: int, keys: int, depth: int, columns: int) -> AttentionSm90Config:
    """A configuration, shortly."""
    return AttentionSm90Config(rows=rows, keys=keys, depth=depth, columns=columns)


# By what they exercise: one to three warpgroups that multiply, both orders of K and V, every kind
# of mask, unequal heads and those that no swizzle of 128 bytes holds, the widest and the narrowest.
KERNELS: Mapping[str, tuple[AttentionSm90Config, Workload]] = {
    "plain": (tile(128, 128, 64, 64), attention(300, 330, 64, 64, batch=3, scores=scaled(64))),
    "masked": (
        tile(64, 64, 128, 64),
        attention(150, 130, 128, 48, batch=2, scores=scaled(128, _TENSOR, _ROW, _COLUMN)),
    ),
    "wide": (
        tile(128, 64, 256, 256),
        attention(129, 200, 256, 256, scores=scaled(256, _COLUMN, dtype=DType.F32)),
    ),
    "turned": (
        tile(128, 96, 96, 192),
        attention(
            130,
            136,
            80,
            184,
            batch=2,
            layouts=(Layout.ROW, Layout.COLUMN),
            output=relu_and_residual(),
            out_dtype=DType.F32,
        ),
    ),
    "shared": (
        tile(64, 192, 32, 32),
        attention(65, 400, 32, 32, batch=3, scores=scaled(32), shared="ak"),
    ),
    "causal": (
        tile(128, 128, 128, 128),
        attention(330, 392, 128, 128, batch=2, scores=scaled(128, _ROW), causal=True),
    ),
    "local": (
        tile(128, 64, 64, 64),
        attention(330, 520, 64, 64, batch=2, scores=scaled(64), causal=True, window=150),
    ),
    "three": (
        tile(192, 128, 64, 64),
        attention(390, 470, 64, 64, batch=2, scores=scaled(64), causal=True),
    ),
    "three-masked": (
        tile(192, 64, 64, 64),
        attention(200, 330, 64, 64, batch=2, scores=scaled(64, _ROW)),
    ),
    "bf16": (
        tile(128, 128, 64, 96),
        attention(
            200,
            136,
            64,
            72,
            batch=2,
            scores=scaled(64, _TENSOR, dtype=DType.BF16),
            in_dtype=DType.BF16,
            out_dtype=DType.BF16,
        ),
    ),
}


def attention_sm90_case(
    name: str, workload: Workload, *, batched_operands: bool = False, label: str = ""
) -> ChainCase:
    """A launch of the named kernel, which must be the one that computes `workload`."""
    config, made_for = KERNELS[name]
    spec = kernel_spec(workload, config, SM90A.name)
    assert spec == kernel_spec(made_for, config, SM90A.name)
    return ChainCase(
        name=label or name, spec=spec, chain=workload, batched_operands=batched_operands
    )


def launches(arch: Arch) -> Iterator[ChainCase]:
    """What the kernels are executed on where a device of `arch` is at hand: their boundaries."""
    for name, (config, workload) in KERNELS.items():
        edges = zip(
            ("large", "small", "persistent"), boundaries(workload, config, arch), strict=True
        )
        for edge, sized in edges:
            yield attention_sm90_case(name, sized, label=f"wgmma-attention-{name}-{edge}")


def golden_attention_sm90_specs() -> dict[str, KernelSpec]:
    """Attention kernels whose text is recorded in `tests/golden`, by file name."""
    return {"attention_sm90a": attention_sm90_case("masked", KERNELS["masked"][1]).spec}
