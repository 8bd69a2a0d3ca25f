"""Products of rows in groups: what is right, and what no such problem is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.kernels import EPILOGUES
from boltgen.errors import InputError, InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.problem import Problem
from boltgen.problems.reference import compare
from boltgen.problems.workload import Layer, Workload

PROBLEM = GroupedGemm(groups=4, m=9, n=6, k=5, b_layout=Layout.COLUMN)


def _inputs(rng, ends, shapes=()):
    a, b, *operands = (
        rng.standard_normal(shape).astype(np.float16)
        for shape in (PROBLEM.a_shape, PROBLEM.b_shape, *shapes)
    )
    return a, LayerInputs(b, tuple(operands), ends=np.array(ends, np.int32))


@pytest.mark.parametrize(
    ("ends", "group_of_rows"),
    [
        ([2, 2, 5, 9], [0, 0, 2, 2, 2, 3, 3, 3, 3]),
        ([2, 3, 4, 6], [0, 0, 1, 2, 3, 3, -1, -1, -1]),
        ([4, 1, 99, -5], [0, 0, 0, 0, 2, 2, 2, 2, 2]),
    ],
    ids=["empty", "rest", "wild"],
)
def test_each_row_is_multiplied_with_the_matrix_of_its_group(ends, group_of_rows):
    """By an FP32 product of each row alone; operands are those of the row."""
    rng = np.random.default_rng(1)
    workload = Workload.of(PROBLEM, EPILOGUES["residual_before"])
    a, inputs = _inputs(rng, ends, [(6,), (9, 6)])
    bias, residual = (each.astype(np.float32) for each in inputs.operands)
    matrices = np.concatenate([inputs.b, np.zeros_like(inputs.b[:1])]).astype(np.float32)
    products = np.stack(
        [row @ matrices[g].T for row, g in zip(a.astype(np.float32), group_of_rows, strict=True)]
    )
    actual = np.maximum(products + bias + residual, 0).astype(np.float16)
    found = enclose(workload, a, [inputs])
    assert compare(actual, found.exact, found.bound).within
    # The matrix of the group beside is another.
    other = enclose(workload, a, [replace(inputs, b=np.roll(inputs.b, 1, axis=0))])
    assert not compare(actual, other.exact, other.bound).within


def test_rows_of_no_group_are_exactly_zero():
    a, inputs = _inputs(np.random.default_rng(2), [0, 0, 0, 3])
    inputs.b[:] = np.inf
    found = enclose(Workload.of(PROBLEM), a, [inputs])
    assert not found.exact[3:].any()
    assert not found.bound[3:].any()


@pytest.mark.parametrize(
    "ends", [np.zeros(3, np.int32), np.zeros(4, np.int64), np.zeros(0)], ids=["few", "long", "none"]
)
def test_ends_of_another_shape_or_type_are_refused(ends):
    a, inputs = _inputs(np.random.default_rng(3), [9, 9, 9, 9])
    with pytest.raises(InputError, match=r"ends is .*the problem takes int32 \(4,\)"):
        enclose(Workload.of(PROBLEM), a, [replace(inputs, ends=ends)])


def test_sums_of_rows_or_columns_have_no_oracle():
    builder = ElementwiseBuilder()
    builder.store(0)
    builder.store(0, kind=LoadKind.ROW, dtype=DType.F32, reduction=Reduction.SUM)
    a, inputs = _inputs(np.random.default_rng(4), [9, 9, 9, 9])
    with pytest.raises(InvalidProblemError, match="no oracle for rows in groups"):
        enclose(Workload.of(PROBLEM, builder.build()), a, [inputs])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": 65536}, "groups=65536; kernels take 65535 at most"),
        ({"groups": 0}, "groups=0 is out of range"),
        ({"k": 0}, "k=0 is out of range"),
        ({"in_dtype": DType.F32}, "operands are float32"),
    ],
)
def test_what_is_no_such_problem_is_refused(change, said):
    with pytest.raises(InvalidProblemError, match=said):
        replace(PROBLEM, **change)


def test_no_layer_follows_rows_in_groups():
    follows = Layer(problem=Gemm(m=9, n=4, k=6))
    with pytest.raises(InvalidProblemError, match="its rows are in groups, and no layer follows"):
        Workload(layers=(Layer(problem=PROBLEM, epilogue=ElementwiseGraph()), follows))


def test_its_product_asks_for_ends():
    with pytest.raises(InvalidProblemError, match="not known without its ends"):
        PROBLEM.product(np.zeros(PROBLEM.a_shape), np.zeros(PROBLEM.b_shape))


def test_it_has_a_form_in_records():
    problem = replace(PROBLEM, ends_dtype=IndexType.INT64)
    assert decode(Problem, encode(Problem, problem)) == problem
