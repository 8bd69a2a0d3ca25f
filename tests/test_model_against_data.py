"""The published measurements are read as they are meant, and the figures are what they say."""

from __future__ import annotations

import pytest

from benchmarks import model_against_data as data
from boltgen.arch import arch_named
from boltgen.families.constants import model_constants
from boltgen.families.cutlass2.candidates import enumerate_configs
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.mma_sync.legality import violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.problems.gemm.problem import Gemm


@pytest.fixture(scope="module")
def table() -> data.Times:
    return data.times()


def test_the_times_are_those_of_84_configurations_of_80_problems(table):
    assert len(table) == 80
    assert {len(configs) for configs in table.values()} == {84}
    (problem, slices), measured = next(
        (key, value) for key, value in table.items() if (key[0].m, key[0].n) == (1024, 2048)
    )
    # The table's M is the N of the product that CUTLASS runs for a column-major D.
    assert (problem.k, slices) == (1024, 1)
    config = Cutlass2Config(
        threadblock=Shape(32, 32, 32),
        warp=Shape(32, 32, 32),
        instruction=Shape(16, 8, 8),
        stages=2,
        swizzle=8,
    )
    assert measured[config] == pytest.approx(260.991)


def test_nearly_every_configuration_that_is_fastest_is_legal(table):
    fastest = [(p, min(measured, key=measured.get)) for (p, _), measured in table.items()]
    legal = [not violations(problem, config, data.RTX_2080_TI) for problem, config in fastest]
    assert sum(legal) >= 79


def test_the_pick_costs_five_percent_and_the_best_of_eight_next_to_nothing(table):
    some = dict(list(table.items())[::4])
    picks, firsts = data.slowdowns(some, model_constants(data.RTX_2080_TI), legal=True)
    assert len(picks) == len(firsts) == 20
    assert sum(firsts) / 20 < 1.01
    assert all(pick >= first >= 1.0 for pick, first in zip(picks, firsts, strict=True))


def test_winners_have_problem_and_tile():
    won = data.winners("a100", "f32")
    assert len(won) == 1000
    assert sum(each.tile is not None for each in won) == 994
    assert won[0].problem.b_layout is Layout.COLUMN
    assert sum(each.tile == (128, 160, 32) for each in won) == 132
    assert {each.family for each in won} == {"cutlass2"}
    assert sum(each.family == "cutlass3" for each in data.winners("h100", "f32")) == 374


def test_tiles_are_ranked_by_their_best_launch_and_a_tile_that_is_missing_is_no_hit():
    problem, arch = Gemm(m=256, n=256, k=64, b_layout=Layout.COLUMN), arch_named("sm_80")
    configs = enumerate_configs(problem, arch)
    tiles = data.ranked_tiles({config: -float(i) for i, config in enumerate(configs)})
    last = configs[-1].threadblock
    assert tiles[0] == (last.m, last.n, last.k)
    assert len(tiles) == len({config.threadblock for config in configs})
    won = [
        data.Winner(problem=problem, tile=tile, family="cutlass2")
        for tile in ((17, 17, 17), (64, 64, 64), None)
    ]
    found = data.recall(won, arch, 10)
    assert (found["problems"], found["in_space"]) == (2, 0.5)
    assert found["in_first_10"] <= 0.5


def test_the_models_name_wgmma_where_it_won_on_an_h100():
    """The kernels of mma.sync that won the others are CUDA-L2's own. On an H200, CUTLASS's of wgmma
    were faster than its of mma.sync in all 33 products of section gemm that have both.
    """
    found = data.recall(data.winners("h100", "f32", every=10), data.H100, 8)
    right = found["family"]
    assert right["problems"] == 100
    assert right["right_cutlass3"] > 0.9
    assert right["right_cutlass2"] < 0.3
