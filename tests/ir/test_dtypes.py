"""The rows of element types against NumPy, and what no row or case is known for."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from boltgen.arch import ARCHES
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.errors import InvalidProblemError, assert_never
from boltgen.families.move import MoveConfig
from boltgen.families.registry import kernel_spec
from boltgen.families.source import render_kernel
from boltgen.ir.dtypes import FLOAT_TYPES, DType
from boltgen.ir.elementwise import BinaryOp
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.measure.epilogue_nodes import epilogue_nodes
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import Form, ImageLayout, LayoutTransform, Move, nhwc
from boltgen.problems.workload import Workload

NARROW_TYPES = [dtype for dtype in DType if dtype.is_narrow]


@pytest.mark.parametrize("dtype", [*FLOAT_TYPES, *NARROW_TYPES])
def test_a_rows_figures_are_numpys(dtype):
    limits = ml_dtypes.finfo(dtype.numpy)
    assert dtype.size_bytes == dtype.numpy.itemsize
    assert dtype.ulp == float(limits.eps)
    assert dtype.largest == float(limits.max)
    assert dtype.smallest_normal == float(limits.tiny)
    assert dtype.smallest_subnormal == float(limits.smallest_subnormal)
    if dtype.is_narrow:
        # Results are clipped before they are rounded.
        assert dtype.overflow_threshold == np.inf
        return
    with np.errstate(over="ignore"):
        # NumPy rounds to BF16 by way of FP32, whose own threshold is no number of it.
        wide = np.float64 if dtype is DType.F32 else np.float32
        threshold = wide(dtype.overflow_threshold)
        assert np.nextafter(threshold, wide(0.0)).astype(dtype.numpy) == limits.max
        assert np.isinf(threshold.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_whole])
def test_an_integers_figures_are_numpys(dtype):
    limits = np.iinfo(dtype.numpy)
    assert dtype.size_bytes == dtype.numpy.itemsize
    assert dtype.largest == limits.max == 2**dtype.significand_bits - 1
    assert dtype.overflow_threshold == np.inf
    assert dtype.weight in {dtype, DType.I8}


def test_a_cast_to_integers_and_arithmetic_on_whole_sums_are_refused():
    builder = ElementwiseBuilder()
    builder.cast(0, DType.I8)
    with pytest.raises(InvalidProblemError, match="node 1 is a cast to int8; round and clip"):
        builder.build()
    builder = ElementwiseBuilder(whole=True)
    builder.binary(BinaryOp.MULTIPLY, 0, builder.scalar(0.5))
    with pytest.raises(InvalidProblemError, match="node 2 reads whole values"):
        builder.build()


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_is_one_value(dtype):
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is DType(dtype.value) is dtype


# The first compute capability of each pair. Source: PTX ISA, mma.sync.
SINCE = {
    (DType.F16, DType.F16): (7, 5),
    (DType.F16, DType.F32): (7, 5),
    (DType.BF16, DType.F32): (8, 0),
    (DType.E4M3, DType.F32): (8, 9),
    (DType.E5M2, DType.F32): (8, 9),
    (DType.I8, DType.I32): (7, 5),
    (DType.U8, DType.I32): (7, 5),
}


@pytest.mark.parametrize("operand", DType)
@pytest.mark.parametrize("accumulator", DType)
def test_only_what_an_instruction_sums_in_is_an_accumulator(operand, accumulator):
    since = SINCE.get((operand, accumulator))
    assert (accumulator in operand.accumulators()) == (since is not None)
    assert (operand.accumulator_rejection(accumulator) is None) == (since is not None)
    for arch in ARCHES.values():
        reason = operand.accumulator_rejection(accumulator, arch.compute_capability)
        expected = since is not None and arch.compute_capability >= since
        assert (reason is None) == expected


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e8m0fnu", "int16", "float64"])
def test_a_type_without_a_row_is_none(name):
    with pytest.raises(ValueError, match=name):
        DType(name)


@pytest.mark.parametrize(
    ("operand", "result", "named"),
    [
        (DType.F32, DType.F32, "operands are float32.*float16 and bfloat16"),
        (DType.F16, DType.BF16, "result is bfloat16.*float16.*float32"),
        (DType.BF16, DType.F16, "result is float16.*bfloat16.*float32"),
    ],
)
def test_types_that_no_kernel_multiplies_or_stores_are_named(operand, result, named):
    with pytest.raises(InvalidProblemError, match=named):
        Gemm(m=8, n=8, k=8, in_dtype=operand, out_dtype=result)


def test_an_instruction_that_is_newer_than_the_arch_is_named():
    assert DType.F16.accumulators((7, 0)) == ()
    reason = DType.F16.accumulator_rejection(DType.F32, (7, 0))
    assert reason is not None
    assert all(word in reason for word in ("sm_70", "float16", "float32", "no type"))


@pytest.mark.parametrize(
    "problem",
    [
        Gemm(m=8, n=8, k=8),
        Gemm(batch=2, m=8, n=8, k=8),
        Conv2d(n=1, h=4, w=4, c=8, k=8, r=1, s=1),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_problem_asks_the_row_for_its_accumulator(problem, monkeypatch):
    monkeypatch.setattr(DType.F16, "_accumulators", {"float32": (7, 5)})
    with pytest.raises(InvalidProblemError, match=r"float16 in float16.*float32"):
        replace(problem, acc_dtype=DType.F16)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_every_cast_is_emitted_or_needless(dtype):
    builder = ElementwiseBuilder()
    builder.cast(0, dtype)
    (statement,) = emit_epilogue(builder.build()).statements
    rounding = {DType.F16: "round_to_half(acc)", DType.BF16: "round_to_bfloat16(acc)"}
    assert rounding.get(dtype, " = acc;") in statement


def test_a_dtype_without_conversions_is_refused_by_every_reader(monkeypatch):
    builder = ElementwiseBuilder()
    builder.cast(0, DType.BF16)
    nchw = Form(layout=ImageLayout.NCHW, dtype=DType.BF16)
    move = Workload.of(
        LayoutTransform(
            move=Move(source=nchw, target=nhwc(DType.BF16)),
            images=1,
            pixels=8,
            source_channels=8,
            target_channels=8,
        )
    )
    monkeypatch.setattr(DType.BF16, "_conversions", None)
    for read in (
        lambda: DType.BF16.cutlass,
        lambda: DType.BF16.adapter,
        lambda: emit_epilogue(builder.build()),
        lambda: epilogue_nodes(builder.build(), [], []),
        lambda: render_kernel(kernel_spec(move, MoveConfig(), "sm_80")),
    ):
        with pytest.raises(InvalidProblemError, match="no kernel converts bfloat16"):
            read()


def test_a_value_without_a_case_is_named():
    with pytest.raises(AssertionError, match="no case for 7, of type int"):
        assert_never(cast(Any, 7))
