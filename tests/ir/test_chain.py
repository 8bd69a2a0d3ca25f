"""Chains: what fits together, what is refused with which words, and the identity of equal ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boltgen.errors import InvalidProblemError
from boltgen.ir.chain import (
    ChainLayer,
    Conv2dChain,
    GemmChain,
    as_gemm_chain,
    batch_of,
    describe_chain,
    execution_chain,
    implicit_gemm,
    intermediate_bytes,
)
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.key import digest
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from tests.cases import EPILOGUES

FIRST, SECOND = Gemm(m=100, n=64, k=256), Gemm(m=100, n=16, k=64)
CONV = Conv2d(n=2, h=56, w=56, c=48, k=32, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1))
POINTWISE = Conv2d(n=2, h=28, w=28, c=32, k=64, r=1, s=1)


def gemms(*problems, epilogue=EPILOGUES["bias_relu"]):
    return GemmChain(layers=tuple(ChainLayer(problem=p, epilogue=epilogue) for p in problems))


def convolutions(*problems):
    return Conv2dChain(
        layers=tuple(ChainLayer(problem=p, epilogue=ElementwiseGraph()) for p in problems)
    )


def test_chains_that_fit():
    assert len(gemms(FIRST, SECOND, Gemm(m=100, n=8, k=16)).layers) == 3
    assert convolutions(CONV, POINTWISE).convolution(0) == CONV
    batched = BatchedGemm(batch=3, m=8, n=16, k=8, a_batched=False)
    assert batch_of(gemms(batched, replace(batched, a_batched=True, n=4, k=16))) == 3
    assert batch_of(gemms(FIRST, SECOND)) == 1


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ((FIRST,), "GemmChain: 1 layers; a chain has 2 to 8"),
        ((), "GemmChain: 0 layers"),
        ((FIRST, *[Gemm(m=100, n=64, k=64)] * 8), "GemmChain: 9 layers"),
        ((FIRST, replace(SECOND, m=99)), "layer 1 has m=99; the output of layer 0 makes it 100"),
        ((FIRST, SECOND, Gemm(m=100, n=8, k=8)), "layer 2 has k=8; the output of layer 1 .* 16"),
        ((FIRST, CONV), "layer 1 is a Conv2d; this chain is of Gemm throughout"),
        ((FIRST, BatchedGemm(batch=2, m=100, n=16, k=64)), "layer 1 is a BatchedGemm; .* of Gemm"),
        ((replace(FIRST, out_dtype=DType.F32), SECOND), "layer 0 gives float32; .* is float16"),
        (
            (BatchedGemm(batch=2, m=8, n=8, k=8), BatchedGemm(batch=3, m=8, n=8, k=8)),
            "layer 1 has batch=3; the output of layer 0 makes it 2",
        ),
        (
            (
                BatchedGemm(batch=2, m=8, n=8, k=8),
                BatchedGemm(batch=2, m=8, n=8, k=8, a_batched=False),
            ),
            "layer 1 shares A between the products of the batch",
        ),
    ],
)
def test_products_that_do_not_fit(problems, message):
    with pytest.raises(InvalidProblemError, match=message):
        gemms(*problems)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": 31}, "layer 1 has c=31; the output of layer 0 makes it 32"),
        ({"h": 56}, "layer 1 has h=56; the output of layer 0 makes it 28"),
        ({"r": 3}, "layer 1 has a 3x1 filter, .* filters are 1x1 with stride 1, no padding"),
        ({"stride": (1, 2)}, r"layer 1 has a 1x1 filter, stride \(1, 2\)"),
        ({"padding": (0, 0, 0, 1)}, r"padding \(0, 0, 0, 1\)"),
        ({"dilation": (2, 1)}, r"dilation \(2, 1\)"),
    ],
)
def test_convolutions_that_do_not_fit(change, message):
    with pytest.raises(InvalidProblemError, match=message):
        convolutions(CONV, replace(POINTWISE, **change))


def test_a_pointwise_chain_runs_as_products():
    chain = convolutions(replace(POINTWISE, c=48, k=32), POINTWISE)
    expected = gemms(
        Gemm(m=2 * 28 * 28, n=32, k=48, b_layout=Layout.COLUMN),
        Gemm(m=2 * 28 * 28, n=64, k=32, b_layout=Layout.COLUMN),
        epilogue=ElementwiseGraph(),
    )
    assert as_gemm_chain(chain) == execution_chain(chain) == expected
    other = convolutions(CONV, POINTWISE)
    assert execution_chain(other) is other
    assert execution_chain(expected) is expected
    with pytest.raises(InvalidProblemError, match=r"r=3, .* is no plain matrix product"):
        as_gemm_chain(other)


def test_what_lies_between_layers():
    assert intermediate_bytes(gemms(FIRST, SECOND)) == 2 * 100 * 64
    assert intermediate_bytes(gemms(FIRST, SECOND, Gemm(m=100, n=8, k=16))) == 2 * 100 * 80
    assert intermediate_bytes(convolutions(CONV, POINTWISE)) == 2 * 2 * 28 * 28 * 32
    assert implicit_gemm(convolutions(CONV, POINTWISE).layers[0]).k == 9 * 48


def test_keys_tell_chains_apart():
    chains = [
        gemms(FIRST, SECOND),
        gemms(FIRST, SECOND, epilogue=ElementwiseGraph()),
        gemms(FIRST, replace(SECOND, n=8)),
        gemms(FIRST, SECOND, Gemm(m=100, n=8, k=16)),
        convolutions(CONV, POINTWISE),
    ]
    assert len({digest(chain) for chain in chains}) == len(set(chains)) == len(chains)
    assert digest(gemms(FIRST, SECOND)) == digest(chains[0])


def test_a_chain_is_described_on_one_line():
    text = describe_chain(gemms(FIRST, SECOND))
    assert text.startswith("GemmChain(Gemm(m=100, n=64, k=256, b_layout=row")
    assert text.count("-> relu(add(acc, row0))") == 2
    assert "\n" not in text
