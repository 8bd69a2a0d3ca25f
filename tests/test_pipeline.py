"""From regions to objects, with compilers that are shell scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.errors import CompileError, UnknownArchError
from boltgen.ir.chain import ChainLayer, separate
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseBuilder, ElementwiseGraph
from boltgen.ir.functions import UnaryOp
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.region import Region
from boltgen.pipeline import (
    Phases,
    PipelineOptions,
    Survey,
    build_regions,
    cutter,
    plan_regions,
    rejecter,
)
from boltgen.settings import settings_from
from boltgen.space.enumerate import enumerate_configs
from boltgen.tune.select import Costs
from tests.build.fakes import FAIL, SUCCEED, fake_toolchain, write_script


def relu() -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    return builder.build()


def region(index: int, problem: Problem, epilogue: ElementwiseGraph | None = None) -> Region:
    return Region(
        symbol=f"boltgen_{index}_matmul",
        label="matmul",
        problem=problem,
        epilogue=epilogue or ElementwiseGraph(),
        parameter_count=2,
        a=0,
        b=1,
    )


GEMM = Gemm(m=256, n=256, k=256)


def options_for(folder: Path, body: str = SUCCEED) -> PipelineOptions:
    tools = fake_toolchain(folder / "toolkit", body)
    cxx = write_script(folder / "cxx", 'for last; do :; done; cat *.cc > "$last"')
    return PipelineOptions(
        settings=settings_from({"BOLTGEN_CACHE_DIR": str(folder / "cache"), "PATH": "/bin"}),
        toolchain=replace(tools, cxx=replace(tools.cxx, path=cxx)),
        cache=Cache(folder / "cache"),
        jobs=2,
        phases=Phases(),
    )


def test_a_plan_has_a_launch_per_region_and_a_source_per_distinct_kernel() -> None:
    regions = [region(0, GEMM), region(1, GEMM), region(2, GEMM, relu())]
    plan = plan_regions(regions, "sm_80")
    assert [launch.region for launch in plan.launches] == regions
    assert len(plan.decisions) == 3
    assert len(plan.kernels) == 2
    assert plan.kernel_of(plan.launches[0]) is plan.kernel_of(plan.launches[1])
    for launch in plan.launches:
        assert plan.kernel_of(launch).symbol in plan.adapter
        assert launch.region.symbol in plan.adapter


class LikesSwizzles:
    """Costs by which products of 1,024 columns are visited four tiles at a time, others one."""

    measurements = ()

    def costs(self, problem: Problem, epilogue: ElementwiseGraph) -> Costs:
        assert isinstance(problem, Gemm)
        liked = 4 if problem.n == 1024 else 1
        configs = enumerate_configs(problem, arch_named("sm_80"))
        return Costs(
            by_config={c: 10.0 + abs(c.swizzle - liked) + c.split_k for c in configs},
            origin="made up",
        )


def test_a_swizzle_is_an_argument_of_the_call_and_no_kernel_of_its_own() -> None:
    regions = [region(n, Gemm(m=2048, n=n, k=256)) for n in (1024, 512)]
    plan = plan_regions(regions, "sm_80", costs=LikesSwizzles())
    assert [decision.config.swizzle for decision in plan.decisions] == [4, 1]
    assert [launch.swizzle for launch in plan.launches] == [4, 1]
    assert len(plan.kernels) == 1
    assert re.findall(r"args\.swizzle = (\d);", plan.adapter) == ["4", "1"]


def test_a_plan_is_deterministic() -> None:
    regions = [region(index, Gemm(m=64 + 8 * index, n=128, k=512)) for index in range(8)]
    assert plan_regions(regions, "sm_80") == plan_regions(regions, "sm_80")


def test_an_unknown_arch() -> None:
    with pytest.raises(UnknownArchError, match="sm_80"):
        plan_regions([region(0, GEMM)], "sm_11")


def test_objects_come_with_the_adapters_first(tmp_path: Path) -> None:
    options = options_for(tmp_path)
    built = build_regions([region(0, GEMM), region(1, GEMM, relu())], "sm_80", options)
    assert built.symbols == ("boltgen_0_matmul", "boltgen_1_matmul")
    assert built.objects[0].read_text() == built.plan.adapter
    assert [path.read_text() for path in built.objects[1:]] == [
        kernel.text for kernel in built.plan.kernels
    ]
    assert list(options.phases.seconds) == [
        "choose kernels and generate sources",
        "compile kernels",
    ]


def test_no_regions_need_no_compiler() -> None:
    settings = settings_from({"BOLTGEN_CACHE_DIR": "/absent/cache", "PATH": "/absent"})
    built = build_regions([], "sm_80", PipelineOptions(settings=settings))
    assert (built.objects, built.symbols) == ((), ())


def test_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        build_regions([region(0, GEMM)], "sm_80", options_for(tmp_path, FAIL))
    assert 'error: identifier "x" is undefined' in str(caught.value)
    assert "failed" in str(caught.value)
    assert str(tmp_path / "cache" / "failed") in str(caught.value)


def test_phases_add_up() -> None:
    phases = Phases()
    for _ in range(2):
        with phases.phase("a"), phases.phase("b"):
            pass
    assert list(phases.seconds) == ["a", "b"]
    assert phases.seconds["a"] >= phases.seconds["b"] >= 0


def test_without_a_compiler_the_model_says_what_becomes_one_kernel(tmp_path: Path) -> None:
    layers = tuple(ChainLayer(problem=Gemm(m=32768, n=64, k=64), epilogue=relu()) for _ in range(2))
    settings = settings_from({"BOLTGEN_DATA_DIR": str(tmp_path), "PATH": "/absent"})
    options = PipelineOptions(settings=settings)
    cut = cutter("sm_80", options)(layers)
    assert cut.counts == (2,)
    assert cut.reasons[0].endswith("predicted by the analytical model")
    assert cutter("sm_80", replace(options, fuse=False))(layers) == separate(layers)


def test_a_survey_cuts_everything_and_remembers_what_could_be_one_kernel() -> None:
    layers = tuple(ChainLayer(problem=Gemm(m=32768, n=64, k=64), epilogue=relu()) for _ in range(3))
    survey = Survey()
    assert survey(layers) == separate(layers)
    tasks = survey.tasks("sm_80", DType.F16)
    assert [len(task.chain.layers) for task in tasks] == [2, 3, 2]
    assert {each.problem.acc_dtype for task in tasks for each in task.chain.layers} == {DType.F16}


def test_what_no_configuration_computes_is_rejected_with_the_rule() -> None:
    rejects = rejecter("sm_80", PipelineOptions())
    assert rejects(Gemm(m=128, n=128, k=128)) is None
    reason = rejects(Conv2d(n=512, h=224, w=224, c=128, k=3, r=3, s=3))
    assert reason is not None and "6576668672 exceeds 2147483647" in reason
