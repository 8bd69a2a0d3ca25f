"""What could be changed nearly for free: by the analytical model, and by what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES
from boltgen.families.registry import candidates
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.advice import (
    NEARLY_FREE,
    NEARLY_FREE_LAYER,
    Advice,
    Change,
    NamedLayer,
    advise,
)
from boltgen.tuning.choice.measured_costs import MeasuredCosts
from boltgen.tuning.choice.select import ModelCosts
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.records import Record
from tests.tuning.samples import A100, TOOLS, record

SM75 = ARCHES["sm_75"]


def named(layer: Layer) -> NamedLayer:
    return NamedLayer(name="it", layer=layer)


def advice(problem: Problem, epilogue: str = "bias_relu") -> tuple[Advice, ...]:
    return advise((named(Layer(problem=problem, epilogue=EPILOGUES[epilogue])),), SM75)


def of(given: tuple[Advice, ...], change: Change) -> list[Advice]:
    return [each for each in given if each.change is change]


def test_channels_that_are_no_whole_vectors_are_named_and_aligned_ones_are_faster():
    # Bolt, table 3: 46 channels padded to 48 are 1.6 times as fast and more.
    problem = Conv2d(n=32, h=20, w=26, c=46, k=32, r=3, s=3, padding=(1, 1, 1, 1))
    (given,) = of(advice(problem), Change.CHANNELS)
    assert given.what == "46 channels to 48"
    assert given.cost < 0


@pytest.mark.parametrize(
    "problem", [Conv2d(n=32, h=56, w=56, c=64, k=64, r=1, s=1), Gemm(m=1280, n=768, k=768)]
)
def test_aligned_layers_get_no_advice_on_channels(problem: Problem):
    assert of(advice(problem), Change.CHANNELS) == []


def test_other_activations_are_told_of_where_the_last_operator_is_one():
    problem = Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
    given = of(advice(problem), Change.ACTIVATION)
    assert "hardswish" in [each.what for each in given]
    assert all(each.cost <= NEARLY_FREE for each in given)
    assert of(advice(problem, "identity"), Change.ACTIVATION) == []


def test_an_activation_is_not_replaced_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("boltgen.tuning.choice.advice.NEARLY_FREE", float("inf"))
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.HARDSWISH, 0)
    layer = Layer(problem=Gemm(m=1280, n=768, k=768), epilogue=builder.build())
    given = of(advise((named(layer),), SM75), Change.ACTIVATION)
    assert [each.what for each in given] == ["gelu_erf", "silu", "softplus"]


def test_a_1x1_convolution_comes_nearly_free_where_memory_bounds_and_not_where_products_do():
    # Of RepVGG-A1's second stage, which Bolt's RepVGGAug fuses, and a wide one.
    narrow = Conv2d(n=32, h=112, w=112, c=64, k=64, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1))
    (given,) = of(advice(narrow), Change.POINTWISE)
    assert given.what == "64 to 64 channels, in the same kernel"
    assert given.cost <= NEARLY_FREE_LAYER
    wide = Conv2d(n=32, h=14, w=14, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1))
    assert of(advice(wide), Change.POINTWISE) == []


def test_measured_times_count_where_one_device_has_both(tmp_path: Path):
    sm80, problem = ARCHES["sm_80"], Gemm(m=1280, n=768, k=766)
    aligned = replace(problem, k=768)
    epilogue = EPILOGUES["bias_relu"]
    layer = named(Layer(problem=problem, epilogue=epilogue))

    def measured(of: Problem, time_us: float, **more: Any) -> Record:
        workload = Workload.of(of, epilogue)
        config = candidates(workload, sm80)[0]
        return record(time_us, workload=workload, config=config, **more)

    with Database(tmp_path / "records.sqlite") as database:
        database.add([measured(problem, 20.0)])

        def channels() -> list[Advice]:
            costs = MeasuredCosts([database], sm80, TOOLS, A100, ModelCosts(sm80))
            return of(advise((layer,), sm80, costs.measurements), Change.CHANNELS)

        (given,) = channels()
        assert given.origin == "predicted by the analytical model", "of one time nothing follows"
        database.add([measured(aligned, 15.0)])
        (given,) = channels()
        assert (given.before_us, given.after_us) == (20.0, 15.0)
        assert given.origin == f"measured on {A100.name}, this device"
        database.add([measured(aligned, 30.0, after_s=1)])
        assert channels() == [], "measured to cost more than nearly nothing"


def test_a_measured_1x1_convolution_is_told_of_by_its_time(tmp_path: Path):
    sm80, epilogue = ARCHES["sm_80"], EPILOGUES["bias_relu"]
    problem = Conv2d(n=32, h=28, w=28, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
    behind = Conv2d(n=32, h=28, w=28, c=64, k=64, r=1, s=1)
    layers = tuple(Layer(problem=each, epilogue=epilogue) for each in (problem, behind))
    alone, fused = Workload(layers=layers[:1]), Workload(layers=layers)
    with Database(tmp_path / "records.sqlite") as database:
        database.add(
            [
                record(time_us, workload=workload, config=candidates(workload, sm80)[0])
                for workload, time_us in ((alone, 40.0), (fused, 41.0))
            ]
        )
        costs = MeasuredCosts([database], sm80, TOOLS, A100, ModelCosts(sm80))
        (given,) = of(advise((named(layers[0]),), sm80, costs.measurements), Change.POINTWISE)
    assert (given.before_us, given.after_us) == (40.0, 41.0)


def test_a_prologue_stays_before_a_layer_that_is_changed() -> None:
    layer = Layer(
        problem=Gemm(m=4096, n=256, k=256),
        prologue=EPILOGUES["per_channel"],
        epilogue=EPILOGUES["bias_relu"],
    )
    given = of(advise((named(layer),), SM75), Change.ACTIVATION)
    assert given
    # Without the prologue it would be faster.
    assert all(each.after_us >= each.before_us for each in given)


def test_the_filters_of_a_depthwise_convolution_follow_its_channels() -> None:
    """With its input beside it, as in GhostNet: 12 channels and 24 results become 16 and 32."""
    problem = Depthwise(n=1, h=8, w=8, c=12, r=3, s=3, padding=(1, 1, 1, 1), with_input=True)
    texts = [each.what for each in of(advice(problem), Change.CHANNELS)]
    assert texts in ([], ["12 channels to 16, 24 filters to 32"])
