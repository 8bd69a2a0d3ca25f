"""Pairs of products: their columns, their sizes, what the oracle says of them, and what is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boltgen.errors import InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import canonical
from boltgen.problems import reference
from boltgen.problems.gemm.pair import halves, interleaved, run_of
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from tests.gated import gated

GATE = gated(UnaryOp.SILU, biases=DType.F16)
PAIR = Gemm(m=6, n=12, k=8, paired=True)


@pytest.mark.parametrize(("columns", "run"), [(16, 4), (12, 4), (6, 2), (7, 1)])
def test_columns_are_runs_by_turns(columns: int, run: int) -> None:
    first = np.arange(3 * columns).reshape(3, columns)
    assert run_of(columns) == run
    whole = interleaved(first, -first, run, axis=1)
    assert whole[0, : 2 * run].tolist() == [*first[0, :run], *-first[0, :run]]
    np.testing.assert_array_equal(halves(whole, run), [first, -first])
    np.testing.assert_array_equal(interleaved(first.T, -first.T, run, axis=0), whole.T)


@pytest.mark.parametrize("layout", list(Layout))
def test_the_oracle_combines_both_products(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    problem = replace(PAIR, b_layout=layout)
    a = rng.uniform(-1, 1, problem.a_shape).astype(np.float16)
    gate, up = rng.uniform(-1, 1, (2, 8, 12)).astype(np.float16)
    biases = rng.uniform(-1, 1, (2, 12)).astype(np.float16)
    b = interleaved(gate, up, problem.run, axis=1)
    b = b if layout is Layout.ROW else np.ascontiguousarray(b.T)
    wide = a.astype(np.float64)
    x, y = (wide @ each + bias for each, bias in zip((gate, up), biases, strict=True))
    wanted = x / (1 + np.exp(-x)) * y
    found = reference.enclosure(problem, GATE, a, b, biases)
    np.testing.assert_allclose(found.exact, wanted, rtol=1e-12)
    # What FP32 and one rounding to FP16 may do, and no more than a few units of that.
    rounded = wanted.astype(np.float16)
    assert reference.compare(rounded, found.exact, found.bound).within
    assert found.bound.max() < 4 * 2.0**-11 * np.abs(wanted).max()
    swapped = interleaved(up, gate, problem.run, axis=1)
    swapped = swapped if layout is Layout.ROW else np.ascontiguousarray(swapped.T)
    other = reference.run(problem, GATE, a, swapped, biases).astype(np.float16)
    assert not reference.compare(other, found.exact, found.bound).within


def test_sizes_are_those_of_both_products() -> None:
    assert PAIR.b_shape == (8, 24)
    assert PAIR.d_shape == (6, 12)
    assert PAIR.sizes["n"] == PAIR.sizes["ldd"] == 12
    assert PAIR.sizes["ldb"] == 24
    assert (PAIR.alignment_b, PAIR.alignment_d) == (8, 4)
    assert PAIR.unpaired == Gemm(m=6, n=24, k=8)
    assert (PAIR.flops, PAIR.b_bytes) == (PAIR.unpaired.flops, PAIR.unpaired.b_bytes)
    assert PAIR.short == "2 x gemm 6x12x8"
    assert Workload.of(PAIR, GATE).plain == Workload.of(PAIR.unpaired)


def test_records_and_keys_know_pairs_and_nothing_else_changes() -> None:
    pair, one = Workload.of(PAIR, GATE), Workload.of(PAIR.unpaired)
    assert decode(Workload, encode(Workload, pair)) == pair
    assert "paired" not in str(encode(Workload, one)) + canonical(one)
    assert "second" not in str(encode(Workload, one)) + canonical(one)
    assert "paired" in canonical(pair)


@pytest.mark.parametrize(
    ("problem", "epilogue"),
    [(PAIR, ElementwiseGraph()), (PAIR.unpaired, GATE)],
    ids=["one accumulator", "one product"],
)
def test_two_accumulators_and_a_pair_go_together(problem: Gemm, epilogue: ElementwiseGraph) -> None:
    with pytest.raises(InvalidProblemError, match="second accumulator if and only if"):
        Layer(problem=problem, epilogue=epilogue)


def test_a_prologue_and_a_batch_have_no_pair() -> None:
    with pytest.raises(InvalidProblemError, match="second accumulator"):
        Layer(problem=PAIR, epilogue=GATE, prologue=GATE)
    with pytest.raises(InvalidProblemError, match="a pair has batch=1"):
        replace(PAIR, batch=2)
