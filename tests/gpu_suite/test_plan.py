"""What the plan has, and in which order, without compiling it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cases import attention_sm90 as attention_sm90_cases
from benchmarks.cases import chains_sm90 as chain_sm90_cases
from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import BLACKWELL, all_cases
from benchmarks.cases.wgmma import launches
from benchmarks.gpu import shapes
from benchmarks.gpu.items import (
    Attend,
    Check,
    Overlap,
    Padding,
    Race,
    Sanitized,
    WholeModel,
    key_of,
    needs_of,
    read_items,
    write_items,
)
from benchmarks.gpu.paper import figures
from benchmarks.gpu.plan import Part, fastest, full_plan, sweep_plan
from benchmarks.gpu.wanted import Wanted, races, spaces
from benchmarks.record import ROOT
from boltgen.arch import arch_named
from boltgen.families.registry import FAMILIES, compiled
from boltgen.families.skinny.legality import MOST_ROWS
from boltgen.families.source import kernel_symbol
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Workload


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    return Wanted(arch_named("sm_90a"))


@pytest.fixture(scope="module")
def plan(wanted: Wanted) -> tuple[Part, ...]:
    return full_plan(wanted)


@pytest.fixture(scope="module")
def items(plan: tuple[Part, ...]):
    return [item for part in plan for item in part.items]


@pytest.mark.parametrize("arch", [BLACKWELL[0], BLACKWELL[-1]])
def test_every_kernel_of_a_plan_for_blackwell_is_one_of_its(arch: str) -> None:
    wanted = Wanted(arch_named(arch))
    sections = {item.section for part in full_plan(wanted) for item in part.items}
    assert {"check", "gemm", "attention", "conv", "b2b", "tune"} <= sections
    assert {spec.arch for spec in wanted.specs.values()} == {arch}


def test_items_have_names_of_their_own(items):
    keys = [key_of(item) for item in items]
    assert len(set(keys)) == len(keys)
    assert all(key.count("/") == 1 for key in keys)  # a name is also a file's


def test_the_most_valuable_comes_first(plan):
    assert [(part.title, len(part.items)) for part in plan[:-1]] == [
        ("may compilers run meanwhile", 1),
        ("every kernel family is right", len([*FAMILIES]) + 2),
        ("suspected faults of CUTLASS", 7),
        ("GEMM against cuBLAS", 20),
        ("attention against PyTorch", 17),
        ("whole models", 2),
        ("convolution against cuDNN", 24),
    ]
    assert {item.section for item in plan[-1].items} == {
        *("epilogue", "b2b", "padding", "gemm", "tune", "models", "check"),
        *("depthwise", "groups", "recurrent"),
    }
    assert type(plan[0].items[0]) is Overlap
    assert len(needs_of(plan[0].items[0])) == 1  # compiled in seconds


def test_every_kernel_family_is_checked_first(plan, wanted: Wanted):
    checked = [item for item in plan[1].items if isinstance(item, Check)]
    (padding,) = [item for item in plan[1].items if isinstance(item, Padding)]
    symbols = [padding.move, *(symbol for item in checked for symbol in needs_of(item))]
    families = [wanted.specs[symbol].family for symbol in symbols]
    assert sorted(families) == sorted(family.name for family in FAMILIES)
    sanitized = [item for item in plan[1].items if isinstance(item, Sanitized)]
    assert [item.tool for item in sanitized] == ["memcheck", "racecheck"]
    assert {item.keys for item in sanitized} == {tuple(map(key_of, checked))}


def test_all_that_an_item_launches_is_in_the_bundle(wanted: Wanted, items):
    there = wanted.specs.keys() | wanted.programs.keys()
    for item in items:
        if not isinstance(item, WholeModel):
            assert needs_of(item)
            assert set(needs_of(item)) <= there, key_of(item)


def test_kernels_are_asked_for_in_the_order_of_the_plan(wanted: Wanted, items):
    """Which is that of compiling: a later item adds no kernel before an earlier one's."""
    asked = dict.fromkeys(symbol for item in items for symbol in needs_of(item))
    assert wanted.specs.keys() <= asked.keys()


def test_a_product_has_the_likeliest_kernels_of_each_family(wanted: Wanted, items):
    for item in items:
        if isinstance(item, Race):
            kernels: dict[str, set[object]] = {}
            for choice in item.product.choices:
                kernels.setdefault(choice.config.family, set()).add(compiled(choice.config))
            assert kernels
            for family, found in kernels.items():
                assert len(found) <= (9 if len(kernels) == 1 or family == "cutlass3" else 3)
            if item.section == "gemm" and item.problem.alignment_a == 8 == item.problem.alignment_d:
                few = {"skinny"} if item.problem.gemm.m <= MOST_ROWS else set()
                assert kernels.keys() == {"cutlass2", "cutlass3"} | few, item.name


