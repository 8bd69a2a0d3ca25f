"""Features: a number for each name, finite, and different where candidates are."""

from __future__ import annotations

import math

import pytest

from boltgen.arch import ARCHES, arch_named
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.knobs import ConfigSpace
from boltgen.tune.features import feature_names, features
from tests.tune.resnet50_layers import biased
from tests.tune.samples import CONFIG

PROBLEMS = (
    Gemm(m=512, n=384, k=4096),
    BatchedGemm(batch=4, m=128, n=128, k=64),
    Conv2d(n=8, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_candidates_are_told_apart(problem, arch) -> None:
    space = ConfigSpace.of(problem, arch_named(arch))
    configs = enumerate_configs(problem, ARCHES[arch])[::7]
    vectors = [features(ElementwiseGraph(), config, space) for config in configs]
    assert len(set(vectors)) == len(configs)
    for vector in vectors:
        assert len(vector) == len(feature_names(space)) == len(set(feature_names(space)))
        assert all(map(math.isfinite, vector))


def test_what_they_say() -> None:
    space = ConfigSpace.of(Gemm(m=512, n=200, k=1000), arch_named("sm_80"))
    found = dict(
        zip(feature_names(space), features(biased(residual=True), CONFIG, space), strict=True)
    )
    assert found["threadblock_m"] == pytest.approx(2 / 3)
    assert (found["log2_m"], found["log2_tiles"]) == (9.0, 3.0)
    assert found["steps_per_slice"] == 32.0
    assert found["useful_fraction"] == pytest.approx(200 * 1000 / (256 * 1024))
    assert (found["epilogue_nodes"], found["epilogue_tensors"]) == (5.0, 1.0)
    assert found["warps"] == 4.0
    # Three stages of two 128x32 tiles of FP16, of 163 KiB.
    assert found["shared_memory_fraction"] == pytest.approx(48 / 163)
