"""What a whole bundle has, without compiling it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import shapes
from benchmarks.gpu.items import Check, Race, key_of, read_items, write_items
from benchmarks.gpu.paper import figures
from benchmarks.gpu.wanted import Wanted, full_items, spaces
from boltgen.arch import arch_named
from boltgen.families.family import Level
from boltgen.families.registry import candidates, order
from boltgen.families.skinny.legality import MOST_ROWS
from boltgen.families.source import kernel_symbol
from boltgen.families.space import Shape
from boltgen.problems.workload import Workload
from tests import attention_sm90_cases, chain_sm90_cases
from tests.cases import BLACKWELL, all_cases
from tests.chain_cases import all_chain_cases
from tests.wgmma_cases import launches


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    return Wanted(arch_named("sm_90a"), Level.QUICK)


@pytest.mark.parametrize("arch", BLACKWELL)
def test_every_kernel_of_a_bundle_for_blackwell_is_one_of_its(arch: str) -> None:
    wanted = Wanted(arch_named(arch), Level.QUICK)
    sections = {item.section for item in full_items(wanted)}
    assert {"check", "gemm", "conv", "b2b", "tune"} <= sections
    assert {spec.arch for spec in wanted.specs.values()} == {arch}


@pytest.fixture(scope="module")
def items(wanted: Wanted):
    return full_items(wanted)


def test_items_have_names_of_their_own(items):
    keys = [key_of(item) for item in items]
    assert len(set(keys)) == len(keys)
    assert all(key.count("/") == 1 for key in keys)  # a name is also a file's


def test_every_section_is_there(items):
    sections = {item.section for item in items}
    assert sections == {
        *("check", "gemm", "conv", "epilogue", "b2b", "padding", "tune", "models"),
    }


def test_every_product_has_kernels_in_the_bundle(wanted: Wanted, items):
    for item in items:
        if isinstance(item, Race):
            assert item.product.choices
            assert all(choice.kernel in wanted.specs for choice in item.product.choices)
            if item.section == "gemm" and item.problem.alignment_a == 8 == item.problem.alignment_d:
                families = {choice.config.family for choice in item.product.choices}
                few = {"skinny"} if item.problem.gemm.m <= MOST_ROWS else set()
                assert families == {"cutlass2", "cutlass3"} | few, item.name


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
    assert checked == runs


def test_section_tune_has_whole_spaces_in_parts():
    """At level full: every configuration that boltgen considers."""
    arch, problem = arch_named("sm_90a"), shapes.gemm(1280, 768, 768)
    found = spaces(Wanted(arch, Level.FULL), {"one": problem, "two": problem})
    assert all(0 < len(space.product.choices) <= 64 for space in found)
    assert [space.name for space in found[:4]] == ["one-1", "two-1", "one-2", "two-2"]
    whole = [c.config for s in found if s.name.startswith("one-") for c in s.product.choices]
    assert sorted(whole, key=order) == sorted(candidates(Workload.of(problem), arch), key=order)
    assert {config.family for config in whole} == {"cutlass2", "cutlass3"}


def test_every_ratio_of_the_papers_has_an_item(items):
    keys = {key_of(item) for item in items}
    assert {figure["item"] for figure in figures()} <= keys


def test_items_are_read_as_they_were_written(items, tmp_path: Path):
    write_items(tmp_path / "items.json", items)
    assert read_items(tmp_path / "items.json") == items
