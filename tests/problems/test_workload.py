"""Workloads: canonical when made, what fits together, what is refused and with which numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases.kernels import EPILOGUES
from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.key import digest
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.reference import run
from boltgen.problems.workload import MAX_LAYERS, Layer, Workload

FIRST, SECOND = Gemm(m=100, n=64, k=256), Gemm(m=100, n=16, k=64)
CONV = Conv2d(n=2, h=56, w=56, c=48, k=32, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1))
POINTWISE = Conv2d(n=2, h=28, w=28, c=32, k=64, r=1, s=1)
SHARED_B = Gemm(batch=3, m=8, n=16, k=8, b_batched=False)
BIAS_RELU = EPILOGUES["bias_relu"]


def back_to_back(*problems, epilogue=BIAS_RELU):
    return Workload(layers=tuple(Layer(problem=p, epilogue=epilogue) for p in problems))


def problems_of(workload):
    return [layer.problem for layer in workload.layers]


# --- canonical -----------------------------------------------------------------------------------


def test_a_pointwise_convolution_is_a_product():
    assert Workload.of(POINTWISE).single.problem == Gemm(
        m=2 * 28 * 28, n=64, k=32, b_layout=Layout.COLUMN
    )
    # On one pixel at a time nothing is dilated.
    assert Workload.of(replace(POINTWISE, dilation=(2, 1))) == Workload.of(POINTWISE)


@pytest.mark.parametrize("change", [{"stride": (1, 2)}, {"padding": (0, 0, 0, 1)}, {"r": 3}])
def test_other_convolutions_stay_as_they_are(change):
    problem = replace(POINTWISE, **change)
    assert Workload.of(problem).single.problem == problem


def test_a_batch_that_shares_b_is_one_product_of_more_rows():
    assert Workload.of(SHARED_B).single.problem == Gemm(m=24, n=16, k=8)


@pytest.mark.parametrize("shared", [{"a_batched": False}, {}, {"a_batched": False} | {"m": 1}])
def test_a_batch_that_has_a_b_for_each_stays_a_batch(shared):
    problem = replace(SHARED_B, b_batched=True, **shared)
    assert Workload.of(problem).single.problem == problem
    assert Workload.of(problem).batch == 3


def test_a_batch_that_shares_both_stays_a_batch():
    problem = replace(SHARED_B, a_batched=False)
    assert Workload.of(problem).single.problem == problem


def test_a_batch_of_more_rows_than_an_extent_may_have_stays_a_batch():
    problem = replace(SHARED_B, m=2**30)
    assert Workload.of(problem).single.problem == problem
    assert Workload.of(replace(problem, batch=2, m=2**30 - 1)).single.problem.m == 2**31 - 2


def test_a_batch_is_folded_in_all_layers_or_in_none():
    then = replace(SHARED_B, n=4, k=16)
    assert problems_of(back_to_back(SHARED_B, then)) == [
        Gemm(m=24, n=16, k=8),
        Gemm(m=24, n=4, k=16),
    ]
    mixed = back_to_back(SHARED_B, replace(then, b_batched=True))
    assert problems_of(mixed) == [SHARED_B, replace(then, b_batched=True)]
    assert mixed.batch == 3
    shared_a = replace(SHARED_B, a_batched=False, b_batched=True)
    assert problems_of(back_to_back(shared_a, then)) == [shared_a, then]


def test_pointwise_convolutions_behind_a_convolution_are_products_of_its_pixels():
    workload = back_to_back(CONV, POINTWISE, epilogue=ElementwiseGraph())
    assert problems_of(workload) == [CONV, Gemm(m=2 * 28 * 28, n=64, k=32, b_layout=Layout.COLUMN)]
    all_products = back_to_back(replace(POINTWISE, c=48, k=32), POINTWISE)
    assert problems_of(all_products)[0] == Gemm(m=2 * 28 * 28, n=32, k=48, b_layout=Layout.COLUMN)


small = st.integers(1, 4)


@given(
    st.one_of(
        st.builds(
            Gemm, batch=st.integers(2, 3), m=small, n=small, k=small,
            a_batched=st.booleans(), b_batched=st.booleans(), b_layout=st.sampled_from(Layout),
        ),
        st.builds(Conv2d, n=small, h=small, w=small, c=small, k=small, r=st.just(1), s=st.just(1)),
    )
)  # fmt: skip
def test_the_canonical_problem_computes_the_same_of_the_same_memory(problem):
    canonical = problem.canonical
    assert canonical.canonical == canonical
    assert canonical.flops == problem.flops
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape).astype(np.float16)
        for shape in (problem.a_shape, problem.b_shape)
    )
    expected = run(problem, ElementwiseGraph(), a, b, [])
    a, b = a.reshape(canonical.a_shape), b.reshape(canonical.b_shape)
    got = run(canonical, ElementwiseGraph(), a, b, [])
    assert np.allclose(got.reshape(expected.shape), expected, rtol=1e-14, atol=1e-14)


def test_a_workload_of_canonical_problems_is_left_alone():
    for workload in (back_to_back(CONV, POINTWISE), back_to_back(SHARED_B), Workload.of(FIRST)):
        assert Workload(layers=workload.layers) == workload


# --- what fits together --------------------------------------------------------------------------


def test_layers_that_fit():
    workload = back_to_back(FIRST, SECOND, Gemm(m=100, n=8, k=16))
    assert workload.is_fused
    assert (workload.first.problem, workload.last.problem.n) == (FIRST, 8)
    assert workload.batch == 1
    assert workload.flops == sum(problem.flops for problem in problems_of(workload))
    assert not Workload.of(FIRST).is_fused
    with pytest.raises(InvalidProblemError, match="3 layers where one is wanted"):
        _ = workload.single


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ((), f"Workload: 0 layers; it has 1 to {MAX_LAYERS}"),
        ((FIRST, *[Gemm(m=100, n=64, k=64)] * 8), "Workload: 9 layers"),
        ((FIRST, replace(SECOND, m=99)), "layer 1 has m=99; the output of layer 0 makes it 100"),
        ((FIRST, SECOND, Gemm(m=100, n=8, k=8)), "layer 2 has k=8; the output of layer 1 .* 16"),
        ((FIRST, CONV), r"layer 1 is Conv2d\(n=2, h=56.*from the second layer on"),
        (
            (FIRST, Gemm(batch=2, m=100, n=16, k=64)),
            "layer 1 has batch=2; the output of layer 0 makes it 1",
        ),
        (
            (replace(FIRST, out_dtype=DType.F32), SECOND),
            "layer 0 gives float32; layer 1 multiplies float16",
        ),
        (
            (Gemm(batch=2, m=8, n=8, k=8), Gemm(batch=3, m=8, n=8, k=8)),
            "layer 1 has batch=3; the output of layer 0 makes it 2",
        ),
        (
            (Gemm(batch=2, m=8, n=8, k=8), Gemm(batch=2, m=8, n=8, k=8, a_batched=False)),
            "layer 1 shares A between the products of the batch",
        ),
    ],
)
def test_layers_that_do_not_fit(problems, message):
    with pytest.raises(InvalidProblemError, match=message):
        back_to_back(*problems)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": 31}, "layer 1 has k=31; the output of layer 0 makes it 32"),
        ({"h": 56}, "layer 1 has m=3136; the output of layer 0 makes it 1568"),
        ({"r": 3}, "layer 1 is Conv2d.* r=3, s=1.* a 1x1 convolution of stride 1 without padding"),
        ({"stride": (1, 2)}, r"layer 1 is Conv2d.* stride=\(1, 2\)"),
        ({"padding": (0, 0, 0, 1)}, r"layer 1 is Conv2d.* padding=\(0, 0, 0, 1\)"),
    ],
)
def test_convolutions_that_do_not_fit(change, message):
    with pytest.raises(InvalidProblemError, match=message):
        back_to_back(CONV, replace(POINTWISE, **change))


# --- what is said of one -------------------------------------------------------------------------


def test_what_lies_between_layers():
    assert back_to_back(FIRST).intermediate_bytes == 0
    assert back_to_back(FIRST, SECOND).intermediate_bytes == 2 * 100 * 64
    three = back_to_back(FIRST, SECOND, Gemm(m=100, n=8, k=16))
    assert three.intermediate_bytes == 2 * 100 * 80
    assert back_to_back(CONV, POINTWISE).intermediate_bytes == 2 * 2 * 28 * 28 * 32
    batch = replace(SHARED_B, b_batched=True)
    assert back_to_back(batch, replace(batch, n=4, k=16)).intermediate_bytes == 2 * 3 * 8 * 16


def test_the_plain_workload_has_no_epilogues():
    assert back_to_back(FIRST, SECOND).plain == back_to_back(
        FIRST, SECOND, epilogue=ElementwiseGraph()
    )
    before = Layer(problem=FIRST, prologue=EPILOGUES["relu"])
    assert Workload(layers=(before,)).plain == Workload.of(FIRST)


def test_keys_tell_workloads_apart():
    workloads = [
        back_to_back(FIRST, SECOND),
        back_to_back(FIRST, SECOND, epilogue=ElementwiseGraph()),
        back_to_back(FIRST, replace(SECOND, n=8)),
        back_to_back(FIRST, SECOND, Gemm(m=100, n=8, k=16)),
        back_to_back(CONV, POINTWISE),
        Workload.of(FIRST),
        Workload(layers=(Layer(problem=FIRST, prologue=BIAS_RELU),)),
        Workload(layers=(Layer(problem=FIRST, epilogue=BIAS_RELU),)),
    ]
    assert len({digest(each) for each in workloads}) == len(set(workloads)) == len(workloads)
    assert digest(back_to_back(FIRST, SECOND)) == digest(workloads[0])


def test_a_workload_is_described_on_one_line():
    workload = back_to_back(FIRST, SECOND)
    assert workload.describe().startswith("Gemm(m=100, n=64, k=256, b_layout=row")
    assert workload.describe().count("-> relu(add(acc, row0))") == 2
    assert "\n" not in workload.describe()
    assert workload.short == "one kernel: gemm 100x64x256; gemm 100x16x64"
    assert workload.epilogues == "relu(add(acc, row0)); relu(add(acc, row0))"
    batch = Workload.of(replace(SHARED_B, b_batched=True))
    assert batch.short == "3 x gemm 8x16x8"
    before = Workload(layers=(Layer(problem=FIRST, prologue=EPILOGUES["relu"]),))
    assert before.describe().startswith("relu(acc) -> Gemm(")
