"""The profiler's C++ against NumPy and the oracle, executed on the virtual GPU."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks.cases.kernels import EPILOGUES, in_bf16, problem_for
from boltgen.ir.dtypes import FLOAT_TYPES, DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.measure.epilogue_nodes import epilogue_nodes
from boltgen.measure.native import CudaError, RefusedError, Rounding
from boltgen.measure.operands import extents_of
from boltgen.problems import reference
from boltgen.problems.accumulation import accumulation_rounding
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.operands import input_tensors
from boltgen.problems.slices import slices
from boltgen.problems.workload import Layer

SMALL = Gemm(m=5, n=7, k=9)


@pytest.fixture
def rng(request) -> np.random.Generator:
    return np.random.default_rng(list(request.node.name.encode()))


def enclosed(device, problem, epilogue, arrays):
    """The device's ends, as arrays of the output's shape."""
    a, b, *operands = arrays
    shape = problem.d_shape
    size = 4 * int(np.prod(shape))
    low, high = device.empty(size), device.empty(size)
    device.profiler.enclose(
        extents_of(problem),
        epilogue_nodes(
            epilogue,
            [device.upload(array) for array in operands],
            [array[0].size if problem.batch > 1 and array.ndim > 1 else 0 for array in operands],
            problem.slice_rows,
        ),
        Rounding(**asdict(accumulation_rounding(problem))),
        problem.out_dtype,
        in_dtype=problem.in_dtype,
        a=device.upload(a),
        b=device.upload(b),
        low=low,
        high=high,
    )
    return tuple(device.download(address, shape, np.float32) for address in (low, high))


def assert_same_ends(problem, got, expected):
    """Equal, but for the last place of the output's type: FP64 sums differ by their order."""
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    finite = np.isfinite(expected)
    dtype = problem.out_dtype
    np.testing.assert_allclose(
        got[finite], expected[finite], rtol=dtype.ulp, atol=dtype.smallest_subnormal
    )


def inputs_of(problem, epilogue, rng):
    """Arrays as the worker draws them, in the shapes of the oracle."""
    output = problem.d_shape
    rows = int(np.prod(output[:-1])) // problem.batch
    spans = {
        LoadKind.TENSOR: output,
        LoadKind.ROW: output[-1:],
        LoadKind.SLICE_ROW: (slices(problem), output[-1]),
        LoadKind.POSITION_ROW: (problem.slice_rows, output[-1]),
        LoadKind.COLUMN: (rows,),
    }
    shapes = [problem.a_shape, problem.b_shape, *(spans[load.kind] for load in epilogue.loads)]
    return [
        rng.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype.numpy)
        for tensor, shape in zip(
            input_tensors(Layer(problem=problem, epilogue=epilogue)), shapes, strict=True
        )
    ]


def check(device, problem, epilogue, rng, spoil=None):
    a, b, *operands = inputs_of(problem, epilogue, rng)
    if spoil:
        spoil(a, operands)
    got = enclosed(device, problem, epilogue, (a, b, *operands))
    expected = reference.enclosure(problem, epilogue, a, b, operands)
    ends = (np.broadcast_to(e, got[0].shape) for e in (expected.low, expected.high))
    for mine, theirs in zip(got, ends, strict=True):
        assert_same_ends(problem, mine, theirs)


def unary(op: UnaryOp, scale: float = 1.0) -> ElementwiseGraph:
    b = ElementwiseBuilder()
    b.unary(op, b.binary(BinaryOp.MULTIPLY, 0, b.scalar(scale)), *op.function.parameters.values())
    return b.build()


@pytest.mark.parametrize("op", UnaryOp)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_every_function_is_enclosed_as_the_oracle_does(device, rng, op, scale):
    check(device, replace(SMALL, out_dtype=DType.F32), unary(op, scale), rng)


@pytest.mark.parametrize("op", UnaryOp)
def test_nan_and_infinity_are_enclosed_as_the_oracle_does(device, rng, op):
    def spoil(a, _):
        a[0, 0], a[1, 1], a[2, 2] = np.nan, np.inf, -np.inf

    check(device, SMALL, unary(op), rng, spoil)


@pytest.mark.parametrize("op", BinaryOp)
def test_every_operator_is_enclosed_as_the_oracle_does(device, rng, op):
    def spoil(a, operands):
        a[0, 0] = np.nan
        operands[0][:3] = [0.0, np.inf, np.nan]

    b = ElementwiseBuilder()
    b.binary(op, 0, b.load(LoadKind.ROW))
    check(device, SMALL, b.build(), rng, spoil)


def test_no_function_turns_twice():
    assert all(len(function.turns) <= 1 for function in (op.function for op in UnaryOp))


