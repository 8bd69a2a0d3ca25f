"""From regions to objects, with compilers that are shell scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen import pipeline
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import toolchain_text
from boltgen.errors import AuditError, CompileError, DatabaseError, UnknownArchError
from boltgen.families.family import Config
from boltgen.families.registry import candidates
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.model_passes import Survey, cutter, rejecter
from boltgen.pipeline import BuiltRegions, Phases, PipelineOptions, build_regions, plan_regions
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import NHWC_F16, Form, ImageLayout
from boltgen.problems.problem import Problem
from boltgen.problems.region import LayerRoles, Region, Stored
from boltgen.problems.workload import Layer, Workload, separate
from boltgen.settings import settings_from
from boltgen.stored import database_path
from boltgen.tuning.choice.select import Costs
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.query import Query
from boltgen.tuning.database.records import Record, spec_key
from tests.build.fakes import FAIL, SUCCEED, fake_toolchain, write_script
from tests.tuning.samples import record


def relu() -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    return builder.build()


def region(index: int, problem: Problem, epilogue: ElementwiseGraph | None = None) -> Region:
    return Region(
        symbol=f"boltgen_{index}_matmul",
        label="matmul",
        workload=Workload.of(problem, epilogue),
        parameter_count=2,
        a=0,
        layers=(LayerRoles(b=1),),
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
    symbols = [kernel.symbol for kernel in plan.kernels]
    assert len(set(symbols)) == len(symbols) == 2
    assert [launch.kernels for launch in plan.launches] == [(s,) for s in (symbols[0], *symbols)]
    for launch in plan.launches:
        assert launch.kernels[0] in plan.adapter
        assert launch.region.symbol in plan.adapter


def test_the_kernels_of_moves_are_planned_with_those_of_products() -> None:
    conv = Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3)
    stored = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
    image = replace(
        region(0, conv),
        a_stored=Stored(form=stored, shape=(1, 3, 8, 8)),
        d_stored=Stored(form=NHWC_F16, shape=(1, 6, 6, 5)),
    )
    plan = plan_regions([image, region(1, conv)], "sm_80")
    first, second = plan.launches
    assert first.kernels == second.kernels
    moves = [move.kernel for move in first.memory.moves]
    assert len(set(moves)) == 2
    assert second.memory.moves == ()
    assert {kernel.symbol for kernel in plan.kernels} == {*first.kernels, *moves}


def test_layers_back_to_back_are_planned_as_any_other_workload() -> None:
    layer = Layer(problem=Gemm(m=4096, n=64, k=64), epilogue=relu())
    fused = Region(
        symbol="boltgen_0_both",
        label="matmul + relu + matmul + relu",
        workload=Workload(layers=(layer, layer)),
        parameter_count=3,
        a=0,
        layers=(LayerRoles(b=1), LayerRoles(b=2)),
    )
    plan = plan_regions([fused, region(1, GEMM)], "sm_80")
    assert [decision.config.family for (decision,) in plan.decisions] == ["b2b", "cutlass2"]
    assert [launch.kernels for launch in plan.launches] == [(k.symbol,) for k in plan.kernels]
    assert plan.launches[0].choices[0].launch.has_layers


class LikesSwizzles:
    """Costs by which products of 1,024 columns are visited four tiles at a time, others one."""

    measurements = ()

    def costs(self, workload: Workload) -> Costs:
        liked = 4 if workload.single.problem.gemm.n == 1024 else 1
        configs = candidates(workload, arch_named("sm_80"))
        return Costs(
            by_config={c: 10.0 + abs(c.swizzle - liked) + c.split_k for c in configs},
            origin="made up",
        )


def test_a_swizzle_is_an_argument_of_the_call_and_no_kernel_of_its_own() -> None:
    regions = [region(n, Gemm(m=2048, n=n, k=256)) for n in (1024, 512)]
    plan = plan_regions(regions, "sm_80", costs=LikesSwizzles())
    assert [decision.config.swizzle for (decision,) in plan.decisions] == [4, 1]
    assert [launch.choices[0].launch.sizes["swizzle"] for launch in plan.launches] == [4, 1]
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


def options_with_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineOptions:
    """Of a machine whose kernels are compiled to what they are now."""
    monkeypatch.setattr(pipeline, "stored_content", lambda path, symbol, cache: f"{symbol} now")
    options = options_for(folder)
    return replace(options, settings=replace(options.settings, data_dir=folder / "data"))


def measured(
    config: Config, time_us: float, options: PipelineOptions, problem: Problem = GEMM
) -> Record:
    tools = toolchain_text(options.toolchain)
    return record(time_us, workload=Workload.of(problem), config=config, toolchain=tools)


def test_a_measured_kernel_that_has_changed_is_chosen_again_without_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_with_data(tmp_path, monkeypatch)
    path = database_path(options.settings)
    first, *_, last = candidates(Workload.of(GEMM), arch_named("sm_80"))
    old = measured(last, 20.0, options)
    spec = old.trial.spec("sm_80")
    steady = measured(first, 30.0, options)
    steady = replace(steady, kernel=f"{kernel_symbol(steady.trial.spec('sm_80'))} now")
    with Database(path) as database:
        database.add([old, steady])
    ((decision,),) = build_regions([region(0, GEMM)], "sm_80", options).plan.decisions
    assert (decision.config, decision.kernel) == (first, steady.kernel)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert kernel_symbol(spec) in caplog.text
    with Database(path) as database:
        key = spec_key(spec, old.toolchain)
        assert database.contents() == {key: f"{kernel_symbol(spec)} now"}
        assert list(database.records(Query(void=True))) == [old]
    caplog.clear()
    ((again,),) = build_regions([region(0, GEMM)], "sm_80", options).plan.decisions
    assert (again, caplog.text) == (decision, "")


def test_where_many_kernels_have_changed_not_all_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_with_data(tmp_path, monkeypatch)
    # Another workload's kernel is the one that was measured: its records count throughout.
    steady = Gemm(m=512, n=64, k=64, b_layout=Layout.COLUMN)
    configs = {c.kernel: c for c in candidates(Workload.of(GEMM), arch_named("sm_80"))}
    first = candidates(Workload.of(steady), arch_named("sm_80"))[0]
    good = measured(first, 50.0, options, steady)
    good = replace(good, kernel=f"{kernel_symbol(good.trial.spec('sm_80'))} now")
    with Database(database_path(options.settings)) as database:
        database.add(measured(c, 20.0 + i, options) for i, c in enumerate(configs.values()))
        database.add([good])
    built: list[BuiltRegions] = []
    real = pipeline.build_plan
    monkeypatch.setattr(
        pipeline, "build_plan", lambda *given: built.append(real(*given)) or built[-1]
    )
    regions = [region(0, GEMM), region(1, steady)]
    decisions = build_regions(regions, "sm_80", options).plan.decisions
    assert len(configs) > 3
    assert len(built) == 3
    assert [decision.kernel for (decision,) in decisions] == [None, good.kernel]


def test_a_database_that_cannot_be_written_ends_no_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise DatabaseError("the disk is full")

    options = options_with_data(tmp_path, monkeypatch)
    monkeypatch.setattr(Database, "learn", refuse)
    last = candidates(Workload.of(GEMM), arch_named("sm_80"))[-1]
    with Database(database_path(options.settings)) as database:
        database.add([measured(last, 20.0, options)])
    ((decision,),) = build_regions([region(0, GEMM)], "sm_80", options).plan.decisions
    assert decision.kernel is None, "the model chooses"
    assert "the disk is full" in caplog.text


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


# An nvcc whose ptxas spills registers of every kernel whose source is in a file of that name.
SPILL = f"""{SUCCEED}
case $(echo *.cu) in
NAME) spills=96;;
*) spills=0;;
esac
name=$(basename *.cu .cu)
case $name in
*_move_*) name=_ZN7boltgen11move_kernel;;
esac
echo "ptxas info    : Compiling entry function '${{name}}_device' for 'sm_80'"
echo "    $spills bytes stack frame, $spills bytes spill stores, 0 bytes spill loads"
echo "ptxas info    : Used 255 registers, used 1 barriers"
"""


def test_kernels_that_spill_are_replaced_by_the_next_that_do_not(tmp_path: Path) -> None:
    (unaudited,) = build_regions([region(0, GEMM)], "sm_80", options_for(tmp_path)).plan.kernels
    tile = unaudited.symbol.split("_")[3]
    options = options_for(tmp_path / "other", SPILL.replace("NAME", f"*_{tile}_*"))
    built = build_regions([region(0, GEMM)], "sm_80", options)
    (kernel,) = built.plan.kernels
    assert f"_{tile}_" not in kernel.symbol
    assert built.usage[kernel.symbol].registers == 255
    assert built.faults == {}


def test_a_kernel_that_spills_and_has_no_replacement_fails_the_build(tmp_path: Path) -> None:
    conv = Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3)
    image = replace(
        region(0, conv),
        a_stored=Stored(form=Form(layout=ImageLayout.NCHW, dtype=DType.F32), shape=(1, 3, 8, 8)),
    )
    for _ in range(2):  # the second time, from the cache
        with pytest.raises(AuditError) as caught:
            build_regions([image], "sm_80", options_for(tmp_path, SPILL.replace("NAME", "*move*")))
        said = str(caught.value)
        assert re.search(r"kernel boltgen_\w*move\w* must not ship: it spills registers: 96", said)
        assert "To do:" in said


def test_phases_add_up() -> None:
    phases = Phases()
    for _ in range(2):
        with phases.phase("a"), phases.phase("b"):
            pass
    assert list(phases.seconds) == ["a", "b"]
    assert phases.seconds["a"] >= phases.seconds["b"] >= 0


def test_without_a_compiler_the_model_says_what_becomes_one_kernel(tmp_path: Path) -> None:
    layers = tuple(Layer(problem=Gemm(m=32768, n=64, k=64), epilogue=relu()) for _ in range(2))
    settings = settings_from({"BOLTGEN_DATA_DIR": str(tmp_path), "PATH": "/absent"})
    options = PipelineOptions(settings=settings)
    cut = cutter("sm_80", options)(layers)
    assert cut.counts == (2,)
    assert cut.reasons[0].endswith("predicted by the analytical model")
    assert cutter("sm_80", replace(options, fuse=False))(layers) == separate(layers)


def test_a_survey_cuts_everything_and_remembers_what_could_be_one_kernel() -> None:
    layers = tuple(Layer(problem=Gemm(m=32768, n=64, k=64), epilogue=relu()) for _ in range(3))
    survey = Survey()
    assert survey(layers) == separate(layers)
    tasks = survey.tasks("sm_80")
    assert [task.workload.layers for task in tasks] == [layers[:2], layers, layers[1:]]
    assert all(task.is_alternative for task in tasks)


def test_what_no_configuration_computes_is_rejected_with_the_rule() -> None:
    rejects = rejecter("sm_80", PipelineOptions())
    assert rejects(Workload.of(Gemm(m=128, n=128, k=128))) is None
    reason = rejects(Workload.of(Conv2d(n=1, h=7168, w=7168, c=128, k=3, r=3, s=3)))
    assert reason is not None and "13153337344 exceeds 2147483647" in reason
