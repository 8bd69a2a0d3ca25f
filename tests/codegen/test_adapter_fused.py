"""Regions of several layers: their adapters' text, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.cases.chains import B2B_CONFIGS, conv_chain, gemm_chain
from boltgen.codegen.adapter import RegionLaunch, render_adapter
from boltgen.errors import InvalidProblemError
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.region import Convention, LayerRoles, Operand, Region
from boltgen.problems.workload import Workload
from tests.codegen.region_launch import region_launch

CONFIG = B2B_CONFIGS["smem"][1]
EPILOGUES = ("residual_before", "bias_relu")
CONV = Conv2d(n=1, h=9, w=7, c=24, k=40, r=3, s=3, padding=(1, 1, 1, 1))
CHAINS = {
    "conv": conv_chain(CONV, (56,), EPILOGUES),
    "pointwise": conv_chain(replace(CONV, r=1, s=1, padding=(0, 0, 0, 0)), (56,), EPILOGUES),
    "batched": gemm_chain(70, 48, (40, 56), EPILOGUES, batch=3, b_batched=(False, True)),
}


def chain_launch(symbol: str, chain: Workload, *, batched_residual: bool = False) -> RegionLaunch:
    """A region with the parameters: weight, activation, bias, residual; weight, bias."""
    residual = Operand(parameter=3, batched=batched_residual)
    region = Region(
        symbol=symbol,
        label=f'{symbol} "quoted" */ \n',
        workload=chain,
        parameter_count=6,
        a=1,
        layers=(
            LayerRoles(b=0, operands=(Operand(parameter=2), residual)),
            LayerRoles(b=4, operands=(Operand(parameter=5),)),
        ),
    )
    return region_launch(region, CONFIG)


def all_launches() -> list[RegionLaunch]:
    """A convolution, pointwise ones that are products, and batched products."""
    return [
        chain_launch(name, chain, batched_residual=name == "batched")
        for name, chain in CHAINS.items()
    ]


@pytest.mark.parametrize("convention", Convention)
def test_golden_text(golden: Callable[[str, str], None], convention: Convention) -> None:
    text = render_adapter(all_launches(), convention)
    golden(f"{convention.value}_chain_adapter.cc.txt", text)


def test_rows_of_matrices_may_be_counted_in_several_dimensions() -> None:
    text = render_adapter([chain_launch("pointwise", CHAINS["pointwise"])])
    for expected in (
        "boltgen_gemm_chain_args args{};",
        "args.m = 63;",
        "args.layers[1].ldb = 40;",
        'call.data(p1, 1, "A", kFloat16, {63, 24}, Rank::kMatrix)',
        'call.data(p4, 4, "layer 1 B", kFloat16, {56, 40}, Rank::kMatrix)',
        'call.data(p3, 3, "layer 0 epilogue operand tensor0", kFloat16, {63, 40}, Rank::kMatrix)',
        'call.data(output, 6, "D", kFloat16, {63, 56}, Rank::kMatrix)',
    ):
        assert expected in text


def test_a_layer_after_a_convolution_is_a_matrix() -> None:
    text = render_adapter([chain_launch("conv", CHAINS["conv"])])
    for expected in (
        "boltgen_conv2d_chain_args args{};",
        "args.p = 9;",
        "args.layers[0].ldb = 216;",
        'call.data(p1, 1, "A", kFloat16, {1, 9, 7, 24}, Rank::kExact)',
        'call.data(p0, 0, "layer 0 B", kFloat16, {40, 3, 3, 24}, Rank::kExact)',
        'call.data(p4, 4, "layer 1 B", kFloat16, {56, 40}, Rank::kMatrix)',
        'call.data(output, 6, "D", kFloat16, {63, 56}, Rank::kMatrix)',
    ):
        assert expected in text


def test_what_does_not_belong_together_is_refused() -> None:
    region = chain_launch("x", CHAINS["batched"]).region
    with pytest.raises(InvalidProblemError, match="layer 1 has 0 operands for the 1 loads"):
        replace(region, layers=(region.layers[0], replace(region.layers[1], operands=())))
    with pytest.raises(InvalidProblemError, match=r"roles \(9, 0, 2, 3, 4, 5\) are not all among"):
        replace(region, a=9)
    with pytest.raises(InvalidProblemError, match="x: roles of 1 layers for a workload of 2"):
        replace(region, layers=region.layers[:1])
    with pytest.raises(InvalidProblemError, match="cannot be a C symbol"):
        region_launch(replace(region, symbol="a b"), CONFIG)