@pytest.mark.parametrize(
    "problem",
    [
        Gemm(m=7, n=10, k=12, slice_rows=3),
        Conv2d(n=3, h=4, w=5, c=4, k=6, r=3, s=3),
        Depthwise(n=3, h=4, w=5, c=3, r=3, s=2, multiplier=2, padding=(1, 0, 2, 1)),
    ],
    ids=["rows", "images", "channels"],
)
def test_rows_of_slices_and_of_positions(device, rng, problem):
    b = ElementwiseBuilder()
    x = b.binary(BinaryOp.MULTIPLY, b.load(LoadKind.SLICE_ROW), 0)
    b.binary(BinaryOp.ADD, x, b.load(LoadKind.POSITION_ROW))
    check(device, problem, b.build(), rng)


@pytest.mark.parametrize("name", EPILOGUES)
def test_whole_epilogues(device, rng, name):
    check(device, Gemm(m=6, n=10, k=12), EPILOGUES[name], rng)


@pytest.mark.parametrize(
    "operation", ["gemm_row", "gemm_column", "batched", "conv", "conv_strided", "conv_analytic"]
)
@pytest.mark.parametrize("dtypes", ["f32_f16", "f16_f16", "f32_f32", "f32_bf16"])
def test_every_operation(device, rng, operation, dtypes):
    problem = problem_for(operation, 1, 1, dtypes)
    epilogue = EPILOGUES["residual_before"]
    epilogue = in_bf16(epilogue) if problem.in_dtype is DType.BF16 else epilogue
    if isinstance(problem, Conv2d):
        problem = replace(problem, k=5)
    else:
        problem = replace(problem, m=11, n=13, k=17)
    check(device, problem, epilogue, rng)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_filters_of_single_channels(device, rng, dtype):
    problem = Depthwise(
        n=2, h=9, w=8, c=7, r=3, s=3, stride=(2, 1), dilation=(1, 2), padding=(0, 1, 2, 3),
        in_dtype=dtype, out_dtype=dtype,
    )  # fmt: skip
    check(device, problem, ElementwiseGraph(), rng)


def test_an_input_beside_its_convolution(device, rng):
    problem = Depthwise(n=2, h=9, w=8, c=7, r=3, s=5, padding=(1, 2, 1, 2), with_input=True)
    check(device, problem, EPILOGUES["bias_relu"], rng)


@pytest.mark.parametrize(("a_batched", "b_batched"), [(True, False), (False, True)])
def test_a_shared_operand_of_a_batch(device, rng, a_batched, b_batched):
    problem = Gemm(batch=3, m=4, n=5, k=6, a_batched=a_batched, b_batched=b_batched)
    check(device, problem, EPILOGUES["columns"], rng)


def test_large_sums_overflow_fp16_as_the_oracle_says(device, rng):
    def spoil(a, _):
        a *= 2000.0

    check(device, Gemm(m=8, n=8, k=64), unary(UnaryOp.NEGATE, 50.0), rng, spoil)
    accumulated = Gemm(m=8, n=8, k=64, acc_dtype=DType.F16)
    check(device, accumulated, ElementwiseGraph(), rng, spoil)


def test_sums_of_bf16_overflow_and_underflow_as_the_oracle_says(device, rng):
    def spoil(a, _):
        a[0] *= 1e38
        a[1] *= 1e-38

    narrow = {"in_dtype": DType.BF16, "out_dtype": DType.BF16}
    check(device, Gemm(m=8, n=8, k=64, **narrow), unary(UnaryOp.NEGATE, 50.0), rng, spoil)


@pytest.mark.parametrize("dtype", [DType.F32, 7])
def test_operands_that_no_kernel_multiplies_are_refused_by_number(device, dtype, monkeypatch):
    number = dtype if isinstance(dtype, int) else dtype.profiler
    refused = replace(DType.F16.conversions, profiler=number)
    monkeypatch.setattr(DType.F16, "_conversions", refused)
    places = dict.fromkeys(("a", "b", "low", "high"), device.empty(1024))
    rounding = Rounding(**asdict(accumulation_rounding(SMALL)))
    nodes = epilogue_nodes(ElementwiseGraph(), [], [])
    with pytest.raises(RefusedError, match=f"element type {number}"):
        device.profiler.enclose(
            extents_of(SMALL), nodes, rounding, DType.F16, in_dtype=DType.F16, **places
        )


def test_an_epilogue_that_is_too_long_is_refused(device, rng):
    b = ElementwiseBuilder()
    x = 0
    for _ in range(130):
        x = b.unary(UnaryOp.NEGATE, x)
    with pytest.raises(RefusedError, match="131 nodes; the reference takes 1 to 128"):
        check(device, SMALL, b.build(), rng)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"op": 99}, "operation 99"), ({"op": -1}, "operation -1"), ({"dtype": 7}, "element type 7")],
)
def test_what_the_reference_has_no_case_for_is_refused_by_name(device, change, named):
    b = ElementwiseBuilder()
    b.cast(0, DType.F16)
    nodes = epilogue_nodes(b.build(), [], [])
    for name, value in change.items():
        setattr(nodes[-1], name, value)
    rounding = Rounding(**asdict(accumulation_rounding(SMALL)))
    places = dict.fromkeys(("a", "b", "low", "high"), device.empty(1024))
    with pytest.raises(RefusedError, match=f"node 1 .*unknown {named}"):
        device.profiler.enclose(
            extents_of(SMALL), nodes, rounding, DType.F16, in_dtype=DType.F16, **places
        )


