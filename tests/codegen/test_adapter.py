from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.codegen.adapter import AdapterLaunch, render_adapter
from boltgen.errors import InvalidProblemError
from boltgen.families.registry import kernel_spec
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.region import Convention, Operand, Region
from boltgen.settings import settings_from
from tests.cases import CONFIGS, EPILOGUES
from tests.codegen.test_cpp_text import NASTY

EPILOGUE = EPILOGUES["residual_before"]
POINTWISE = Conv2d(n=2, h=8, w=7, c=16, k=24, r=1, s=1)


def launch(
    problem: Problem,
    executed: Problem | None = None,
    symbol: str = "region_0",
    label: str = "conv2d",
) -> AdapterLaunch:
    executed = executed or problem
    spec = kernel_spec(executed, EPILOGUE, CONFIGS["sm80_small"][1], "sm_80")
    region = Region(
        symbol=symbol,
        label=label,
        problem=problem,
        epilogue=EPILOGUE,
        parameter_count=4,
        a=1,
        b=0,
        operands=(Operand(parameter=2), Operand(parameter=3)),
    )
    return AdapterLaunch(region=region, problem=executed, spec=spec, split_k=1)


def pointwise_launch() -> AdapterLaunch:
    return launch(POINTWISE, Gemm(m=112, n=24, k=16, b_layout=Layout.COLUMN))


def test_golden_text(golden: object) -> None:
    padded = Conv2d(n=1, h=9, w=9, c=16, k=16, r=3, s=3, padding=(1, 1, 1, 1), stride=(2, 2))
    batched = Gemm(batch=6, m=20, n=32, k=16, b_batched=False)
    launches = [
        pointwise_launch(),
        replace(launch(padded, symbol="region_1", label="conv + relu"), swizzle=2, split_k=4),
        launch(batched, symbol="region_2", label="matmul + add + add + relu"),
    ]
    golden("relax_adapter.cc.txt", render_adapter(launches))  # type: ignore[operator]
    relay = render_adapter(launches, Convention.RELAY)
    golden("relay_adapter.cc.txt", relay)  # type: ignore[operator]


def test_a_pointwise_convolution_runs_as_a_product_but_has_the_models_shapes() -> None:
    text = render_adapter([pointwise_launch()])
    assert "args.m = 112;" in text
    assert 'call.data(p1, 1, "A", kFloat16, {2, 8, 7, 16}, Rank::kExact)' in text
    assert 'call.data(p0, 0, "B", kFloat16, {24, 1, 1, 16}, Rank::kExact)' in text
    assert 'call.data(output, 4, "D", kFloat16, {2, 8, 7, 24}, Rank::kExact)' in text


def test_two_regions_share_one_declaration() -> None:
    first, second = pointwise_launch(), pointwise_launch()
    second = replace(second, region=replace(second.region, symbol="region_1"))
    text = render_adapter([first, second])
    assert text.count(f"int {kernel_symbol(first.spec)}(\n") == 1
    assert len(re.findall("BOLTGEN_EXPORT", text)) == 2


def _without_text(source: str) -> str:
    """Generated code without its comments and string literals."""
    lines = [line for line in source.splitlines() if not line.startswith("//")]
    return re.sub(r'"[^"\n]*"', '""', "\n".join(lines))


@given(st.text())
@settings(max_examples=50)
def test_no_label_changes_the_code(label: str) -> None:
    plain = render_adapter([launch(POINTWISE)])
    assert _without_text(render_adapter([launch(POINTWISE, label=label)])) == _without_text(plain)


def test_adapters_with_nasty_labels_compile() -> None:
    launches = [launch(POINTWISE, symbol=f"r{i}", label=text) for i, text in enumerate(NASTY)]
    chosen = settings_from()
    unit = adapter_unit("nasty", render_adapter(launches), find_toolchain(chosen))
    outcome = compile_unit(unit, Cache(chosen.cache_dir))
    assert isinstance(outcome, CompiledObject), outcome.message
    content = outcome.path.read_bytes()
    for text in NASTY:
        assert " ".join(text.split()).encode("utf-8", errors="replace") in content


@pytest.mark.parametrize("symbol", ["a b", 'x"y', "1st", "f();"])
def test_a_symbol_that_is_no_identifier_is_refused(symbol: str) -> None:
    with pytest.raises(InvalidProblemError, match="cannot be a C symbol"):
        launch(POINTWISE, symbol=symbol)


def test_two_regions_with_one_symbol_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="regions with one symbol: region_0"):
        render_adapter([pointwise_launch(), pointwise_launch()])


def test_a_kernel_of_another_family_is_refused() -> None:
    good = launch(POINTWISE)
    with pytest.raises(InvalidProblemError, match=r"a conv2d kernel cannot compute Gemm\(m=1"):
        replace(good, problem=Gemm(m=112, n=24, k=16))


def test_a_kernel_with_another_epilogue_is_refused() -> None:
    good = launch(POINTWISE)
    spec = replace(good.spec, epilogue=EPILOGUES["bias_relu"])
    with pytest.raises(InvalidProblemError, match=r"relu\(add\(acc, row0\)\) is not the"):
        replace(good, spec=spec)


def test_missing_operands_are_refused() -> None:
    good = launch(POINTWISE)
    region = replace(good.region, operands=good.region.operands[:1])
    with pytest.raises(InvalidProblemError, match="1 operands for the 2 loads"):
        replace(good, region=region)
    with pytest.raises(InvalidProblemError, match=r"roles \(9, 0, 2, 3\) are not all among"):
        replace(good, region=replace(good.region, a=9))
