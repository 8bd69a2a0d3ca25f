"""Which layers become one kernel, by what the analytical model says and by what was measured."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES
from boltgen.errors import NoLegalConfigError
from boltgen.families.b2b.model import predict
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes
from boltgen.families.registry import candidates, violations
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.outcome import DeviceIdentity, Failure, Fault, Outcome
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.fusion import candidate_fusions, cut_layers, predicted_us
from boltgen.tuning.choice.measured_costs import MeasuredCosts
from boltgen.tuning.choice.select import Decision, Measurements, ModelCosts, Task, select
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.records import Record
from tests.tuning.samples import A100, NO_LAUNCH, TOOLS, record

SM75, SM80 = ARCHES["sm_75"], ARCHES["sm_80"]
RELU = EPILOGUES["bias_relu"]
MARGIN = 1.05


def dense(m: int, n: int, k: int) -> Layer:
    return Layer(problem=Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN), epilogue=RELU)


def block(size: int, channels_in: int, channels: int, stride: int) -> tuple[Layer, ...]:
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
    return tuple(Layer(problem=problem, epilogue=RELU) for problem in (first, second))


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
def test_bolts_own_cases_are_fused(layers: tuple[Layer, ...]) -> None:
    cut = cut_layers(layers, SM75)
    assert cut.counts == (2,)
    assert "one kernel for 2 products" in cut.reasons[0]
    saved = 2 * Workload(layers=layers).intermediate_bytes / 1e6
    assert f"{saved:.1f} MB less traffic, predicted by the analytical model" in cut.reasons[0]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_compute_bound_layers_stay_apart(arch: str) -> None:
    cut = cut_layers((dense(4096, 256, 4096), dense(4096, 256, 256)), ARCHES[arch])
    assert cut.counts == (1, 1)
    assert "not one kernel with the product that follows: " in cut.reasons[0]
    assert "us against" in cut.reasons[0]


def test_layers_that_no_threadblock_holds_stay_apart_and_say_why() -> None:
    cut = cut_layers((dense(4096, 1024, 64), dense(4096, 64, 1024)), SM80)
    assert cut.counts == (1, 1)
    assert "no legal configuration of any kernel family" in cut.reasons[0]
    assert "; b2b: " in cut.reasons[0]


def test_the_cut_is_the_best_of_all_cuts() -> None:
    layers = (
        dense(32768, 64, 64),
        dense(32768, 256, 64),
        dense(32768, 64, 256),
        dense(32768, 16, 64),
    )

    def part_us(begin: int, end: int) -> float:
        part = Workload(layers=layers[begin:end])
        costs = ModelCosts(SM80).costs(part).by_config.values()
        least_us = min(cost for cost in costs if isinstance(cost, float))
        return MARGIN * least_us if part.is_fused else least_us

    times = {}
    for joints in itertools.product((True, False), repeat=3):
        ends = [i + 1 for i, is_cut in enumerate(joints) if is_cut] + [4]
        begins = [0, *ends[:-1]]
        counts = tuple(e - b for b, e in zip(begins, ends, strict=True))
        times[counts] = sum(part_us(b, e) for b, e in zip(begins, ends, strict=True))
    cut = cut_layers(layers, SM80)
    assert times[cut.counts] == pytest.approx(min(times.values()))
    assert len(cut.reasons) == 3


def summed_in(layers: tuple[Layer, ...], dtype: DType) -> tuple[Layer, ...]:
    problems: list[Any] = [layer.problem for layer in layers]
    return tuple(
        replace(layer, problem=replace(problem, acc_dtype=dtype))
        for layer, problem in zip(layers, problems, strict=True)
    )


def decided(workload: Workload, *databases: Database) -> Decision:
    """What `select` chooses for a workload, by what was measured."""
    costs = MeasuredCosts(databases, SM80, TOOLS, A100, ModelCosts(SM80))
    (decision,) = select([Task(workload=workload)], SM80, costs)
    return decision


@pytest.mark.parametrize("dtype", DType.F16.accumulators())
def test_what_is_decided_is_legal_and_sums_in_the_type_asked_for(dtype: DType) -> None:
    workload = Workload(layers=summed_in(BOLT[1], dtype))
    decision = decided(workload)
    assert decision.workload == workload
    assert violations(workload, decision.config, SM80) == ()
    assert decision.time_us == predicted_us(workload, SM80)


def test_the_intermediate_is_no_traffic() -> None:
    workload = Workload(layers=BOLT[2])
    m, n0, k0, n1 = 32768, 128, 576, 64
    moved = operands_bytes(workload) + outputs_bytes(workload)
    assert moved == 2 * (m * k0 + k0 * n0 + n0 * n1 + m * n1)


def test_twice_the_rows_take_about_twice_as_long_where_the_machine_is_full() -> None:
    small, large = (
        Workload(layers=(dense(m, 64, 256), dense(m, 64, 64))) for m in (1 << 19, 1 << 20)
    )
    best = decided(small)
    assert predict(large, best.config, SM80).time_us == pytest.approx(2 * best.time_us, rel=0.05)


# --- by what was measured ------------------------------------------------------------------------

BOUND = (dense(4096, 256, 4096), dense(4096, 256, 256))
HERE = f"measured on {A100.name}, this device"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "records.sqlite") as database:
        yield database


def known(*databases: Database, device: DeviceIdentity = A100) -> tuple[Measurements, ...]:
    return MeasuredCosts(databases, SM80, TOOLS, device, ModelCosts(SM80)).measurements


def alone(layer: Layer, outcome: Outcome | float, **more: Any) -> Record:
    """A record of a layer by itself."""
    workload = Workload(layers=(layer,))
    return record(outcome, workload=workload, config=candidates(workload, SM80)[0], **more)


def together(
    layers: tuple[Layer, ...], outcome: Outcome | float, index: int = 0, **more: Any
) -> Record:
    """A record of layers as one kernel."""
    workload = Workload(layers=layers)
    return record(outcome, workload=workload, config=candidates(workload, SM80)[index], **more)


def test_what_was_measured_faster_as_one_kernel_is_one(database: Database) -> None:
    assert cut_layers(BOUND, SM80).counts == (1, 1), "the model would not"
    database.add([alone(BOUND[0], 70.0), alone(BOUND[1], 40.0), together(BOUND, 109.0, index=1)])
    database.add([together(BOUND, 130.0)])
    cut = cut_layers(BOUND, SM80, measurements=known(database))
    assert cut.counts == (2,), "of two measured times the less is less: without a margin"
    saved = 2 * Workload(layers=BOUND).intermediate_bytes / 1e6
    assert cut.reasons == (
        f"one kernel for 2 products: 109.0 us against 110.0 us apart, {saved:.1f} MB less traffic, "
        f"{HERE}",
    )
    decision = decided(Workload(layers=BOUND), database)
    assert decision.config == together(BOUND, 1.0, index=1).trial.config
    assert (decision.time_us, decision.origin) == (109.0, HERE)


def test_a_layer_whose_weight_a_batch_shares_is_timed_alone_as_a_plain_product(
    database: Database,
) -> None:
    plain = dense(8 * 512, 64, 128)
    shared = replace(plain, problem=plain.problem.gemm.as_batch(8))
    full = replace(plain, problem=replace(shared.problem, n=32, k=64, b_batched=True))
    layers = (shared, full)
    database.add([alone(plain, 30.0), alone(full, 20.0), together(layers, 60.0)])
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (1, 1)
    assert f"60.0 us against 50.0 us apart, {HERE}" in cut.reasons[0]
    also_shared = replace(full, problem=replace(full.problem, b_batched=False))
    (one,) = candidate_fusions((shared, also_shared), SM80)
    assert [layer.problem.batch for layer in one.layers] == [1, 1]


def test_what_was_measured_slower_as_one_kernel_is_cut(database: Database) -> None:
    layers = BOLT[2]
    assert cut_layers(layers, SM80).counts == (2,), "the model would fuse"
    database.add([alone(layers[0], 70.0), alone(layers[1], 40.0), together(layers, 110.5)])
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (1, 1)
    assert cut.reasons == (
        "not one kernel with the product that follows: 110.5 us against 110.0 us apart, " + HERE,
    )


def test_without_a_record_of_every_layer_the_model_decides(database: Database) -> None:
    layers = BOLT[2]
    database.add([alone(layers[0], 70.0), together(layers, 500.0)])
    assert cut_layers(layers, SM80, measurements=known(database)) == cut_layers(layers, SM80)


@pytest.mark.parametrize(("layers", "count"), [(BOLT[2], 1), (BOUND, 2)])
def test_a_fused_kernel_that_was_not_measured_has_the_models_share(
    database: Database, layers: tuple[Layer, ...], count: int
) -> None:
    apart = cut_layers(layers, SM80)
    database.add([alone(layers[0], 7000.0), alone(layers[1], 4000.0)])
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert len(cut.counts) == count == len(apart.counts)
    assert "11000.0 us apart" in cut.reasons[0]
    assert cut.reasons[0].endswith(f"by what the analytical model says of times {HERE}")


def test_a_fusion_whose_kernels_failed_is_cut_and_says_why(database: Database) -> None:
    layers = BOLT[2]
    wrong = Failure(fault=Fault.WRONG_RESULT, reason="3 elements are wrong")
    database.add([alone(layers[0], 70.0), alone(layers[1], 40.0)])
    database.add([together(layers, wrong), together(layers, NO_LAUNCH, index=1)])
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (1, 1)
    assert re.fullmatch(
        r"not one kernel with the product that follows: none of the 2 kernels that were tried has "
        rf"a time, {re.escape(HERE)}; the first failed with: .*(wrong|requested for launch)",
        cut.reasons[0],
    )
    tried = {together(layers, 1.0, index=index).trial.config for index in (0, 1)}
    assert decided(Workload(layers=layers), database).config not in tried


def test_layers_all_of_whose_kernels_failed_have_none(database: Database) -> None:
    layers = BOLT[2]
    count = len(candidates(Workload(layers=layers), SM80))
    database.add([together(layers, NO_LAUNCH, index=index) for index in range(count)])
    with pytest.raises(NoLegalConfigError, match=r"all legal .* failed when they were measured"):
        decided(Workload(layers=layers), database)


def test_this_device_decides_then_its_architecture(database: Database) -> None:
    layers = BOLT[2]
    other = replace(A100, name="NVIDIA A100-PCIE-80GB", memory_bytes=80 << 30)
    database.add(
        [
            alone(layers[0], 70.0, device=other),
            alone(layers[1], 40.0, device=other),
            together(layers, 120.0, device=other),
        ]
    )
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (1, 1)
    assert cut.reasons[0].endswith("measured on NVIDIA A100-PCIE-80GB, of the same sm_80")
    database.add([alone(layers[0], 70.0), alone(layers[1], 40.0), together(layers, 90.0)])
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (2,)
    assert cut.reasons[0].endswith(HERE)


def test_of_three_layers_the_best_measured_cut_is_taken(database: Database) -> None:
    layers = (dense(32768, 64, 64), dense(32768, 32, 64), dense(32768, 64, 32))
    database.add([alone(layer, 50.0) for layer in layers])
    database.add(
        [
            together(layers, 130.0),
            together(layers[:2], 90.0),
            together(layers[1:], 70.0),
        ]
    )
    cut = cut_layers(layers, SM80, measurements=known(database))
    assert cut.counts == (1, 2)
    assert cut.reasons[0] == (
        f"not one kernel with the product that follows: 130.0 us against 120.0 us apart, {HERE}"
    )
    assert cut.reasons[1].startswith("one kernel for 2 products: 70.0 us against 100.0 us apart")


def test_what_is_worth_timing() -> None:
    layers = (*BOLT[2], dense(32768, 512, 64))
    fusions = candidate_fusions(layers, SM80)
    assert fusions == (Workload(layers=BOLT[2]),), "no threadblock holds 512 columns"
    assert len(candidate_fusions(BOUND, SM80)) == 1, "the model would not fuse it, and may err"
    # Few rows of a deep K: alone its slices fill the machine, fused one threadblock sums it all.
    assert candidate_fusions((dense(64, 256, 8192), dense(64, 256, 256)), SM80) == ()
