"""Knobs: encodings differ, neighbours are one step away, the space holds what is enumerated."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.arch import ARCHES, arch_named
from boltgen.families.cutlass2.candidates import enumerate_configs, space_of
from boltgen.families.cutlass2.config import config_of
from boltgen.families.mma_sync.candidates import legal_kernels
from boltgen.families.mma_sync.legality import violations
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import compiled, spaces
from boltgen.families.space import Knob
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload
from tests.families.knobs import default, pinned

PROBLEMS = (
    Gemm(m=512, n=384, k=4096),
    Gemm(batch=4, m=128, n=128, k=64),
    Conv2d(n=8, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
    Conv2d(n=1, h=224, w=224, c=3, k=64, r=7, s=7, stride=(2, 2)),
)
GEMM = space_of(Layer(problem=PROBLEMS[0]), arch_named("sm_80"))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("arch", ARCHES)
def test_the_space_holds_every_enumerated_configuration(problem, arch) -> None:
    space = space_of(Layer(problem=problem), arch_named(arch))
    configs = set(enumerate_configs(problem, arch_named(arch)))
    assert len(set(map(space.encode, configs))) == len(configs)
    for config in configs:
        assert config in space
        assert space.config_at(space.point_of(config)) == config
        assert space.penalty(config) == 0.0


@given(st.integers(0, 2**32), st.sampled_from(PROBLEMS))
@settings(max_examples=50, deadline=None)
def test_random_settings(seed: int, problem) -> None:
    space = space_of(Layer(problem=problem), arch_named("sm_86"))
    config = space.random(random.Random(seed))
    assert config in space
    assert config == space.random(random.Random(seed))
    assert all(0.0 <= place <= 1.0 for place in space.encode(config))
    point = space.point_of(config)
    for neighbour in space.neighbours(config):
        assert neighbour in space
        moved = [name for name, value in space.point_of(neighbour).items() if value != point[name]]
        assert len(moved) == 1
        assert config in space.neighbours(neighbour)
    broken = violations(problem, config, arch_named("sm_86"))
    assert space.broken(config) == broken
    assert (space.penalty(config) > 0) == bool(broken)


def test_a_penalty_grows_with_the_distance_to_legality() -> None:
    heavy = replace(default(GEMM), stages=5)
    deep = GEMM.config_at(GEMM.point_of(heavy) | {"threadblock_k": 64, "threadblock_m": 256})
    deeper = GEMM.config_at(GEMM.point_of(deep) | {"threadblock_n": 256})
    assert GEMM.penalty(heavy) == 0.0
    assert 0.0 < GEMM.penalty(deep) < GEMM.penalty(deeper)


def test_every_default_is_in_the_space() -> None:
    for problem in PROBLEMS:
        for arch in ARCHES.values():
            space = space_of(Layer(problem=problem), arch)
            assert default(space) in space


@pytest.mark.parametrize(
    ("arch_name", "problem"),
    [
        ("sm_80", Gemm(m=2048, n=2048, k=2048)),
        ("sm_80", Gemm(m=2048, n=2047, k=2047, acc_dtype=DType.F16)),
        ("sm_75", Gemm(m=2048, n=2044, k=2044, b_layout=Layout.COLUMN)),
        ("sm_86", Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))),
    ],
)
def test_legal_kernels_are_the_legal_settings_of_the_knobs(
    arch_name: str, problem: Problem
) -> None:
    arch = arch_named(arch_name)
    space = pinned(space_of(Layer(problem=problem), arch), swizzle=1, split_k=1)
    names = [knob.name for knob in space.knobs]
    settings = itertools.product(*(knob.values for knob in space.knobs))
    configs = [space.config_at(dict(zip(names, values, strict=True))) for values in settings]
    legal = [config_of(tiles) for tiles in legal_kernels(kernel_traits(problem), arch)]
    assert sorted(legal) == sorted(config for config in configs if not space.broken(config))


def test_a_knob() -> None:
    knob = Knob("split_k", (1, 2, 3, 4, 6, 8), 1)
    assert knob.neighbours(1) == (2,)
    assert knob.neighbours(3) == (2, 4)
    assert knob.neighbours(8) == (6,)
    assert [knob.encode(value) for value in (1, 2, 8)] == [0.0, pytest.approx(1 / 3), 1.0]
    assert (knob.encode(16) > 1.0, knob.encode(5) > knob.encode(4)) == (True, True)
    only = Knob("stages", (2,), 2)
    assert (only.encode(2), only.neighbours(2)) == (0.0, ())
    with pytest.raises(ValueError, match=r"knob stages: 5 is not one of"):
        Knob("stages", (2, 3), 5)
    with pytest.raises(ValueError, match="ascending"):
        Knob("stages", (3, 2), 3)


@pytest.mark.parametrize(
    ("arch", "workload"),
    [
        ("sm_80", Workload.of(Gemm(m=512, n=512, k=4096))),
        ("sm_90a", Workload.of(Gemm(m=512, n=512, k=4096, b_layout=Layout.COLUMN))),
        ("sm_80", Workload(layers=(Layer(problem=Gemm(m=4096, n=64, k=64)),) * 2)),
        ("sm_80", Workload.of(Gemm(m=1, n=4096, k=4096))),
    ],
)
def test_launched_knobs_are_those_that_no_compiler_sees(arch: str, workload: Workload) -> None:
    for space in spaces(workload, arch_named(arch)):
        for config in space.candidates[:20]:
            point = space.point_of(config)
            for knob in space.knobs:
                for value in knob.neighbours(point[knob.name]):
                    other = space.config_at(point | {knob.name: value})
                    if other is not None and other != config and knob.name in space.launched:
                        assert compiled(other) == compiled(config), knob.name
            beside = list(space.relaunched(config))
            assert all(compiled(each) == compiled(config) for each in beside)
            assert not any(space.broken(each) for each in beside)
        kernels = list(space.legal_kernels())
        assert len(kernels) == len(set(kernels))
        assert {compiled(each) for each in space.candidates} <= set(map(compiled, kernels))
        assert not any(space.broken(each) for each in kernels)


def test_a_space_of_chosen_configurations_has_no_others() -> None:
    first, second, *rest = GEMM.candidates
    only = GEMM.only([second, first, second])
    assert only.candidates == tuple(only.legal_kernels()) == (second, first)
    assert only.broken(first) == ()
    (left_out,) = only.broken(rest[0])
    assert (left_out.name, left_out.message) == (
        "left_out",
        "it is none of the 2 that are searched",
    )
    assert list(only.relaunched(first)) == []
    assert only.encode(first) == GEMM.encode(first)
