"""Regions that hold chains: their adapters' text, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from boltgen.codegen.adapter_chain import ChainAdapterLaunch

from boltgen.codegen.adapter import render_adapter
from boltgen.errors import InvalidProblemError
from boltgen.families.registry import kernel_spec
from boltgen.ir.dtypes import DType
from boltgen.ir.problem import Conv2d
from boltgen.ir.region import ChainRegion, Convention, LayerRoles, Operand
from boltgen.ir.workload import Workload, execution_chain
from tests.chain_cases import B2B_CONFIGS, conv_chain, gemm_chain

EPILOGUES = ("residual_before", "bias_relu")
CONV = Conv2d(n=1, h=9, w=7, c=24, k=40, r=3, s=3, padding=(1, 1, 1, 1))
CHAINS = {
    "conv": conv_chain(CONV, (56,), EPILOGUES),
    "pointwise": conv_chain(replace(CONV, r=1, s=1, padding=(0, 0, 0, 0)), (56,), EPILOGUES),
    "batched": gemm_chain(70, 48, (40, 56), EPILOGUES, batch=3, b_batched=False),
}


def chain_launch(
    symbol: str, chain: Workload, *, batched_residual: bool = False
) -> ChainAdapterLaunch:
    """A region with the parameters: weight, activation, bias, residual; weight, bias."""
    region = ChainRegion(
        symbol=symbol,
        label=f'{symbol} "quoted" */ \n',
        chain=chain,
        parameter_count=6,
        a=1,
        layers=(
            LayerRoles(
                b=0,
                operands=(Operand(parameter=2), Operand(parameter=3, batched=batched_residual)),
            ),
            LayerRoles(b=4, operands=(Operand(parameter=5),)),
        ),
    )
    executed = execution_chain(chain)
    spec = kernel_spec(executed, B2B_CONFIGS["smem"][1], "sm_80")
    return ChainAdapterLaunch(region=region, chain=executed, spec=spec)


def all_launches() -> list[ChainAdapterLaunch]:
    """A convolution, pointwise ones that run as products, and batched products."""
    return [
        chain_launch(name, chain, batched_residual=name == "batched")
        for name, chain in CHAINS.items()
    ]


@pytest.mark.parametrize("convention", Convention)
def test_golden_text(golden: Callable[[str, str], None], convention: Convention) -> None:
    text = render_adapter(all_launches(), convention)
    golden(f"{convention.value}_chain_adapter.cc.txt", text)


def test_shapes_are_the_models_and_sizes_the_kernels() -> None:
    text = render_adapter([chain_launch("pointwise", CHAINS["pointwise"])])
    for expected in (
        "boltgen_gemm_chain_args args{};",
        "args.m = 63;",
        "args.layers[1].ldb = 40;",
        'call.data(p1, 1, "A", kFloat16, {1, 9, 7, 24}, Rank::kExact)',
        'call.data(p4, 4, "layer 1 B", kFloat16, {56, 1, 1, 40}, Rank::kExact)',
        'call.data(p3, 3, "layer 0 epilogue operand tensor0", kFloat16, {63, 40}, Rank::kMatrix)',
        'call.data(output, 6, "D", kFloat16, {1, 9, 7, 56}, Rank::kExact)',
    ):
        assert expected in text


def test_a_region_may_sum_in_fp16() -> None:
    region = chain_launch("x", CHAINS["conv"]).region
    half = region.accumulating_in(DType.F16)
    assert {layer.problem.acc_dtype for layer in half.chain.layers} == {DType.F16}
    assert half.accumulating_in(DType.F32) == region


def test_what_does_not_belong_together_is_refused() -> None:
    good = chain_launch("x", CHAINS["conv"])
    with pytest.raises(InvalidProblemError, match="a b2b_conv2d kernel cannot compute Workload"):
        replace(good, chain=CHAINS["batched"])
    other = chain_launch("x", CHAINS["batched"])
    with pytest.raises(InvalidProblemError, match="x: the kernel's epilogues are not those of"):
        replace(good, spec=replace(good.spec, layers=good.spec.layers[::-1]))
    region = other.region
    few = replace(region, layers=(region.layers[0], replace(region.layers[1], operands=())))
    with pytest.raises(InvalidProblemError, match="layer 1 has 0 operands for the 1 loads"):
        replace(other, region=few)
    with pytest.raises(InvalidProblemError, match=r"roles \(9, 0, 2, 3, 4, 5\) are not all among"):
        replace(other, region=replace(region, a=9))
    with pytest.raises(InvalidProblemError, match="x: roles of 1 layers for a chain of 2"):
        replace(region, layers=region.layers[:1])
    with pytest.raises(InvalidProblemError, match="cannot be a C symbol"):
        replace(other, region=replace(region, symbol="a b"))
