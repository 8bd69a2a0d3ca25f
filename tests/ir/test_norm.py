"""Norms in FP64: FP32 computations of them lie in their bounds, and wrong ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.ir.dtypes import DType
from boltgen.ir.norm import Norm, NormFunction
from boltgen.ir.oracle import LayerInputs, enclose
from boltgen.ir.reference import compare
from boltgen.ir.workload import Workload

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