def test_attention_is_that_of_pytorch(items):
    """The workload of an item, by the oracle, beside the textbook's formula."""
    np = pytest.importorskip("numpy")
    rng = np.random.default_rng(7)
    for is_causal in (False, True):
        shape = shapes.AttentionShape(heads=2, rows=9, keys=9, depth=16, is_causal=is_causal)
        q, k, v = (rng.standard_normal((2, 9, 16)).astype(np.float16) for _ in range(3))
        inputs = [LayerInputs(k, ()), LayerInputs(v, ())]
        found = enclose(shape.workload, q, inputs)
        scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / 4.0
        scores[:, np.triu(np.ones((9, 9)), 1) * is_causal > 0] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v.astype(float)
        assert (found.low <= expected).all()
        assert (expected <= found.high).all()
    bert, *others = (item for item in items if type(item) is Attend)
    assert (bert.heads, bert.rows, bert.depth) == (32 * 12, 40, 64)
    assert all(item.heads * item.rows * item.depth == 1 << 25 for item in others)


def test_every_case_that_runs_on_the_arch_is_checked(items):
    """Each kernel with each workload; operands of a batch are as the measuring lays them out."""
    arch = arch_named("sm_90a")
    checked = {
        (choice.kernel, item.product.workload, choice.config)
        for item in items
        if isinstance(item, Check)
        for choice in item.product.choices
    }
    cases = [
        (
            case.spec,
            Workload.of(case.problem, case.epilogue),
            replace(case.spec.config, swizzle=case.swizzle, split_k=case.split_k),
        )
        for case in all_cases()
    ]
    cases += [(case.spec, case.chain, case.spec.config) for case in all_chain_cases()]
    runs = (
        {
            (kernel_symbol(kernel.spec), workload, kernel.config)
            for _, kernel, workload in launches(arch)
        }
        | {
            (kernel_symbol(case.spec), case.chain, case.spec.config)
            for of_family in (chain_sm90_cases, attention_sm90_cases)
            for case in of_family.launches(arch)
        }
        | {
            (kernel_symbol(replace(spec, arch=arch.name)), workload, config)
            for spec, workload, config in cases
            if spec.config.instruction == Shape(*arch.mma_shapes[0])
            if spec.arch in ("sm_80", "sm_90")
        }
    )
    assert len(runs) > 150
    assert runs <= checked


def test_section_tune_has_the_kernels_that_are_compiled_anyway():
    wanted, problem = Wanted(arch_named("sm_90a")), shapes.gemm(1280, 768, 768)
    assert spaces(wanted, {"one": problem}) == []
    assert list(races(wanted, "gemm", {"other": shapes.gemm(4096, 4096, 4096)}))
    before = set(wanted.specs)
    (space,) = spaces(wanted, {"one": problem})
    kernels = [choice.kernel for choice in space.product.choices]
    assert len(set(kernels)) == len(kernels) > 3
    assert set(kernels) <= before == set(wanted.specs)


def test_every_ratio_of_the_papers_has_an_item(items):
    keys = {key_of(item) for item in items}
    assert {figure["item"] for figure in figures()} <= keys


def test_items_are_read_as_they_were_written(items, tmp_path: Path):
    write_items(tmp_path / "items.json", tuple(items))
    assert read_items(tmp_path / "items.json") == tuple(items)


def test_a_sweep_races_many_kernels_and_the_fastest_that_was_measured() -> None:
    wanted = Wanted(arch_named("sm_90a"))
    recorded = sorted((ROOT / "benchmarks" / "recorded").glob("*/*.jsonl.gz"))
    (part,) = sweep_plan(wanted, ["512x11008x4096", "512x11008x4096-row"], recorded)
    assert [key_of(item) for item in part.items] == [
        "gemm/512x11008x4096",
        "gemm/512x11008x4096-row",
    ]
    measured = fastest(recorded, wanted.arch)
    for item, layout in zip(part.items, (Layout.COLUMN, Layout.ROW), strict=True):
        assert isinstance(item, Race)
        assert item.problem == Gemm(m=512, n=11008, k=4096, b_layout=layout)
        configs = [choice.config for choice in item.product.choices]
        column = Workload.of(replace(item.problem, b_layout=Layout.COLUMN))
        assert measured[column] in configs
        kernels = {compiled(config) for config in configs}
        assert len(kernels) == 10
        assert Shape(256, 176, 64) in {config.threadblock for config in kernels}


@pytest.mark.parametrize("name", ["512x4096", "512x0x64", "512x64x64-column", "512x64x64-row2"])
def test_a_sweep_of_no_gemm_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' names no GEMM: give MxNxK or MxNxK-row"):
        sweep_plan(Wanted(arch_named("sm_90a")), [name], [])
