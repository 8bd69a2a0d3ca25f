"""Attention kernels that tests execute, and the workloads that they are executed on."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.cases.chains import ChainCase
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.registry import kernel_spec
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import SOFTMAX, BinaryOp, ElementwiseGraph, LoadKind, local_softmax
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload


def attention(
    m: int,
    n: int,
    k: int,
    columns: int,
    *,
    batch: int = 1,
    scores: ElementwiseGraph | None = None,
    output: ElementwiseGraph | None = None,
    layouts: tuple[Layout, Layout] = (Layout.COLUMN, Layout.ROW),
    in_dtype: DType = DType.F16,
    out_dtype: DType = DType.F16,
    shared: str = "",
    causal: bool = False,
    window: int = 0,
) -> Workload:
    """softmax(scores(Q K)) V; `shared` names those of Q ("a"), K ("k") and V ("v") that all of the
    batch share.
    """
    first = Gemm(
        m=m,
        n=n,
        k=k,
        batch=batch,
        b_layout=layouts[0],
        a_batched="a" not in shared,
        b_batched="k" not in shared,
        in_dtype=in_dtype,
        out_dtype=DType.F32,
    )
    second = Gemm(
        m=m,
        n=columns,
        k=n,
        batch=batch,
        b_layout=layouts[1],
        b_batched="v" not in shared,
        in_dtype=in_dtype,
        out_dtype=out_dtype,
    )
    plain, softmax = ElementwiseGraph(), local_softmax(window) if causal else SOFTMAX
    return Workload(
        layers=(
            Layer(problem=first, epilogue=scores or plain),
            Layer(problem=second, epilogue=output or plain, prologue=softmax),
        )
    )


def scaled(k: int, *masks: LoadKind, dtype: DType = DType.F16) -> ElementwiseGraph:
    """Scores over the root of `k`, and masks added to them."""
    graph = ElementwiseBuilder()
    x = graph.binary(BinaryOp.MULTIPLY, 0, graph.scalar(k**-0.5))
    for mask in masks:
        x = graph.binary(BinaryOp.ADD, x, graph.load(mask, dtype))
    return graph.build()


def relu_and_residual() -> ElementwiseGraph:
    """Compute ReLU of the output, and add a tensor to it."""
    graph = ElementwiseBuilder()
    relu = graph.unary(UnaryOp.RELU, 0)
    graph.binary(BinaryOp.ADD, relu, graph.load(LoadKind.TENSOR))
    return graph.build()


def tile(
    rows: int,
    keys: int,
    depth: int,
    columns: int,
    *,
    warps: int = 4,
    stages: int = 2,
    splits: int = 1,
    key_warps: int = 1,
) -> AttentionConfig:
    """A configuration, shortly."""
    return AttentionConfig(
        rows=rows,
        keys=keys,
        depth=depth,
        columns=columns,
        warps=warps,
        stages=stages,
        splits=splits,
        key_warps=key_warps,
    )


_TENSOR, _ROW, _COLUMN = LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN

# By what they exercise: a kernel, and a workload that it is made for.
KERNELS: Mapping[str, tuple[str, AttentionConfig, Workload]] = {
    "plain": (
        "sm_80",
        tile(64, 64, 64, 64),
        attention(200, 168, 64, 64, batch=3, scores=scaled(64)),
    ),
    "masked": (
        "sm_80",
        tile(64, 32, 64, 64, stages=3, key_warps=2),
        attention(150, 130, 64, 48, batch=2, scores=scaled(64, _TENSOR, _ROW, _COLUMN)),
    ),
    "wide": (
        "sm_80",
        tile(128, 32, 256, 128, warps=8),
        attention(129, 70, 256, 128, scores=scaled(256, _ROW, dtype=DType.F32)),
    ),
    "two-fragments": (
        "sm_80",
        tile(128, 64, 80, 96, warps=8, key_warps=2),
        attention(
            130,
            136,
            80,
            88,
            batch=2,
            layouts=(Layout.ROW, Layout.COLUMN),
            output=relu_and_residual(),
            out_dtype=DType.F32,
        ),
    ),
    "narrow-vectors": (
        "sm_80",
        tile(64, 64, 16, 32),
        attention(70, 67, 9, 23, batch=2, scores=scaled(9, _TENSOR)),
    ),
    "shared": (
        "sm_80",
        tile(64, 128, 32, 32),
        attention(65, 264, 32, 32, batch=3, scores=scaled(32), shared="ak"),
    ),
    "causal": (
        "sm_80",
        tile(64, 32, 64, 64, stages=3),
        attention(230, 264, 64, 64, batch=2, scores=scaled(64, _ROW), causal=True),
    ),
    "bf16": (
        "sm_80",
        tile(128, 64, 32, 48),
        attention(
            100,
            136,
            32,
            40,
            batch=2,
            scores=scaled(32, _TENSOR, dtype=DType.BF16),
            in_dtype=DType.BF16,
            out_dtype=DType.BF16,
        ),
    ),
    "local": (
        "sm_80",
        tile(64, 32, 64, 64, splits=2),
        attention(230, 394, 64, 64, batch=2, scores=scaled(64, _ROW), causal=True, window=100),
    ),
    "split": (
        "sm_80",
        tile(64, 32, 64, 64, stages=3, splits=8),
        attention(
            5,
            515,
            64,
            48,
            batch=3,
            scores=scaled(64, _TENSOR, _ROW, _COLUMN),
            output=relu_and_residual(),
        ),
    ),
    "split-causal": (
        "sm_75",
        tile(128, 64, 64, 64, splits=3),
        attention(70, 520, 64, 64, batch=2, scores=scaled(64), causal=True),
    ),
    "sm75": (
        "sm_75",
        tile(64, 64, 64, 64, key_warps=2),
        attention(100, 136, 64, 64, batch=2, scores=scaled(64, _TENSOR)),
    ),
}


def attention_case(name: str, workload: Workload, *, batched_operands: bool = False) -> ChainCase:
    """A launch of the named kernel, which must be the one that computes `workload`."""
    arch, config, made_for = KERNELS[name]
    spec = kernel_spec(workload, config, arch)
    assert spec == kernel_spec(made_for, config, arch)
    return ChainCase(name=name, spec=spec, chain=workload, batched_operands=batched_operands)


def golden_attention_specs() -> dict[str, KernelSpec]:
    """Attention kernels whose text is recorded in `tests/golden`, by file name."""
    return {"attention_sm80": attention_case("masked", KERNELS["masked"][2]).spec}