# --- compare -------------------------------------------------------------------------------------

NAN, INF = np.nan, np.inf
VERDICTS = [  # got, low, high, right
    (1.0, 0.5, 1.5, True),
    (0.5, 0.5, 1.5, True),
    (2.0, 0.5, 1.5, False),
    (NAN, 0.5, 1.5, False),
    (NAN, NAN, NAN, True),
    (1.0, NAN, NAN, False),
    (NAN, -INF, INF, True),
    (7.0, -INF, INF, True),
    (INF, INF, INF, True),
    (1.0, INF, INF, False),
    (INF, 60000.0, 65520.0, True),
    (INF, 60000.0, 65504.0, False),
    (-INF, -70000.0, -60000.0, True),
    (-INF, 60000.0, 70000.0, False),
    (65504.0, 60000.0, 70000.0, True),
    (65504.0, 66000.0, 70000.0, False),
]


@pytest.mark.parametrize(("got", "low", "high", "right"), VERDICTS)
def test_what_is_right(device, got, low, high, right):
    count = 40
    output = np.ones(count, np.float16)
    lows, highs = np.full(count, 0.5, np.float32), np.full(count, 1.5, np.float32)
    output[17], lows[17], highs[17] = got, low, high
    verdict = device.profiler.compare(
        device.upload(output),
        DType.F16,
        count,
        low=device.upload(lows),
        high=device.upload(highs),
    )
    assert verdict.wrong == (not right)
    if not right:
        assert verdict.first_wrong == 17
        assert verdict.not_finite == np.isnan(got)
        np.testing.assert_equal((verdict.got, verdict.low, verdict.high), (got, low, high))


def test_the_first_of_many_wrong_elements_is_named(device, rng):
    count = 100_000
    low = device.upload(np.zeros(count, np.float32))
    high = device.upload(np.ones(count, np.float32))
    output = rng.uniform(0, 1, count).astype(np.float32)
    wrong = np.sort(rng.choice(np.arange(300, count), 200, replace=False))
    output[wrong[::2]], output[wrong[1::2]] = 2.0, NAN
    verdict = device.profiler.compare(device.upload(output), DType.F32, count, low=low, high=high)
    assert (verdict.wrong, verdict.not_finite, verdict.first_wrong) == (200, 100, wrong[0])


# --- memory --------------------------------------------------------------------------------------


def splitmix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_random_contents_are_what_they_say(device, dtype):
    count, seed, low, high = 300_001, 12345, -1.5, 1.5
    address = device.empty(count * dtype.size_bytes)
    device.profiler.fill(address, dtype, count, seed=seed, low=low, high=high)
    got = device.download(address, (count,), dtype.numpy)
    with np.errstate(over="ignore"):
        index = np.arange(1, count + 1, dtype=np.uint64)
        bits = splitmix64(np.uint64(seed) + index * np.uint64(0x9E3779B97F4A7C15))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    expected = (np.float64(high - low) * unit + np.float64(low)).astype(np.float32)
    np.testing.assert_array_equal(got, expected.astype(dtype.numpy))
    assert abs(float(got.astype(np.float64).mean())) < 5 * (high - low) / np.sqrt(12 * count)
    assert not np.any(got == 0) or dtype.size_bytes == 2


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32])
def test_random_integers_have_all_values_between_the_ends(device, dtype):
    low, high, count = (0, 255, 20_000) if dtype is DType.U8 else (-128, 127, 20_000)
    address = device.empty(count * dtype.size_bytes)
    device.profiler.fill(address, dtype, count, seed=3, low=low, high=high)
    got = device.download(address, (count,), dtype.numpy)
    assert np.array_equal(np.unique(got), np.arange(low, high + 1))


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32])
@pytest.mark.parametrize("got", [3, 4, 5])
def test_integers_are_judged_by_their_bounds(device, dtype, got):
    ends = np.full(64, 4, np.float32)
    output = np.full(64, 4, dtype.numpy)
    output[9] = got
    addresses = {
        name: device.upload(np.nextafter(ends, np.float32(towards)))
        for name, towards in (("low", -np.inf), ("high", np.inf))
    }
    verdict = device.profiler.compare(device.upload(output), dtype, 64, **addresses)
    assert (verdict.wrong, verdict.not_finite) == (int(got != 4), 0)


def test_poison_is_nan(device):
    address = device.empty(64)
    device.profiler.poison(address, 64)
    assert np.isnan(device.download(address, (32,), np.float16)).all()
    assert np.isnan(device.download(address, (16,), np.float32)).all()


def test_a_failed_call_says_which_and_why(device):
    with pytest.raises(CudaError, match="cudaMalloc") as caught:
        device.profiler.allocate(1 << 60)
    assert caught.value.number == 2
    device.profiler.release(device.profiler.allocate(16))
