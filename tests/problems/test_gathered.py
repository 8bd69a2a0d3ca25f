"""Rows that are taken of A: which row each integer is, and problems whose rows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.kernels import EPILOGUES
from boltgen.errors import InputError, InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import IndexType
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.key import canonical
from boltgen.problems.cells import cells, joined, localised, steps
from boltgen.problems.gathered import Gathered
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.oracle import enclose
from boltgen.problems.problem import Problem, describe, gathered
from boltgen.problems.reference import Enclosure
from boltgen.problems.workload import Layer, Workload

IN_ORDER = GroupedGemm(groups=3, m=9, n=6, k=5)
TAKEN = replace(IN_ORDER, a_rows=4, rows_dtype=IndexType.INT64)


def test_an_integer_that_is_no_row_takes_the_nearest() -> None:
    a = np.arange(8).reshape(4, 2)
    how = Gathered(rows=7, of=4, dtype=IndexType.INT64)
    found = how.gather(a, np.array([3, 0, 3, -1, 4, 2**62, -(2**62)]))
    assert found[:, 0].tolist() == [6, 0, 6, 0, 6, 6, 0]


def test_rows_are_those_that_are_taken() -> None:
    rng = np.random.default_rng(1)
    workload = Workload.of(TAKEN, EPILOGUES["residual_before"])
    a, b, bias, residual = (
        rng.standard_normal(shape).astype(np.float16)
        for shape in ((4, 5), TAKEN.b_shape, (6,), (9, 6))
    )
    rows = np.array([3, 3, 0, -2, 1, 9, 2, 0, 1])
    inputs = LayerInputs(b, (bias, residual), ends=np.array([2, 2, 7], np.int32), rows=rows)
    found = enclose(workload, a, [inputs])
    in_order = Workload.of(IN_ORDER, EPILOGUES["residual_before"])
    expected = enclose(in_order, a[np.clip(rows, 0, 3)], [inputs])
    assert np.array_equal(found.exact, expected.exact)
    assert np.array_equal(found.bound, expected.bound)
    for wrong in (rows[:8], rows.astype(np.int32), np.zeros(0)):
        with pytest.raises(InputError, match=r"rows is .*the problem takes int64 \(9,\)"):
            enclose(workload, a, [replace(inputs, rows=wrong)])


def test_it_says_what_it_takes_and_in_order_nothing() -> None:
    assert TAKEN.short == "grouped gemm 9x6x5 of 3 groups, its rows taken of 4"
    assert describe(TAKEN).endswith("out_dtype=float16, a_rows=4, rows_dtype=int64)")
    assert "rows" not in describe(IN_ORDER)
    assert "rows" not in canonical(IN_ORDER)
    assert canonical(TAKEN) != canonical(replace(TAKEN, a_rows=5)) != canonical(IN_ORDER)
    assert decode(Problem, encode(Problem, TAKEN)) == TAKEN
    assert gathered(IN_ORDER) is gathered(Gemm(m=9, n=6, k=5)) is None
    assert gathered(TAKEN) == Gathered(rows=9, of=4, dtype=IndexType.INT64)


def test_bytes_are_of_the_rows_that_differ_and_of_the_integers() -> None:
    assert IN_ORDER.a_bytes == 9 * 5 * 2
    assert TAKEN.a_bytes == 4 * 5 * 2 + 9 * 8
    assert replace(TAKEN, a_rows=1000).a_bytes == 9 * 5 * 2 + 9 * 8
    assert TAKEN.a_shape == (4, 5)
    assert TAKEN.d_shape == (9, 6)


def test_a_norm_takes_rows_too() -> None:
    """Before what is added to them."""
    norm = Norm(rows=5, columns=6, function=NormFunction.RMS, epsilon=1e-6)
    taken = replace(norm, a_rows=3, rows_dtype=IndexType.INT32)
    assert (taken.a_shape, taken.d_shape) == ((3, 6), (5, 6))
    assert taken.a_bytes == 3 * 6 * 2 + 5 * 4
    assert decode(Problem, encode(Problem, taken)) == taken
    rng = np.random.default_rng(2)
    a, other = (rng.standard_normal((n, 6)).astype(np.float16) for n in (3, 5))
    rows = np.array([2, 9, 0, -1, 2], np.int32)
    builder = ElementwiseBuilder()
    builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.TENSOR))
    prologue = builder.build()

    def found(problem: Norm, a: np.ndarray, rows: np.ndarray) -> Enclosure:
        layer = Layer(problem=problem, prologue=prologue)
        inputs = LayerInputs(prologue=(other,), rows=rows)
        return enclose(Workload(layers=(layer,)), a, [inputs])

    actual = found(taken, a, rows)
    expected = found(norm, a[[2, 2, 0, 0, 2]], np.zeros(0))
    assert np.array_equal(actual.exact, expected.exact)
    assert np.array_equal(actual.bound, expected.bound)
    with pytest.raises(InputError, match=r"rows is .*the problem takes int32 \(5,\)"):
        found(taken, a, rows[:4])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a_rows": 4}, "a_rows=4 and rows_dtype=None"),
        ({"rows_dtype": IndexType.INT32}, "a_rows=None and rows_dtype"),
        ({"a_rows": 0, "rows_dtype": IndexType.INT32}, "a_rows=0 is out of range"),
        ({"a_rows": 2**31, "rows_dtype": IndexType.INT32}, "a_rows=2147483648 is out of range"),
    ],
)
def test_what_takes_no_rows_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        replace(IN_ORDER, **change)  # type: ignore[arg-type]


def test_how_many_there_are_to_take_divides_no_range() -> None:
    """Choices are those of the rows that are computed."""
    tokens = symbolic(Symbol("tokens", 1, 512))
    problem = replace(TAKEN, m=2 * tokens, a_rows=tokens)
    workload, _ = localised(Workload.of(problem))
    assert workload.symbols == (Symbol("a_rows", 1, 512), Symbol("m", 2, 1024))
    alone, _ = localised(Workload.of(replace(IN_ORDER, m=2 * tokens)))
    for divided in (cells, steps):
        found, expected = list(divided(workload)), list(divided(alone))
        assert [each.symbols[1] for each in found] == [each.symbols[0] for each in expected]
        assert {each.symbols[0] for each in found} == {Symbol("a_rows", 1, 512)}
        whole = joined(found[0], found[1])
        assert whole is not None
        assert (whole.symbols[1].low, whole.symbols[1].high) == (2, found[1].symbols[1].high)
