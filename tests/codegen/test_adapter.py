from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cases.kernels import CONFIGS, EPILOGUES
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.codegen.adapter import RegionLaunch, render_adapter
from boltgen.codegen.adapter_memory import CallMemory
from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.region import Convention, LayerRoles, Operand, Region
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.codegen.region_launch import region_launch
from tests.codegen.test_cpp_text import NASTY

EPILOGUE = EPILOGUES["residual_before"]
POINTWISE = Conv2d(n=2, h=8, w=7, c=16, k=24, r=1, s=1)


def launch(
    problem: Problem, symbol: str = "region_0", label: str = "conv2d", **changes: int
) -> RegionLaunch:
    region = Region(
        symbol=symbol,
        label=label,
        workload=Workload.of(problem, EPILOGUE),
        parameter_count=4,
        a=1,
        layers=(LayerRoles(b=0, operands=(Operand(parameter=2), Operand(parameter=3))),),
    )
    return region_launch(region, replace(CONFIGS["sm80_small"][1], **changes))


def test_golden_text(golden: object) -> None:
    padded = Conv2d(n=1, h=9, w=9, c=16, k=16, r=3, s=3, padding=(1, 1, 1, 1), stride=(2, 2))
    batched = Gemm(batch=6, m=20, n=32, k=16, a_batched=False)
    launches = [
        launch(POINTWISE),
        launch(padded, symbol="region_1", label="conv + relu", swizzle=2, split_k=4),
        launch(batched, symbol="region_2", label="matmul + add + add + relu"),
    ]
    golden("relax_adapter.cc.txt", render_adapter(launches))  # type: ignore[operator]
    relay = render_adapter(launches, Convention.RELAY)
    golden("relay_adapter.cc.txt", relay)  # type: ignore[operator]


def test_a_pointwise_convolution_is_a_product_whose_rows_may_be_counted_in_several_dimensions() -> (
    None
):
    text = render_adapter([launch(POINTWISE)])
    assert "args.m = 112;" in text
    assert 'call.data(p1, 1, "A", kFloat16, {112, 16}, Rank::kMatrix)' in text
    assert 'call.data(p0, 0, "B", kFloat16, {24, 16}, Rank::kMatrix)' in text
    assert 'call.data(output, 4, "D", kFloat16, {112, 24}, Rank::kMatrix)' in text


@pytest.mark.parametrize("convention", Convention)
def test_further_results_are_tensors_between_d_and_the_workspace(convention: Convention) -> None:
    b = ElementwiseBuilder()
    b.store(b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    b.store(0, dtype=DType.F32)
    b.store(0, dtype=DType.F16)
    region = Region(
        symbol="region_0",
        label="matmul",
        workload=Workload.of(Gemm(batch=6, m=20, n=32, k=16), b.build()),
        parameter_count=3,
        a=0,
        layers=(LayerRoles(b=1, operands=(Operand(parameter=2),)),),
    )
    found = region_launch(region, CONFIGS["sm80_small"][1])
    found = replace(found, memory=CallMemory(workspace_bytes=256))
    text = " ".join(render_adapter([found], convention).split())
    names = ("p2", "output", "result1", "result2", "workspace")
    assert ", ".join(f"TensorView const& {name}" for name in names) in text
    for index, dtype in ((1, "kFloat32"), (2, "kFloat16")):
        name = f"result{index}"
        checked = f'call.data({name}, {3 + index}, "{name}", {dtype}, {{6, 20, 32}}, Rank::kMatrix)'
        assert f"args.operands[{index}].pointer = call.result({checked});" in text
        assert f"args.operands[{index}].ld = 32;" in text
        assert f"args.operands[{index}].batch_stride = 640;" in text


def test_two_regions_share_one_declaration() -> None:
    first, second = launch(POINTWISE), launch(POINTWISE, symbol="region_1")
    text = render_adapter([first, second])
    assert text.count(f"int {first.kernels[0]}(\n") == 1
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
        render_adapter([launch(POINTWISE), launch(POINTWISE)])


def test_missing_operands_are_refused() -> None:
    region = launch(POINTWISE).region
    (roles,) = region.layers
    with pytest.raises(InvalidProblemError, match="layer 0 has 1 operands for the 2 loads"):
        replace(region, layers=(replace(roles, operands=roles.operands[:1]),))
    with pytest.raises(InvalidProblemError, match=r"roles \(9, 0, 2, 3\) are not all among its 4"):
        replace(region, a=9)
