"""How long the tuner would take: a device's time, added up by the tuner's own policy."""

from __future__ import annotations

from benchmarks.gpu.predicted_tuning import PredictedBench, predicted_tuning, trial_us
from benchmarks.gpu.shapes import bias_then, gemm
from boltgen.arch import arch_named
from boltgen.families.family import Level
from boltgen.ir.epilogue import Epilogue, UnaryOp
from boltgen.measure.protocol import Policy
from boltgen.tuning.field import Launches
from boltgen.tuning.select import Task

POLICY = Policy(least_samples=10, most_samples=200, sample_us=200.0, warm_up_us=900.0)


def test_a_trial_is_a_first_launch_a_warm_up_and_samples():
    # 3 of 1 launch; 900 us of samples of 4 launches, which are 5; 10 of 4.
    assert trial_us(50.0, 32, 20.0, POLICY) == 3 * 70 + 5 * 220 + 10 * 220
    # 2 copies of the operands: samples of 2 launches.
    assert trial_us(50.0, 2, 20.0, POLICY) == 3 * 70 + 9 * 120 + 10 * 120


def test_a_launch_longer_than_a_sample_is_one():
    assert trial_us(1000.0, 32, 20.0, POLICY) == (3 + 1 + 10) * 1020


def test_a_session_tries_what_the_tuner_would():
    problem, arch = gemm(512, 512, 512), arch_named("sm_90")
    task = Task(problem=problem, epilogue=bias_then(UnaryOp.RELU))
    bench = predicted_tuning([task], arch)
    launches = Launches(problem, arch, Level.STANDARD)
    field = launches.field()
    times = {config: launches.predicted_us(config, Epilogue()) for config in field}
    assert bench.trials == len(field) + len(launches.finalists(task.epilogue, times))
    # 20 times the samples, of which there are more than launches before them.
    assert 5 < bench.most_us / bench.least_us < 20
    again = predicted_tuning([task], arch)
    assert (again.least_us, again.most_us) == (bench.least_us, bench.most_us)


def test_its_device_is_nobodys():
    bench = PredictedBench(arch_named("sm_90"))
    assert bench.device.name == "H200 SXM, predicted"
