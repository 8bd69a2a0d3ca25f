"""Which layers the analytical model puts into one kernel."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from boltgen.arch import ARCHES
from boltgen.ir.chain import ChainLayer, chain_of, execution_chain, intermediate_bytes
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.space.b2b_enumerate import enumerate_chain_configs
from boltgen.space.b2b_legality import chain_violations
from boltgen.space.kernel import execution_problem
from boltgen.tune.chain_model import best_chain_config, predict_chain
from boltgen.tune.chains import cut_chain, decide_chain
from boltgen.tune.select import ModelCosts
from tests.cases import EPILOGUES

SM75, SM80 = ARCHES["sm_75"], ARCHES["sm_80"]
RELU = EPILOGUES["bias_relu"]
MARGIN = 1.05


def dense(m: int, n: int, k: int) -> ChainLayer:
    return ChainLayer(problem=Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN), epilogue=RELU)


def block(size: int, channels_in: int, channels: int, stride: int) -> tuple[ChainLayer, ...]:
    """A 3x3 convolution and a 1x1 one, batch 32."""
    first = Conv2d(
        n=32,
        h=size,
        w=size,
        c=channels_in,
        k=channels,
        r=3,
        s=3,
        stride=(stride, stride),
        padding=(1, 1, 1, 1),
    )
    second = Conv2d(n=32, h=first.p, w=first.q, c=channels, k=channels, r=1, s=1)
    return tuple(ChainLayer(problem=problem, epilogue=RELU) for problem in (first, second))


# Bolt, tables 1 and 2, on the T4 that they were measured on: fusion pays in each.
BOLT = [
    *(
        (dense(m, n0, k0), dense(m, n1, n0))
        for m, n0, k0, n1 in (
            (2464, 1, 4, 4),
            (16384, 64, 256, 16),
            (32768, 128, 576, 64),
            (128320, 32, 96, 96),
        )
    ),
    *(
        block(*sizes)
        for sizes in (
            (224, 3, 48, 2),
            (112, 48, 48, 2),
            (56, 48, 48, 1),
            (224, 3, 64, 2),
            (112, 64, 64, 2),
            (56, 64, 64, 1),
        )
    ),
]


@pytest.mark.parametrize("layers", BOLT, ids=range(len(BOLT)))
def test_bolts_own_cases_are_fused(layers: tuple[ChainLayer, ...]) -> None:
    cut = cut_chain(layers, SM75)
    assert cut.counts == (2,)
    assert "one kernel for 2 products" in cut.reasons[0]
    saved = 2 * intermediate_bytes(chain_of(layers)) / 1e6
    assert f"{saved:.1f} MB less traffic, predicted by the analytical model" in cut.reasons[0]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_compute_bound_layers_stay_apart(arch: str) -> None:
    cut = cut_chain((dense(4096, 256, 4096), dense(4096, 256, 256)), ARCHES[arch])
    assert cut.counts == (1, 1)
    assert "not one kernel with the product that follows: " in cut.reasons[0]
    assert "us against" in cut.reasons[0]


def test_layers_that_no_threadblock_holds_stay_apart_and_say_why() -> None:
    cut = cut_chain((dense(4096, 1024, 64), dense(4096, 64, 1024)), SM80)
    assert cut.counts == (1, 1)
    assert "no legal back-to-back configuration" in cut.reasons[0]


def test_the_cut_is_the_best_of_all_cuts() -> None:
    layers = (
        dense(32768, 64, 64),
        dense(32768, 256, 64),
        dense(32768, 64, 256),
        dense(32768, 16, 64),
    )

    def single_us(layer: ChainLayer) -> float:
        costs = ModelCosts(SM80).costs(execution_problem(layer.problem), layer.epilogue)
        return min(cost for cost in costs.by_config.values() if isinstance(cost, float))

    def part_us(begin: int, end: int) -> float:
        if end - begin == 1:
            return single_us(layers[begin])
        chain = execution_chain(chain_of(layers[begin:end]))
        return MARGIN * best_chain_config(chain, SM80)[1].time_us

    times = {}
    for joints in itertools.product((True, False), repeat=3):
        ends = [i + 1 for i, is_cut in enumerate(joints) if is_cut] + [4]
        begins = [0, *ends[:-1]]
        counts = tuple(e - b for b, e in zip(begins, ends, strict=True))
        times[counts] = sum(part_us(b, e) for b, e in zip(begins, ends, strict=True))
    cut = cut_chain(layers, SM80)
    assert times[cut.counts] == pytest.approx(min(times.values()))
    assert len(cut.reasons) == 3


def test_what_is_decided_is_legal_and_sums_in_the_type_asked_for() -> None:
    layers = BOLT[1]
    for dtype in DType:
        summed = tuple(
            replace(layer, problem=replace(layer.problem, acc_dtype=dtype)) for layer in layers
        )
        decision = decide_chain(chain_of(summed), SM80)
        assert chain_violations(decision.chain, decision.config, SM80) == ()
        assert decision.chain.layers[0].problem.acc_dtype is dtype


def test_the_intermediate_is_no_traffic() -> None:
    chain = chain_of(BOLT[2])
    for config in enumerate_chain_configs(chain, SM80):
        predicted = predict_chain(chain, config, SM80)
        m, n0, k0, n1 = 32768, 128, 576, 64
        assert predicted.dram_bytes == 2 * (m * k0 + k0 * n0 + n0 * n1 + m * n1)
        assert predicted.time_us > 0


def test_twice_the_rows_take_about_twice_as_long_where_the_machine_is_full() -> None:
    small, large = (chain_of((dense(m, 64, 256), dense(m, 64, 64))) for m in (1 << 19, 1 << 20))
    config, predicted = best_chain_config(small, SM80)
    assert predict_chain(large, config, SM80).time_us == pytest.approx(
        2 * predicted.time_us, rel=0.05
    )
