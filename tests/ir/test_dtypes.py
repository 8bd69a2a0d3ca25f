"""The rows of element types against NumPy, and what no row or case is known for."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import numpy as np
import pytest

from boltgen.arch import ARCHES
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseBuilder
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from boltgen.partitioned import accumulator_named


@pytest.mark.parametrize("dtype", DType)
def test_a_rows_figures_are_numpys(dtype):
    limits = np.finfo(dtype.numpy)
    assert dtype.size_bytes == dtype.numpy.itemsize
    assert dtype.ulp == float(limits.eps)
    assert dtype.largest == float(limits.max)
    assert dtype.smallest_normal == float(limits.tiny)
    assert dtype.smallest_subnormal == float(limits.smallest_subnormal)
    with np.errstate(over="ignore"):
        below = np.nextafter(dtype.overflow_threshold, 0.0)
        assert np.float64(below).astype(dtype.numpy) == limits.max
        assert np.isinf(np.float64(dtype.overflow_threshold).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_is_one_value(dtype):
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is DType(dtype.value) is dtype


@pytest.mark.parametrize("operand", DType)
@pytest.mark.parametrize("accumulator", DType)
def test_only_what_an_instruction_sums_in_is_an_accumulator(operand, accumulator):
    expected = operand is DType.F16
    assert (accumulator in operand.accumulators()) == expected
    assert (operand.accumulator_rejection(accumulator) is None) == expected
    for arch in ARCHES.values():
        reason = operand.accumulator_rejection(accumulator, arch.compute_capability)
        assert (reason is None) == expected


def test_an_instruction_that_is_newer_than_the_arch_is_named():
    assert DType.F16.accumulators((7, 0)) == ()
    reason = DType.F16.accumulator_rejection(DType.F32, (7, 0))
    assert reason is not None
    assert all(word in reason for word in ("sm_70", "float16", "float32", "no type"))


@pytest.mark.parametrize("name", ["int8", "bfloat16", "tf32", "", "float64"])
def test_another_accumulator_is_refused_by_name(name):
    with pytest.raises(InvalidProblemError, match=f"'{name}'.*'float32' or 'float16'"):
        accumulator_named(name)


@pytest.mark.parametrize(
    "problem",
    [
        Gemm(m=8, n=8, k=8),
        BatchedGemm(batch=2, m=8, n=8, k=8),
        Conv2d(n=1, h=4, w=4, c=8, k=8, r=1, s=1),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_problem_asks_the_row_for_its_accumulator(problem, monkeypatch):
    monkeypatch.setattr(DType.F16, "_accumulators", {"float32": (7, 5)})
    with pytest.raises(InvalidProblemError, match=r"float16 in float16.*float32"):
        type(problem)(
            **{
                **{name: getattr(problem, name) for name in problem.__dataclass_fields__},
                "acc_dtype": DType.F16,
            }
        )


@pytest.mark.parametrize("dtype", DType)
def test_every_cast_is_emitted_or_needless(dtype):
    builder = ElementwiseBuilder()
    builder.cast(0, dtype)
    (statement,) = emit_epilogue(builder.build()).statements
    assert ("round_to_half(acc)" in statement) == (dtype is DType.F16)


def test_a_dtype_without_a_case_is_named():
    class Fp8:
        """A type of which no match knows."""

        cutlass = "cutlass::float_e4m3_t"

    builder = ElementwiseBuilder()
    builder.cast(0, cast(Any, Fp8()))
    with pytest.raises(AssertionError, match="Fp8"):
        emit_epilogue(builder.build())
    with pytest.raises(AssertionError, match="no case for 7, of type int"):
        assert_never(cast(Any, 7))
