"""What could be changed nearly for free, by the analytical model."""

from __future__ import annotations

import pytest

from boltgen.arch import ARCHES
from boltgen.ir.epilogue import EpilogueBuilder, UnaryOp
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.tune.advice import NEARLY_FREE, NEARLY_FREE_LAYER, Advice, Change, Layer, advise
from tests.cases import EPILOGUES

SM75 = ARCHES["sm_75"]


def advice(problem: Problem, epilogue: str = "bias_relu") -> tuple[Advice, ...]:
    return advise((Layer(name="it", problem=problem, epilogue=EPILOGUES[epilogue]),), SM75)


def of(given: tuple[Advice, ...], change: Change) -> list[Advice]:
    return [each for each in given if each.change is change]


def test_channels_that_are_no_whole_vectors_are_named_and_aligned_ones_are_faster():
    # Bolt, table 3: 46 channels padded to 48 are 1.6 times as fast and more.
    problem = Conv2d(n=32, h=20, w=26, c=46, k=32, r=3, s=3, padding=(1, 1, 1, 1))
    (given,) = of(advice(problem), Change.CHANNELS)
    assert given.what == "c 46 to 48"
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
    monkeypatch.setattr("boltgen.tune.advice.NEARLY_FREE", float("inf"))
    builder = EpilogueBuilder()
    builder.unary(UnaryOp.HARDSWISH, 0)
    layer = Layer(name="it", problem=Gemm(m=1280, n=768, k=768), epilogue=builder.build())
    given = of(advise((layer,), SM75), Change.ACTIVATION)
    assert [each.what for each in given] == ["gelu_erf", "silu", "softplus"]


def test_a_1x1_convolution_comes_nearly_free_where_memory_bounds_and_not_where_products_do():
    # Of RepVGG-A1's second stage, which Bolt's RepVGGAug fuses, and a wide one.
    narrow = Conv2d(n=32, h=112, w=112, c=64, k=64, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1))
    (given,) = of(advice(narrow), Change.POINTWISE)
    assert given.what == "64 to 64 channels, in the same kernel"
    assert given.cost <= NEARLY_FREE_LAYER
    wide = Conv2d(n=32, h=14, w=14, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1))
    assert of(advice(wide), Change.POINTWISE) == []
