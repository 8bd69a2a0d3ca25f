"""The bench: with a stub for its worker and scripts for compilers, and on the virtual GPU."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest

from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import EPILOGUES
from benchmarks.cases.separable import CASES as SEPARABLE
from boltgen.arch import ARCHES
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import KernelStore, build_library, kernel_key, toolchain_text
from boltgen.build.unit import kernel_unit
from boltgen.errors import DeviceError, KernelContentError, UnknownArchError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass2.levels import level_configs, library_specs
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.family import Level
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import kernel_spec
from boltgen.families.source import kernel_symbol, render_kernel
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import Accumulator, ElementwiseGraph, Store, Unary
from boltgen.ir.functions import UnaryOp
from boltgen.ir.outcome import NOT_COMPILED, DeviceKind, Failure, Fault, Timing
from boltgen.measure.bench import WorkerBench, _compiled_for, open_vgpu
from boltgen.measure.channel import local_worker
from boltgen.measure.client import Worker
from boltgen.measure.kernels import KernelMaker
from boltgen.measure.protocol import Setup
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.build.fakes import FAIL, fake_toolchain
from tests.tuning.samples import A100

ROOT = Path(__file__).resolve().parent.parent.parent
SM80 = ARCHES["sm_80"]
ALIGNMENTS = (8, 4, 2, 1)
PROBLEM = Gemm(m=256, n=256, k=64, b_layout=Layout.COLUMN)
PLAIN, FUSED = ElementwiseGraph(), EPILOGUES["bias_relu"]
CONFIGS = level_configs(kernel_traits(PROBLEM), SM80, Level.STANDARD)
COMPILE = 'for last; do :; done; cat *.cu > "$last"'


def trial(config: Cutlass2Config, epilogue: ElementwiseGraph = PLAIN, problem=PROBLEM) -> Trial:
    return Trial(workload=Workload.of(problem, epilogue), config=config)


def spec_of(one: Trial):
    return kernel_spec(one.workload, one.config, "sm_80")


class Made:
    """A bench whose worker is a stub and whose nvcc and linker are scripts."""

    def __init__(self, tmp_path: Path, body: str = COMPILE) -> None:
        self.count = tmp_path / "count"
        tools = fake_toolchain(tmp_path / "toolkit", f"echo x >> {self.count}; {body}")
        linker = tmp_path / "ld"
        linker.write_text('#!/bin/sh\nfor last; do :; done; echo linked > "$last"\n')
        linker.chmod(0o755)
        self.tools = replace(tools, cxx=replace(tools.cxx, path=linker))
        self.cache = Cache(tmp_path / "cache")
        worker = Worker(
            Setup(ordinal=0, profiler="p.so", runtime="libcudart.so.13"),
            local_worker(
                (sys.executable, "-m", "tests.measure.stub_worker", "well", str(tmp_path / "g")),
                {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
            ),
        )
        self.bench = WorkerBench(
            worker=worker,
            maker=KernelMaker(tools=self.tools, cache=self.cache),
            jobs=2,
            arch="sm_80",
            timeout_s=20.0,
            flops_per_s=1e9,
        )

    @property
    def compiled(self) -> int:
        """How often nvcc was run."""
        return len(self.count.read_text().split()) if self.count.exists() else 0


@pytest.fixture
def make(tmp_path):
    benches = []

    def build(body: str = COMPILE) -> Made:
        benches.append(Made(tmp_path, body))
        return benches[-1]

    yield build
    for made in benches:
        made.bench.close()


def test_every_trial_has_one_outcome(make):
    made = make()
    trials = [trial(c) for c in CONFIGS[:10]] + [trial(c, FUSED) for c in CONFIGS[:3]]
    outcomes = list(made.bench.run(trials))
    assert {t for t, _ in outcomes} == set(trials)
    assert len(outcomes) == len(trials)
    assert all(isinstance(outcome, Timing) for _, outcome in outcomes)
    # Ten plain kernels in two units, three others alone.
    assert made.compiled == 5
    list(made.bench.run(trials))
    assert made.compiled == 5


def test_nothing_to_do(make):
    assert list(make().bench.run([])) == []


def test_launches_of_one_kernel_compile_it_once(make):
    made = make()
    launches = [
        replace(CONFIGS[0], swizzle=swizzle, split_k=count)
        for swizzle in (1, 2, 4, 8)
        for count in (1, 2, 4)
    ]
    assert len(list(made.bench.run([trial(config) for config in launches]))) == len(launches)
    assert made.compiled == 1


def test_a_library_is_used(make):
    made = make()
    groups = library_specs(SM80, Level.QUICK, ALIGNMENTS)["gemm"]
    build_library(groups, made.tools, made.cache, jobs=2)
    before = made.compiled
    quick = level_configs(kernel_traits(PROBLEM), SM80, Level.QUICK)
    assert len(list(made.bench.run([trial(config) for config in quick]))) == len(quick)
    assert made.compiled == before


def test_plain_kernels_stay_as_a_library(make):
    made = make()
    list(made.bench.run([trial(CONFIGS[0])]))
    assert (
        KernelStore(made.cache).find(kernel_key(spec_of(trial(CONFIGS[0])), made.tools)) is not None
    )


def test_what_is_measured_with_its_epilogue_is_what_compile_takes(make):
    made = make()
    one = trial(CONFIGS[0], FUSED)
    list(made.bench.run([one]))
    unit = kernel_unit(render_kernel(spec_of(one)), made.tools)
    assert made.cache.has(unit.kind, unit.key)


def test_trials_of_one_problem_are_measured_together(make):
    made = make()
    other = Gemm(m=512, n=256, k=64, b_layout=Layout.COLUMN)
    trials = [trial(c, problem=p) for c in CONFIGS[:4] for p in (PROBLEM, other)]
    order = [t.workload for t, _ in made.bench.run(trials)]
    assert sum(a != b for a, b in pairwise(order)) == 1


def test_a_kernel_that_does_not_compile_costs_only_its_own_trials(make):
    bad = kernel_symbol(spec_of(trial(CONFIGS[2])))
    made = make(f"if grep -q {bad} *.cu; then {FAIL}; fi; {COMPILE}")
    outcomes = dict(made.bench.run([trial(config) for config in CONFIGS[:5]]))
    failed = outcomes[trial(CONFIGS[2])]
    assert isinstance(failed, Failure)
    assert failed.fault is Fault.COMPILE
    assert 'error: identifier "x" is undefined' in failed.reason
    assert 'expected a ";"' in failed.log
    assert sum(isinstance(outcome, Timing) for outcome in outcomes.values()) == 4
    assert made.bench.kernel(trial(CONFIGS[2])) == NOT_COMPILED
    with pytest.raises(KernelContentError, match="no object file"):
        made.bench.kernel(trial(CONFIGS[0]))  # this compiler writes no PTX


def test_closing_stops_the_compilers(make):
    made = make(f"if grep -q 'bias\\|row0' *.cu; then sleep 60; fi; {COMPILE}")
    trials = [trial(CONFIGS[0]), *(trial(config, FUSED) for config in CONFIGS[:6])]
    started = time.monotonic()
    outcomes = made.bench.run(trials)
    assert len(list(islice(outcomes, 1))) == 1
    outcomes.close()
    assert time.monotonic() - started < 20.0


def test_identities(make):
    made = make()
    assert made.bench.device.kind is DeviceKind.CUDA
    assert made.bench.lock_name == "GPU-1"
    assert made.bench.toolchain == toolchain_text(made.tools)
    assert made.bench.toolchain == "nvcc 13.0.88; CUTLASS 1"


# --- on the virtual GPU --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vgpu():
    bench = open_vgpu("sm_80")
    yield bench
    bench.close()


SMALL = Gemm(m=70, n=72, k=104, b_layout=Layout.COLUMN)
QUICK = level_configs(kernel_traits(SMALL), SM80, Level.QUICK)[:4]
TRIALS = [
    *(trial(config, problem=SMALL) for config in QUICK),
    trial(replace(QUICK[0], split_k=3), problem=SMALL),
    trial(replace(QUICK[0], swizzle=2), problem=SMALL),
    trial(
        QUICK[0],
        problem=Gemm(batch=2, m=40, n=48, k=32, b_layout=Layout.COLUMN, b_batched=False),
    ),
    trial(QUICK[1], FUSED, SMALL),
]


def test_kernels_are_compiled_checked_and_timed(vgpu):
    assert vgpu.device.kind is DeviceKind.VGPU
    assert (vgpu.device.arch, vgpu.lock_name) == ("sm_80", None)
    assert ", vgpu " in vgpu.device.driver, "another version of it is another device"
    first = dict(vgpu.run(TRIALS))
    assert set(first) == set(TRIALS)
    assert all(isinstance(outcome, Timing) for outcome in first.values()), first
    kernels = [vgpu.kernel(each) for each in TRIALS]
    assert all(len(kernel) == 64 for kernel in kernels)
    specs = [spec_of(each) for each in TRIALS]
    assert [kernels.index(k) for k in kernels] == [specs.index(s) for s in specs]
    second = dict(vgpu.run(TRIALS))
    assert second == first, "modelled times are the same every time"


def test_a_convolution(vgpu):
    problem = Conv2d(n=1, h=9, w=9, c=16, k=24, r=3, s=3, padding=(1, 1, 1, 1), stride=(2, 2))
    (outcome,) = (o for _, o in vgpu.run([trial(QUICK[0], problem=problem)]))
    assert isinstance(outcome, Timing)


def test_a_depthwise_convolution_and_its_slabs(vgpu):
    problem = Depthwise(n=2, h=9, w=7, c=80, r=3, s=3, padding=(1, 1, 1, 1))
    workload = Workload.of(problem, FUSED)
    configs = [DepthwiseConfig(threads=64, rows=1, columns=4, slab=slab) for slab in (4, 16)]
    trials = [Trial(workload=workload, config=config) for config in configs]
    outcomes = [outcome for _, outcome in vgpu.run(trials)]
    assert all(isinstance(outcome, Timing) for outcome in outcomes), outcomes
    assert len({vgpu.kernel(each) for each in trials}) == 1


@pytest.mark.parametrize("name", ["plain", "two_results"])
def test_a_depthwise_separable_convolution(name, vgpu):
    case = SEPARABLE[name]
    ((_, outcome),) = vgpu.run([Trial(workload=case.workload, config=case.config)])
    assert isinstance(outcome, Timing), outcome


def test_all_results_of_a_kernel_are_checked(vgpu, monkeypatch):
    """The kernel that stores the product beside its ReLU, for itself and for the ReLU twice."""
    nodes = (Accumulator(), Unary(UnaryOp.RELU, 0))

    def storing(x: int) -> Trial:
        graph = ElementwiseGraph(nodes, (Store(1), Store(x, dtype=DType.F32)))
        return trial(QUICK[0], graph, SMALL)

    right, wrong = storing(0), storing(1)
    ((_, outcome),) = vgpu.run([right])
    assert isinstance(outcome, Timing), outcome
    spec = right.spec("sm_80")
    monkeypatch.setattr(Trial, "spec", lambda trial, arch: spec)
    ((_, outcome),) = vgpu.run([wrong])
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.WRONG_RESULT


CHAIN_CASES = {case.name: case for case in all_chain_cases()}


def fused_trial(name: str) -> Trial:
    case = CHAIN_CASES[name]
    return Trial(workload=case.chain, config=case.spec.config)


@pytest.mark.parametrize("name", ["rf-ragged", "smem-conv", "smem-batch"])
def test_layers_are_compiled_checked_and_timed_as_one_kernel(vgpu, name):
    ((one, outcome),) = vgpu.run([fused_trial(name)])
    assert one == fused_trial(name)
    assert isinstance(outcome, Timing), outcome
    assert outcome.median_us > 0


def test_a_fused_kernel_that_computes_something_else_does_not_win(vgpu, monkeypatch):
    """The kernel of layers with ReLU, for layers without."""
    right = fused_trial("smem-row")
    first, *rest = right.workload.layers
    other = replace(first, epilogue=EPILOGUES["bias_silu"])
    spec = right.spec("sm_80")
    wrong = replace(right, workload=Workload(layers=(other, *rest)))
    assert wrong.spec("sm_80") != spec
    monkeypatch.setattr(Trial, "spec", lambda trial, arch: spec)
    ((_, outcome),) = vgpu.run([wrong])
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.WRONG_RESULT
    assert f"elements of {wrong.workload.describe()} are wrong" in outcome.reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split_k": 70000}, "split_k is 70000; it must be at most 65535"),
        ({"swizzle": 3}, "swizzle is 3; it must be a power of two from 1 to 8"),
    ],
)
def test_a_launch_that_the_kernel_refuses(vgpu, arguments, message):
    config = replace(QUICK[0], **arguments)
    (outcome,) = (o for _, o in vgpu.run([trial(config, problem=SMALL)]))
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.LAUNCH
    assert message in outcome.reason


def test_an_unknown_arch():
    with pytest.raises(UnknownArchError, match="unknown arch 'sm_81'"):
        open_vgpu("sm_81")


@pytest.mark.parametrize(
    ("asked", "found", "named"),
    [
        (None, "sm_80", "sm_80"),
        (None, "sm_90", "sm_90a"),
        ("sm_90", "sm_90", "sm_90"),
        ("sm_90a", "sm_90", "sm_90a"),
        # Not what was asked for: whoever asked is told what the device is.
        ("sm_80", "sm_90", "sm_90a"),
        ("sm_100", "sm_103", "sm_103"),
    ],
)
def test_a_device_has_the_architecture_that_kernels_are_compiled_for(
    asked: str | None, found: str, named: str
) -> None:
    device = replace(A100, arch=found)
    assert _compiled_for(asked, device) == replace(device, arch=named)


def test_a_device_that_boltgen_does_not_know() -> None:
    with pytest.raises(DeviceError, match=r"NVIDIA A100.*unknown arch 'sm_110'"):
        _compiled_for(None, replace(A100, arch="sm_110"))
