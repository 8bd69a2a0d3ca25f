"""Rows of slices: which problems have them, and what the oracle makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.errors import InputError, InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.problem import describe
from boltgen.problems.slices import loaded_shape, slices
from boltgen.problems.workload import Layer, Workload

_CONV = Conv2d(n=2, h=5, w=4, c=8, k=3, r=1, s=1)


def _added() -> ElementwiseGraph:
    b = ElementwiseBuilder()
    b.binary(BinaryOp.ADD, 0, b.load(LoadKind.SLICE_ROW, DType.F32))
    return b.build()


def test_the_last_slice_may_be_shorter() -> None:
    problem = Gemm(m=7, n=2, k=1, slice_rows=3)
    assert slices(problem) == 3
    rows = np.array([[10, 20], [30, 40], [50, 60]], np.float32)
    a, b = np.zeros((7, 1), np.float16), np.zeros((1, 2), np.float16)
    made = reference.run(problem, _added(), a, b, [rows])
    assert made.tolist() == [[10, 20]] * 3 + [[30, 40]] * 3 + [[50, 60]]
    with pytest.raises(InputError, match=r"operand 0.*\(3, 2\)"):
        reference.run(problem, _added(), a, b, [rows[:2]])


def test_each_slice_has_the_same_positions() -> None:
    b = ElementwiseBuilder()
    b.binary(BinaryOp.ADD, 0, b.load(LoadKind.POSITION_ROW, DType.F32))
    problem = Gemm(m=5, n=2, k=1, slice_rows=3)
    rows = np.array([[10, 20], [30, 40], [50, 60]], np.float32)
    a, b_zeros = np.zeros((5, 1), np.float16), np.zeros((1, 2), np.float16)
    made = reference.run(problem, b.build(), a, b_zeros, [rows])
    assert made.tolist() == [[10, 20], [30, 40], [50, 60], [10, 20], [30, 40]]
    with pytest.raises(InputError, match=r"operand 0.*\(3, 2\)"):
        reference.run(problem, b.build(), a, b_zeros, [rows[:2]])
    assert loaded_shape(problem, LoadKind.POSITION_ROW, 2) == (3, 2)
    assert loaded_shape(problem, LoadKind.SLICE_ROW, 2) == (2, 2)


def test_those_of_images_are_their_pixels() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    conv = Conv2d(n=2, h=5, w=4, c=8, k=3, r=3, s=3, padding=(1, 1, 1, 1))
    zeros = np.zeros(conv.a_shape, np.float16), np.zeros(conv.b_shape, np.float16)
    made = reference.run(conv, _added(), *zeros, [rows])
    assert np.array_equal(made, np.broadcast_to(rows[:, None, None], conv.d_shape))
    assert slices(GroupNorm(n=3, h=5, w=4, c=8, groups=2)) == 3


def test_a_workload_has_slices_where_it_loads_rows_of_them() -> None:
    own = Workload.of(_CONV, _added()).single.problem
    assert own == _CONV.gemm.in_slices(20)
    assert "slice_rows=20" in describe(own)
    norm = Norm(rows=6, columns=8, function=NormFunction.RMS, slice_rows=2)
    assert Workload.of(norm, _added()).single.problem == norm
    for problem in (_CONV.gemm.in_slices(20), norm):
        plain = Workload.of(problem).single.problem
        assert plain == problem.in_slices(0)
        assert "slice_rows" not in describe(plain)


def test_other_slices_are_asked_for_where_the_shape_does_not_say() -> None:
    tokens = symbolic(Symbol("tokens", 2, 64))
    workload = Workload.of(Gemm(m=2 * tokens, n=8, k=8, slice_rows=tokens), _added())
    assert workload.sliced(5).single.problem.slice_rows == 5
    conv = Conv2d(n=2, h=5, w=4, c=8, k=3, r=3, s=3)
    assert Workload.of(conv, _added()).sliced(5).single.problem == conv
    assert Workload.of(conv.gemm).sliced(5).single.problem == conv.gemm


def test_rows_in_no_slices_are_refused() -> None:
    grouped = GroupedGemm(groups=2, m=8, n=8, k=8)
    for problem in (Gemm(m=8, n=8, k=8), grouped, Gemm(m=8, n=8, k=8, batch=2)):
        with pytest.raises(InvalidProblemError, match="rows of slices or positions, but has none"):
            Layer(problem=problem, epilogue=_added())
    with pytest.raises(InvalidProblemError, match="slice_rows=4 of batch=2"):
        Gemm(m=8, n=8, k=8, batch=2, slice_rows=4)
    with pytest.raises(InvalidProblemError, match="slice_rows=-1 is out of range"):
        Norm(rows=8, columns=8, function=NormFunction.RMS, slice_rows=-1)


def test_nothing_is_stored_for_each_slice() -> None:
    b = ElementwiseBuilder()
    b.store(0)
    b.store(0, LoadKind.SLICE_ROW, DType.F32, Reduction.SUM)
    with pytest.raises(InvalidProblemError, match="store 1 is a slice_row, which is only loaded"):
        b.build()
