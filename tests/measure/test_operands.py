"""A candidate's operands and what it is compared with, on the virtual GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.attention import attention, scaled
from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import EPILOGUES, in_bf16
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import Launch
from boltgen.measure.operands import BudgetError, Operands
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose, enclose_results
from boltgen.problems.workload import Workload
from tests.gated import gated

SMALL = Workload.of(Gemm(m=5, n=7, k=9), EPILOGUES["residual_before"])


def make_operands(profiler, budget_bytes=1 << 20, most_sets=3, workload=SMALL):
    return Operands(
        profiler,
        workload,
        budget_bytes=budget_bytes,
        most_sets=most_sets,
        most_sets_bytes=1 << 20,
    )


def test_operands_come_in_copies_of_equal_contents_at_their_own_addresses(profiler, device):
    operands = make_operands(profiler)
    try:
        assert len(operands.sets) == 3
        everything = [
            address
            for one in operands.sets
            for layer in one.layers
            for address in (one.a, layer.b, *one.results, *(o.pointer for o in layer.operands))
        ]
        assert len(set(everything)) == len(everything) == 3 * 5
        first, *copies = (device.download(one.a, (5, 9), np.float16) for one in operands.sets)
        assert first.any()
        for copy in copies:
            np.testing.assert_array_equal(copy, first)
    finally:
        operands.close()


def test_a_poisoned_output_is_wrong(profiler):
    operands = make_operands(profiler)
    try:
        operands.poison()
        verdict = operands.judge()
        assert verdict.wrong == verdict.not_finite == 35
    finally:
        operands.close()


def test_packed_weights_are_filled_alike_and_judged_by_the_oracle(profiler, device):
    form = PackedWeights(bits=4, group=32, has_zeros=True)
    problem = Gemm(m=3, n=24, k=104, b_layout=Layout.COLUMN, weights=form)
    workload = Workload.of(problem, EPILOGUES["bias_relu"])
    operands = make_operands(profiler, workload=workload)
    try:
        places = [
            (one.a, one.layers[0].b, one.layers[0].operands[0].pointer, one.results[0])
            for one in operands.sets
        ]
        weights = [device.download(b, problem.b_shape, np.uint8) for _, b, _, _ in places]
        assert all(np.array_equal(weights[0], each) for each in weights)
        assert len(np.unique(weights[0])) > 128
        a = device.download(places[0][0], problem.a_shape, np.float16)
        bias = device.download(places[0][2], (24,), np.float16)
        expected = enclose(workload, a, [LayerInputs(weights[0], (bias,))])
        low, high = (device.download(each, (3, 24), np.float32) for each in operands.ends[0])
        assert (low <= expected.low).all()
        assert (high >= expected.high).all()
        least = np.finfo(np.float32).smallest_subnormal  # below an end of zero
        np.testing.assert_allclose(low, expected.low, rtol=2**-23, atol=least)
        np.testing.assert_allclose(high, expected.high, rtol=2**-23, atol=least)
        right = expected.exact.astype(np.float16)
        profiler.copy(places[0][3], right.ctypes.data, right.nbytes)
        assert not operands.judge().wrong
        operands.poison()
        assert operands.judge().wrong == 3 * 24
    finally:
        operands.close()


@pytest.mark.parametrize("layout", list(Layout))
def test_a_pair_has_the_ends_that_the_oracle_says(profiler, device, layout):
    problem = Gemm(m=5, n=6, k=40, b_layout=layout, paired=True)
    workload = Workload.of(problem, gated(UnaryOp.SILU, biases=DType.F16))
    operands = make_operands(profiler, workload=workload, most_sets=1)
    try:
        ((one,), (held,)) = operands.sets, operands.sets[0].layers
        a = device.download(one.a, problem.a_shape, np.float16)
        b = device.download(held.b, problem.b_shape, np.float16)
        biases = tuple(device.download(each.pointer, (6,), np.float16) for each in held.operands)
        expected = enclose(workload, a, [LayerInputs(b, biases)])
        # The device's exponential may round to the number beside.
        beside = {"rtol": DType.F16.ulp, "atol": DType.F16.smallest_subnormal}
        for end, wanted in zip(operands.ends[0], (expected.low, expected.high), strict=True):
            np.testing.assert_allclose(device.download(end, (5, 6), np.float32), wanted, **beside)
    finally:
        operands.close()


def test_rows_that_are_taken_are_in_no_order_and_judged_as_taken(profiler, device):
    problem = GroupedGemm(groups=3, m=29, n=24, k=40, a_rows=7, rows_dtype=IndexType.INT64)
    workload = Workload.of(problem, EPILOGUES["bias_relu"])
    operands = make_operands(profiler, workload=workload)
    try:
        one = operands.sets[1]
        (held,) = one.layers
        rows, ends = device.download(held.further["taken"], (29,), np.int64), held.further["ends"]
        assert set(rows) <= set(range(-1, 8))
        assert len(set(rows)) > 4
        assert (np.diff(rows) < 0).any()
        arguments = operands.arguments(
            one, Launch(struct="boltgen_grouped_gemm_args", sizes={}), stream=0
        )
        assert (arguments.ends, arguments.taken) == (ends, held.further["taken"])
        a = device.download(one.a, (7, 40), np.float16)
        b = device.download(held.b, problem.b_shape, np.float16)
        bias = device.download(held.operands[0].pointer, (24,), np.float16)
        ends = device.download(ends, (3,), np.int32)
        expected = enclose(workload, a, [LayerInputs(b, (bias,), ends=ends, rows=rows)])
        low, high = (device.download(each, (29, 24), np.float32) for each in operands.ends[0])
        assert np.all((low <= expected.low) & (expected.high <= high))
    finally:
        operands.close()


def test_ends_of_groups_are_uneven_and_rows_judged_by_their_groups(profiler, device):
    problem = GroupedGemm(groups=4, m=29, n=24, k=40, ends_dtype=IndexType.INT64)
    workload = Workload.of(problem, EPILOGUES["bias_relu"])
    operands = make_operands(profiler, workload=workload)
    try:
        assert (
            len({one.layers[0].further["ends"] for one in operands.sets}) == len(operands.sets) == 3
        )
        one = operands.sets[2]  # whose contents were copied
        (held,) = one.layers
        ends = device.download(held.further["ends"], (4,), np.int64)
        counts = np.diff(ends, prepend=0)
        assert ends[-1] == 28
        assert counts.min() == 0
        assert len(set(counts)) > 2
        arguments = operands.arguments(
            one, Launch(struct="boltgen_grouped_gemm_args", sizes={}), stream=0
        )
        assert arguments.ends == held.further["ends"]
        a = device.download(one.a, problem.a_shape, np.float16)
        b = device.download(held.b, problem.b_shape, np.float16)
        bias = device.download(held.operands[0].pointer, (24,), np.float16)
        expected = enclose(workload, a, [LayerInputs(b, (bias,), ends=ends)])
        low, high = (device.download(each, (29, 24), np.float32) for each in operands.ends[0])
        assert np.all((low <= expected.low) & (expected.high <= high))
        right = expected.exact.astype(np.float16)
        profiler.copy(operands.sets[0].results[0], right.ctypes.data, right.nbytes)
        assert not operands.judge().wrong
    finally:
        operands.close()


def test_each_result_has_ends_of_its_own_and_is_judged_by_them(profiler, device):
    problem, b = Gemm(batch=2, m=5, n=8, k=16), ElementwiseBuilder()
    biased = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    total = b.binary(BinaryOp.ADD, biased, b.load(LoadKind.TENSOR))
    b.store(b.unary(UnaryOp.RELU, total))
    b.store(biased, dtype=DType.F32)
    b.store(total, dtype=DType.F16)
    workload = Workload.of(problem, b.build())
    operands = make_operands(profiler, workload=workload, most_sets=1)
    try:
        (one,), shape = operands.sets, problem.d_shape
        (held,) = one.layers
        places = [(one.a, problem.a_shape), (held.b, problem.b_shape)]
        places += zip((each.pointer for each in held.operands), [(8,), shape], strict=True)
        a, weight, *loaded = (device.download(*place, np.float16) for place in places)
        expected = enclose_results(workload, a, [LayerInputs(weight, tuple(loaded))])
        operands.poison()
        types = (np.float16, np.float32, np.float16)
        for ends, right, address, dtype in zip(
            operands.ends, expected, one.results, types, strict=True
        ):
            assert operands.judge().not_finite == problem.batch * 40
            low, high = (device.download(end, shape, np.float32) for end in ends)
            assert np.all((low <= right.high) & (right.low <= high))
            stored = right.exact.astype(dtype)
            profiler.copy(address, device.upload(stored), stored.nbytes)
        assert operands.judge().wrong == 0
    finally:
        operands.close()


def a_and_b(device, one, problem):
    return (
        device.download(address, shape, np.float16)
        for address, shape in ((one.a, problem.a_shape), (one.layers[0].b, problem.b_shape))
    )


def assert_judged(profiler, device, operands, d, reduced):
    """The exact D and reduction are right; a reduction that is 1 % off is not."""
    (one,) = operands.sets
    for result, dtype, address in zip(
        (d, reduced), (np.float16, np.float32), one.results, strict=True
    ):
        stored = result.exact.astype(dtype)
        profiler.copy(address, device.upload(stored), stored.nbytes)
    assert operands.judge().wrong == 0
    profiler.copy(one.results[1], device.upload(stored * 1.01), stored.nbytes)
    assert operands.judge().wrong > 0


@pytest.mark.parametrize("kind", [LoadKind.ROW, LoadKind.COLUMN])
@pytest.mark.parametrize("reduction", Reduction)
def test_a_reduction_has_ends_of_its_own(profiler, device, kind, reduction):
    problem, b = Gemm(batch=2, m=5, n=8, k=16), ElementwiseBuilder()
    b.store(0)
    b.store(b.unary(UnaryOp.RELU, 0), kind, DType.F32, reduction)
    workload = Workload.of(problem, b.build())
    operands = make_operands(profiler, workload=workload, most_sets=1)
    try:
        (one,) = operands.sets
        a, weight = a_and_b(device, one, problem)
        d, right = enclose_results(workload, a, [LayerInputs(weight)])
        shape = (2, 8) if kind is LoadKind.ROW else (2, 5)
        assert right.exact.shape == shape
        low, high = (device.download(end, shape, np.float32) for end in operands.ends[1])
        assert np.all((low < right.exact) & (right.exact < high))
        assert np.all(high - low < 1e-3 * np.maximum(1.0, np.abs(right.exact)))
        launch = Launch(struct="boltgen_gemm_args", sizes=problem.sizes)
        passed = operands.arguments(one, launch, stream=0).operands[0]
        assert (passed.pointer, passed.batch_stride) == (one.results[1], shape[1])
        assert kind is LoadKind.COLUMN or passed.ld == 5
        operands.poison()
        assert_judged(profiler, device, operands, d, right)
    finally:
        operands.close()


def test_columns_in_parts_are_filled_passed_and_judged_by_the_oracle(profiler, device):
    problem, b = Gemm(batch=2, m=5, n=8, k=16), ElementwiseBuilder()
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.COLUMN, DType.F32, 3))
    b.store(x)
    b.store(x, LoadKind.COLUMN, DType.F32, Reduction.SUM, 4)
    workload = Workload.of(problem, b.build())
    operands = make_operands(profiler, workload=workload, most_sets=1)
    try:
        (one,) = operands.sets
        a, weight = a_and_b(device, one, problem)
        launch = Launch(struct="boltgen_gemm_args", sizes=problem.sizes)
        parts, sums = operands.arguments(one, launch, stream=0).operands[:2]
        assert (parts.ld, parts.batch_stride) == (3, 0)
        assert (sums.pointer, sums.ld, sums.batch_stride) == (one.results[1], 2, 10)
        given = device.download(parts.pointer, (5, 3), np.float32)
        d, right = enclose_results(workload, a, [LayerInputs(weight, (given,))])
        assert right.exact.shape == (2, 5, 2)
        assert_judged(profiler, device, operands, d, right)
    finally:
        operands.close()


def test_a_launch_passes_further_results_behind_the_loads(profiler):
    b = ElementwiseBuilder()
    b.store(b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    b.store(0, dtype=DType.F32)
    workload = Workload.of(Gemm(batch=3, m=5, n=8, k=16), b.build())
    operands = make_operands(profiler, workload=workload)
    try:
        for one in operands.sets:
            launch = Launch(struct="boltgen_gemm_args", sizes=workload.single.problem.sizes)
            args = operands.arguments(one, launch, stream=0)
            assert args.d == one.results[0]
            passed = args.operands[1]
            assert (passed.pointer, passed.ld, passed.batch_stride) == (one.results[1], 8, 40)
    finally:
        operands.close()


def test_copies_are_limited_by_the_budget(profiler):
    set_bytes = 2 * (45 + 63 + 7 + 35 + 35)
    envelope_bytes = 8 * 35
    operands = make_operands(profiler, budget_bytes=2 * 2 * set_bytes + envelope_bytes + 1)
    assert len(operands.sets) == 2
    operands.close()
    with pytest.raises(BudgetError, match=f"take {set_bytes + envelope_bytes} bytes"):
        make_operands(profiler, budget_bytes=set_bytes + envelope_bytes - 1)


@pytest.mark.parametrize("name", EPILOGUES)
def test_the_check_says_something_of_every_epilogue(profiler, device, name):
    """Operands are drawn so that almost no element may be just anything."""
    workload = Workload.of(Gemm(m=32, n=32, k=64), EPILOGUES[name])
    operands = make_operands(profiler, workload=workload)
    try:
        low, high = (device.download(address, (32, 32), np.float32) for address in operands.ends[0])
    finally:
        operands.close()
    assert np.isfinite(low).mean() > 0.99
    assert np.isfinite(high).mean() > 0.99


# --- several layers -------------------------------------------------------------------------------


def rows_of_middle(device, ends):
    """What lies between two layers, for the (low, high) of each element: (value, error) of it."""
    low, high = (device.upload(np.array(end, np.float32)) for end in zip(*ends, strict=True))
    count = len(ends)
    out, error = device.empty(2 * count), device.empty(4 * count)
    device.profiler.middle(low, high, DType.F16, count, out=out, error=error)
    values = device.download(out, (count,), np.float16)
    return list(zip(values, device.download(error, (count,), np.float32), strict=True))


def test_what_lies_between_two_layers(device):
    inf, overflow = np.inf, 65536.0
    ends = [(1.0, 1.0), (1.0, 1.5), (-2.0, 2.0), (0.0, 2.0**-24)]
    values = rows_of_middle(device, ends)
    assert values[:3] == [(1.0, 0.0), (1.25, 0.25), (0.0, 2.0)]
    assert values[3] in ((0.0, 2.0**-24), (np.float16(2.0**-24), np.float32(2.0**-24)))
    # Certain infinities and NaN are exact; what may overflow may be anything.
    certain = [(overflow, inf), (-inf, -overflow), (inf, inf)]
    assert rows_of_middle(device, certain) == [(inf, 0.0), (-inf, 0.0), (inf, 0.0)]
    uncertain = [(1.0, overflow), (-overflow, 1.0), (-inf, inf)]
    assert [error for _, error in rows_of_middle(device, uncertain)] == [inf] * 3
    ((value, error),) = rows_of_middle(device, [(np.nan, np.nan)])
    assert np.isnan(value)
    assert error == 0.0


FUSED = {
    **{
        case.name: case.chain
        for case in all_chain_cases()
        if case.name in ("rf-ragged", "smem-row", "smem-conv", "smem-batch", "smem4-four")
    },
    "attention": attention(20, 75, 40, 24, batch=2, scores=scaled(40, LoadKind.TENSOR)),
    "local": attention(20, 76, 40, 24, batch=2, scores=scaled(40), causal=True, window=30),
}


def _in_dtype(workload, dtype):
    """The same in BF16, which no kernel computes back to back so far."""
    if dtype is DType.F16:
        return workload
    layers = []
    for layer in workload.layers:
        out = layer.problem.out_dtype
        types = {"in_dtype": dtype, "acc_dtype": DType.F32}
        types["out_dtype"] = out if out is DType.F32 else dtype
        layers.append(
            replace(
                layer, problem=replace(layer.problem, **types), epilogue=in_bf16(layer.epilogue)
            )
        )
    return Workload(layers=tuple(layers))


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_layers_are_enclosed_as_the_oracle_does(profiler, device, name, dtype):
    """The worker knows no exact result between layers, and takes the middle of the ends there."""
    workload = _in_dtype(FUSED[name], dtype)
    operands = make_operands(profiler, 1 << 24, most_sets=1, workload=workload)
    try:
        (one,) = operands.sets
        layers = []
        for layer, held in zip(workload.layers, one.layers, strict=True):
            problem = layer.problem
            spans = {
                LoadKind.TENSOR: problem.d_shape,
                LoadKind.ROW: problem.d_shape[-1:],
                LoadKind.COLUMN: (problem.gemm.m,),
            }
            arrays = tuple(
                device.download(operand.pointer, spans[load.kind], load.dtype.numpy)
                for load, operand in zip(layer.epilogue.loads, held.operands, strict=True)
            )
            b = device.download(held.b, problem.b_shape, dtype.numpy)
            layers.append(LayerInputs(b, arrays))
        a = device.download(one.a, workload.first.problem.a_shape, dtype.numpy)
        output = workload.last.problem.d_shape
        low, high = (
            device.download(address, output, np.float32).astype(np.float64)
            for address in operands.ends[0]
        )
    finally:
        operands.close()
    expected = enclose(workload, a, layers)
    rounding = dtype.ulp * np.abs(expected.exact) + DType.F16.smallest_subnormal
    assert np.all(low <= expected.exact + rounding)
    assert np.all(expected.exact <= high + rounding)
    # No farther apart than the oracle's, taken together: single ones differ with where the middle
    # is rounded to.
    assert (high - low).mean() <= 1.02 * (expected.high - expected.low).mean()


def test_what_lies_between_the_layers_is_part_of_the_budget(profiler):
    with pytest.raises(BudgetError, match="its tensors and their check take"):
        make_operands(profiler, 20_000, workload=FUSED["rf-ragged"])


def test_a_workspace_grows_within_the_budget_and_is_poisoned(profiler, device):
    operands = make_operands(profiler, budget_bytes=10_000, most_sets=1)
    try:
        assert operands.workspace(0) == 0
        small = operands.workspace(64)
        assert operands.workspace(32) == small
        large = operands.workspace(256)
        assert np.isnan(device.download(large, (64,), np.float32)).all()
        with pytest.raises(BudgetError, match="wants a workspace of 9900 bytes; the worker has"):
            operands.workspace(9900)
    finally:
        operands.close()
