"""Which kernels a library holds."""

from __future__ import annotations

import pytest

from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES
from boltgen.families.cutlass2.candidates import kernel_configs
from boltgen.families.cutlass2.levels import level_configs, library_specs
from boltgen.families.family import Level
from boltgen.families.mma_sync.legality import kernel_violations
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import FAMILIES, kernel_spec
from boltgen.ir.dtypes import Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

ROW = Gemm(m=1024, n=1024, k=1024)
COLUMN = Gemm(m=1024, n=1024, k=1024, b_layout=Layout.COLUMN)
CONV = Conv2d(n=1, h=56, w=56, c=64, k=64, r=3, s=3)


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
@pytest.mark.parametrize("problem", [ROW, COLUMN, CONV], ids=["row", "column", "conv"])
def test_levels_hold_a_dozen_forty_and_all(arch, problem):
    traits = kernel_traits(problem)
    quick, standard, full = (level_configs(traits, arch, level) for level in Level)
    assert 10 <= len(quick) <= 16
    assert 30 <= len(standard) <= 45
    assert set(full) == set(kernel_configs(traits, arch))
    assert full[: len(standard)] == standard[: len(full)]
    assert standard[: len(quick)] == quick
    for configs in (quick, standard, full):
        assert len(set(configs)) == len(configs)
    assert not any(kernel_violations(traits, config, arch) for config in full)
    assert all((config.swizzle, config.split_k) == (1, 1) for config in full)


def test_a_small_level_has_every_common_tile_and_the_next_every_depth_and_tile():
    traits, arch = kernel_traits(COLUMN), ARCHES["sm_80"]
    tiles = {(c.threadblock.m, c.threadblock.n) for c in kernel_configs(traits, arch)}
    common = {(m, n) for m, n in tiles if {m, n} <= {32, 64, 128, 256}}
    quick = level_configs(traits, arch, Level.QUICK)
    assert {(c.threadblock.m, c.threadblock.n) for c in quick} == common
    standard = level_configs(traits, arch, Level.STANDARD)
    assert {(c.threadblock.m, c.threadblock.n) for c in standard} == tiles
    depths = {(c.threadblock.m, c.threadblock.n, c.threadblock.k) for c in standard}
    assert depths > {(m, n, k) for m, n in common for k in (32, 64)}


def test_the_kernels_are_those_that_problems_ask_for():
    arch = ARCHES["sm_80"]
    kinds = library_specs(arch, Level.FULL, [8])
    groups = [group for kind in kinds.values() for group in kind]
    held = {spec for group in groups for spec in group}
    assert len(held) == sum(map(len, groups))
    for problem in (ROW, COLUMN, CONV):
        for config in kernel_configs(kernel_traits(problem), arch):
            assert kernel_spec(Workload.of(problem), config, "sm_80") in held
    assert all(spec.traits.epilogue.is_identity for spec in held)


@pytest.mark.parametrize("level", Level)
def test_a_family_says_what_its_library_holds_for_a_workload(level):
    arch, family = ARCHES["sm_80"], FAMILIES.named("cutlass2")
    specs = {
        spec
        for kind in family.library(arch, level, [8]).values()
        for group in kind
        for spec in group
    }
    for problem in (ROW, COLUMN, CONV):
        workload = Workload.of(problem, EPILOGUES["bias_relu"])
        plain = family.ranking(workload)
        held = family.held(workload, arch, level)
        assert held
        assert {kernel_spec(plain, config, "sm_80") for config in held} <= specs


def test_a_larger_library_is_a_smaller_one_and_more():
    arch = ARCHES["sm_80"]
    quick, standard, full = (library_specs(arch, level, [8])["gemm"] for level in Level)
    assert set(quick) < set(standard) < set(full)


def test_one_kind_and_other_alignments():
    groups = library_specs(ARCHES["sm_86"], Level.QUICK, [8, 4])["conv2d"]
    specs = [spec for group in groups for spec in group]
    assert {spec.family for spec in specs} == {"cutlass2"}
    assert {spec.arch for spec in specs} == {"sm_86"}
    assert all(spec.traits.conv_iterator for spec in specs)
    assert {spec.traits.alignment_a for spec in specs} == {8, 4}
