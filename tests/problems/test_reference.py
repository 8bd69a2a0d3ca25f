"""The oracle against plain loops and FP32 arithmetic; its bounds against faults they must find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boltgen.errors import InputError
from boltgen.ir.dtypes import FLOAT_TYPES, DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.reference import compare, error_bound, run


def halves(rng, shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float16)


def unary(op: UnaryOp) -> ElementwiseGraph:
    graph = ElementwiseBuilder()
    graph.unary(op, 0, *op.function.parameters.values())
    return graph.build()


def fp32(op: UnaryOp, x: np.ndarray) -> np.ndarray:
    """Each function in plain FP32 steps: of the row, where they are not written down here."""
    one, half = np.float32(1), np.float32(0.5)
    p = [np.float32(v) for v in op.function.parameters.values()]
    erf = np.frompyfunc(math.erf, 1, 1)
    sigmoid = lambda v: one / (one + np.exp(-v))  # noqa: E731
    softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    steps = {
        UnaryOp.NEGATE: lambda: -x,
        UnaryOp.ABS: lambda: np.abs(x),
        UnaryOp.SQRT: lambda: np.sqrt(x),
        UnaryOp.RSQRT: lambda: one / np.sqrt(x),
        UnaryOp.EXP: lambda: np.exp(x),
        UnaryOp.LOG: lambda: np.log(x),
        UnaryOp.ERF: lambda: erf(x).astype(np.float32),
        UnaryOp.TANH: lambda: np.tanh(x),
        UnaryOp.RELU: lambda: np.maximum(x, 0),
        UnaryOp.LEAKY_RELU: lambda: np.where(x > 0, x, p[0] * x),
        UnaryOp.CLIP: lambda: np.clip(x, p[0], p[1]),
        UnaryOp.GELU_ERF: lambda: (
            half * x * (one + erf(x * np.float32(math.sqrt(0.5))).astype(np.float32))
        ),
        UnaryOp.GELU_TANH: lambda: half * x * (one + np.tanh(inner)),
        UnaryOp.SIGMOID: lambda: sigmoid(x),
        UnaryOp.SILU: lambda: x * sigmoid(x),
        UnaryOp.HARDSIGMOID: lambda: np.clip(p[0] * x + p[1], 0, 1),
        UnaryOp.HARDSWISH: lambda: x * np.clip(x + np.float32(3), 0, 6) * np.float32(1 / 6),
        UnaryOp.SOFTPLUS: lambda: softplus,
        UnaryOp.MISH: lambda: x * np.tanh(softplus),
    }
    return steps.get(op, lambda: op.function.value(x, *p))().astype(np.float32)


@pytest.mark.parametrize("out", FLOAT_TYPES)
@pytest.mark.parametrize("op", UnaryOp)
def test_fp32_arithmetic_is_within_the_bound_and_a_fault_is_not(op, out):
    rng = np.random.default_rng(7)
    operand = DType.F16 if out is DType.F32 else out
    problem = Gemm(m=40, n=48, k=24, in_dtype=operand, out_dtype=out)
    a, b = halves(rng, (40, 24)), halves(rng, (24, 48), 0.25)
    a, b = a.astype(operand.numpy), b.astype(operand.numpy)
    if op.function.is_partial:
        a, b = np.abs(a), np.abs(b)
    epilogue = unary(op)
    expected = run(problem, epilogue, a, b, [])
    bound = error_bound(problem, epilogue, a, b, [])
    actual = fp32(op, a.astype(np.float32) @ b.astype(np.float32)).astype(out.numpy)
    assert np.isfinite(bound).all()
    assert compare(actual, expected, bound).within, str(compare(actual, expected, bound))
    # The bound is tight enough to find one percent.
    largest = np.unravel_index(np.argmax(np.abs(expected)), expected.shape)
    actual[largest] *= 1.01
    assert not compare(actual, expected, bound).within


@pytest.mark.parametrize("layout", Layout)
def test_gemm_and_operands_by_kind(layout):
    rng = np.random.default_rng(0)
    problem = Gemm(batch=2, m=3, n=5, k=4, b_layout=layout, b_batched=False)
    a, b = halves(rng, problem.a_shape), halves(rng, problem.b_shape)
    row, column, tensor = halves(rng, 5), halves(rng, 3), halves(rng, (3, 5))
    graph = ElementwiseBuilder()
    x = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW))
    x = graph.binary(BinaryOp.MULTIPLY, x, graph.load(LoadKind.COLUMN))
    graph.binary(BinaryOp.SUBTRACT, x, graph.load(LoadKind.TENSOR))
    got = run(problem, graph.build(), a, b, [row, column, tensor])
    for z, i, j in np.ndindex(2, 3, 5):
        b_column = b[:, j] if layout is Layout.ROW else b[j]
        product = sum(float(x) * float(y) for x, y in zip(a[z, i], b_column, strict=True))
        expected = (product + float(row[j])) * float(column[i]) - float(tensor[i, j])
        assert got[z, i, j] == pytest.approx(expected, rel=1e-13)


def test_convolution_with_stride_padding_and_dilation():
    rng = np.random.default_rng(0)
    problem = Conv2d(
        n=2, h=9, w=8, c=3, k=4, r=3, s=2, stride=(2, 1), padding=(1, 2, 0, 1), dilation=(2, 3)
    )
    a, b = halves(rng, problem.a_shape), halves(rng, problem.b_shape)
    got = run(problem, ElementwiseGraph(), a, b, [])
    assert got.shape == problem.d_shape == (2, problem.p, problem.q, 4)
    for n, p, q, k in np.ndindex(got.shape):
        total = 0.0
        for r, s in np.ndindex(3, 2):
            y, x = 2 * p + 2 * r - 1, q + 3 * s - 2
            if 0 <= y < 9 and 0 <= x < 8:
                total += float(a[n, y, x].astype(float) @ b[k, r, s].astype(float))
        assert got[n, p, q, k] == pytest.approx(total, rel=1e-12, abs=1e-12)


def test_column_operand_of_a_convolution_runs_over_pixels():
    problem = Conv2d(n=1, h=2, w=2, c=1, k=1, r=1, s=1)
    graph = ElementwiseBuilder()
    graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.COLUMN))
    a, b = np.zeros((1, 2, 2, 1), np.float16), np.ones((1, 1, 1, 1), np.float16)
    got = run(problem, graph.build(), a, b, [np.arange(4, dtype=np.float16)])
    assert got.ravel().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_cast_rounds_between_operators():
    problem = Gemm(m=1, n=1, k=1)
    graph = ElementwiseBuilder()
    graph.cast(graph.binary(BinaryOp.ADD, 0, graph.scalar(1.0)), DType.F16)
    tiny = np.full((1, 1), 2.0**-12, np.float16)
    assert run(problem, graph.build(), tiny, np.ones((1, 1), np.float16), [])[0, 0] == 1.0


def test_fp16_accumulation_in_blocks_is_within_its_wider_bound():
    rng = np.random.default_rng(3)
    problem = Gemm(m=32, n=32, k=256, acc_dtype=DType.F16)
    a, b = halves(rng, (32, 256), 0.5), halves(rng, (256, 32), 0.5)
    total = np.zeros((32, 32), np.float16)
    for k in range(0, 256, 8):
        block = a[:, k : k + 8].astype(np.float32) @ b[k : k + 8].astype(np.float32)
        total = (total.astype(np.float32) + block).astype(np.float16)
    expected = run(problem, ElementwiseGraph(), a, b, [])
    wide = error_bound(problem, ElementwiseGraph(), a, b, [])
    narrow = error_bound(Gemm(m=32, n=32, k=256), ElementwiseGraph(), a, b, [])
    assert compare(total, expected, wide).within
    assert not compare(total, expected, narrow).within


def test_infinities_and_nan_must_be_where_they_belong():
    problem = Gemm(m=1, n=4, k=1)
    a = np.ones((1, 1), np.float16)
    b = np.array([[np.inf, -np.inf, np.nan, 1.0]], np.float16)
    expected = run(problem, ElementwiseGraph(), a, b, [])
    bound = error_bound(problem, ElementwiseGraph(), a, b, [])
    assert compare(b, expected, bound).within
    for index, wrong in ((0, 65504.0), (1, np.inf), (2, 0.0), (3, np.nan), (3, np.inf)):
        actual = b.copy()
        actual[0, index] = wrong
        assert compare(actual, expected, bound).ratio == np.inf


def test_output_overflow_is_an_infinity_and_nothing_else():
    problem = Gemm(m=1, n=1, k=2)
    a, b = np.full((1, 2), 200.0, np.float16), np.full((2, 1), 200.0, np.float16)
    expected = run(problem, ElementwiseGraph(), a, b, [])
    bound = error_bound(problem, ElementwiseGraph(), a, b, [])
    assert expected[0, 0] == 80000.0
    assert compare(np.full((1, 1), np.inf, np.float16), expected, bound).within
    assert not compare(np.full((1, 1), 65504.0, np.float16), expected, bound).within


@pytest.mark.parametrize("op", [UnaryOp.SILU, UnaryOp.MISH, UnaryOp.GELU_ERF, UnaryOp.GELU_TANH])
def test_turning_points_are_minima(op):
    # An interval around the turning point reaches below both ends' values.
    from boltgen.ir.elementwise import Unary
    from boltgen.ir.interval import Interval, unary_image

    (turn,) = op.function.turns
    image = unary_image(Unary(op, 0), Interval(np.array([turn - 1]), np.array([turn + 1])))
    grid = op.function.value(np.linspace(turn - 1, turn + 1, 10001))
    assert image.low[0] <= grid.min() <= image.low[0] + 1e-5


def test_rows_of_a_may_be_counted_in_several_dimensions():
    rng = np.random.default_rng(0)
    problem = Gemm(m=6, n=3, k=4)
    a, b = halves(rng, (2, 3, 4)), halves(rng, (4, 3))
    got = run(problem, ElementwiseGraph(), a, b, [])
    assert np.array_equal(got, run(problem, ElementwiseGraph(), a.reshape(6, 4), b, []))


def test_wrong_inputs_are_named():
    problem = Gemm(m=2, n=3, k=4, b_layout=Layout.COLUMN)
    a, b = np.zeros((2, 4), np.float16), np.zeros((3, 4), np.float16)
    with pytest.raises(InputError, match=r"b is float16 \(4, 3\); .* float16 \(3, 4\)"):
        run(problem, ElementwiseGraph(), a, b.T, [])
    with pytest.raises(InputError, match=r"a is float32"):
        error_bound(problem, ElementwiseGraph(), a.astype(np.float32), b, [])
    with pytest.raises(InputError, match=r"1 operands for the 0 loads"):
        run(problem, ElementwiseGraph(), a, b, [a])
    with pytest.raises(InputError, match="kernels return float16 or bfloat16 or float32"):
        compare(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)))
