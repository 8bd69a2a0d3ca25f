"""Norms in FP64: FP32 computations of them lie in their bounds, and wrong ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.errors import InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import DType
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.oracle import enclose
from boltgen.problems.problem import Problem
from boltgen.problems.reference import compare
from boltgen.problems.workload import Workload

ROWS, COLUMNS = 6, 515
F32 = np.float32


def _workload(function: NormFunction) -> Workload:
    epsilon = 0.0 if function is NormFunction.SOFTMAX else 1e-5
    types = {"in_dtype": DType.F32, "out_dtype": DType.F32}
    return Workload.of(
        Norm(rows=ROWS, columns=COLUMNS, function=function, epsilon=epsilon, **types)
    )


def _in_fp32(function: NormFunction, a: np.ndarray) -> np.ndarray:
    if function is NormFunction.SOFTMAX:
        raised = np.exp(a - a.max(-1, keepdims=True), dtype=F32)
        return raised / raised.sum(-1, keepdims=True, dtype=F32)
    if function is NormFunction.LAYER:
        a = a - a.mean(-1, keepdims=True, dtype=F32)
    return a / np.sqrt(np.mean(a * a, -1, keepdims=True, dtype=F32) + F32(1e-5))


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e3])
@pytest.mark.parametrize("function", NormFunction)
def test_fp32_lies_within_the_bound(function: NormFunction, offset: float) -> None:
    a = (np.random.default_rng(1).standard_normal((ROWS, COLUMNS)) + offset).astype(F32)
    found = enclose(_workload(function), a, [LayerInputs()])
    agreement = compare(_in_fp32(function, a), found.exact, found.bound)
    assert agreement.within, str(agreement)
    assert np.isfinite(found.bound).all()


@pytest.mark.parametrize("function", NormFunction)
def test_a_column_that_is_left_out_is_beyond_the_bound(function: NormFunction) -> None:
    a = np.random.default_rng(2).standard_normal((ROWS, COLUMNS)).astype(F32)
    found = enclose(_workload(function), a, [LayerInputs()])
    wrong = a.copy()
    wrong[:, -1] = 0.0
    assert not compare(_in_fp32(function, wrong), found.exact, found.bound).within


@pytest.mark.parametrize("function", NormFunction)
def test_nan_and_infinity_are_certain_in_their_row_and_overflow_is_free(
    function: NormFunction,
) -> None:
    a = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(F32)
    a[0, 3], a[1, 5], a[2] = np.nan, np.inf, 3e38
    found = enclose(_workload(function), a, [LayerInputs()])
    assert np.isnan(found.exact[0]).all()
    assert not found.bound[0].any()
    assert np.isnan(found.exact[1, 5])
    assert found.bound[1, 5] == 0.0
    if function is not NormFunction.SOFTMAX:
        assert np.isinf(found.bound[2]).all()
    assert np.isfinite(found.bound[3:]).all()


IMAGES = {"n": 3, "h": 5, "w": 7, "c": 12, "epsilon": 1e-5, "in_dtype": DType.F32}


@pytest.mark.parametrize("groups", [1, 4, 12])
def test_a_group_norm_of_images_is_that_of_their_channels_first(groups: int) -> None:
    problem = GroupNorm(groups=groups, out_dtype=DType.F32, **IMAGES)
    a = (np.random.default_rng(4).standard_normal(problem.a_shape) + 2.0).astype(F32)
    found = enclose(Workload.of(problem), a, [LayerInputs()])
    rows = np.ascontiguousarray(a.transpose(0, 3, 1, 2)).reshape(3 * groups, -1)
    normed = _in_fp32(NormFunction.LAYER, rows).reshape(3, 12, 5, 7).transpose(0, 2, 3, 1)
    agreement = compare(normed, found.exact, found.bound)
    assert agreement.within, str(agreement)
    assert found.bound.max() < 1e-3
    np.testing.assert_array_equal(problem.as_stored(problem.as_rows(a)), a)


def test_a_group_norm_knows_its_sizes_and_its_json_form() -> None:
    problem = GroupNorm(groups=4, **IMAGES)
    assert problem.matrix == (105, 12)
    assert problem.sizes == {"n": 3, "pixels": 35, "channels": 12, "groups": 4}
    assert problem.short == "group_norm 3x5x7x12 in 4 groups"
    assert decode(Problem, encode(Problem, problem)) == problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 5}, "c=12 channels; they must be a multiple of groups=5"),
        ({"groups": 0}, "groups=0"),
        ({"groups": 4, "epsilon": float("nan")}, "epsilon=nan"),
        ({"groups": 1, "h": 2**16, "w": 2**13}, "columns="),
    ],
)
def test_a_group_norm_that_means_nothing_is_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        GroupNorm(**{**IMAGES, **change})
