"""The softmax of rows: its values, its bounds against FP32, and where it may stand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.attention import attention, scaled
from boltgen.arch import arch_named
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.errors import InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.families.registry import FAMILIES
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX, Accumulator, ElementwiseGraph, Softmax
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import digest
from boltgen.ir.softmax import softmax, softmax_ends, up_to_diagonal
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Layer, Workload


def _online(x: np.ndarray, step: int) -> np.ndarray:
    """The softmax of FP32 rows, `step` elements at a time, as a kernel computes it."""
    one = np.float32(1)
    greatest = np.full(len(x), -np.inf, np.float32)
    total, powers = np.zeros(len(x), np.float32), np.zeros_like(x)
    for first in range(0, x.shape[1], step):
        part = slice(first, first + step)
        before, greatest = greatest, np.maximum(greatest, x[:, part].max(axis=1))
        factor = np.exp(before - greatest).astype(np.float32)
        powers *= factor[:, None]
        powers[:, part] = np.exp(x[:, part] - greatest[:, None])
        total = total * factor + powers[:, part].sum(axis=1, dtype=np.float32)
    return powers * (one / total)[:, None]


@pytest.mark.parametrize("step", [16, 64])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_ends_hold_what_steps_in_fp32_compute(step: int, spread: float) -> None:
    rng = np.random.default_rng(step)
    x = np.sort(rng.normal(0, spread, (50, 300)), axis=1).astype(np.float32)
    wide = x.astype(np.float64)
    found, (low, high) = _online(x, step), softmax_ends(wide, wide)
    assert ((low <= found) & (found <= high)).all()
    assert ((low <= softmax(wide)) & (softmax(wide) <= high)).all()
    # Far less than the rounding to FP16 that follows.
    near = softmax(wide) > 1e-6
    assert ((high - low)[near] < 2.0**-13 * softmax(wide)[near]).all()


def test_ends_hold_the_softmax_of_everything_between_two_rows() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(0, 2, (20, 40))
    high = low + rng.uniform(0, 0.5, low.shape)
    least, most = softmax_ends(low, high)
    for share in (0.0, 1.0, rng.uniform(0, 1, low.shape), rng.integers(0, 2, low.shape)):
        found = softmax(low + share * (high - low))
        assert ((least <= found) & (found <= most)).all()


@pytest.mark.parametrize(
    ("row", "is_defined"),
    [
        ([1.0, -np.inf, 2.0], True),
        ([-np.inf, -np.inf, -np.inf], False),
        ([1.0, np.inf, 2.0], False),
        ([1.0, np.nan, 2.0], False),
    ],
)
def test_rows_without_a_value_are_certainly_so(row: list[float], is_defined: bool) -> None:
    x = np.array([row])
    with np.errstate(all="ignore"):
        low, high = softmax_ends(x, x)
        exact = softmax(x)
    assert np.isnan(exact).all() != is_defined
    assert np.isnan(low).all() == np.isnan(high).all() != is_defined
    if is_defined:
        assert low[0, 1] == high[0, 1] == 0.0


def test_a_score_that_may_overflow_makes_its_row_anything() -> None:
    low, high = np.zeros((2, 3)), np.zeros((2, 3))
    high[0, 1] = np.inf
    with np.errstate(all="ignore"):
        least, most = softmax_ends(low, high)
    assert np.isneginf(least[0]).all()
    assert np.isposinf(most[0]).all()
    assert np.isfinite(most[1]).all()


@pytest.mark.parametrize(
    ("rows", "columns", "window"), [(5, 7, 3), (7, 5, 2), (6, 6, 1), (4, 9, 20)]
)
def test_rows_of_a_window_have_their_last_columns(rows: int, columns: int, window: int) -> None:
    found = np.isfinite(up_to_diagonal(np.zeros((2, rows, columns)), window))
    for row in range(rows):
        last = row + columns - rows
        seen = [last - window < column <= last for column in range(columns)]
        assert (found[:, row] == seen).all()


@pytest.mark.parametrize(("causal", "window"), [(True, -1), (False, 8)])
def test_a_window_ends_with_a_causal_row(causal: bool, window: int) -> None:
    with pytest.raises(InvalidProblemError, match=f"a window of {window} columns"):
        ElementwiseGraph((Accumulator(), Softmax(0, causal=causal, window=window)))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_oracle_computes_attention(batch: int) -> None:
    workload = attention(20, 50, 16, 24, batch=batch, scores=scaled(16))
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.uniform(-2, 2, shape).astype(np.float16)
        for shape in (workload.first.problem.a_shape, *(e.problem.b_shape for e in workload.layers))
    )
    found = enclose(workload, q, [LayerInputs(k), LayerInputs(v)])
    scores = q.astype(np.float32) @ np.swapaxes(k, -1, -2).astype(np.float32) / 4
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    # As a kernel: the exponentials are rounded, and not what they are divided by.
    product = powers.astype(np.float16).astype(np.float32) @ v.astype(np.float32)
    actual = (product / powers.sum(axis=-1, keepdims=True)).astype(np.float16)
    assert (np.abs(actual - found.exact) <= found.bound).all()
    assert found.bound.max() < 0.01


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_the_oracle_allows_exponentials_that_are_divided_after_they_were_rounded(
    dtype: DType,
) -> None:
    """The quotient is no number of the type, so the bound's ends must not be rounded to it."""
    workload = attention(4000, 2, 16, 32, in_dtype=dtype, out_dtype=DType.F32)
    rng = np.random.default_rng(2)
    q, k, v = (
        rng.uniform(-1, 1, shape).astype(dtype.numpy)
        for shape in (workload.first.problem.a_shape, *(e.problem.b_shape for e in workload.layers))
    )
    found = enclose(workload, q, [LayerInputs(k), LayerInputs(v)])
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    actual = powers.astype(dtype.numpy).astype(np.float64) @ v.astype(np.float64)
    actual /= powers.sum(axis=-1, keepdims=True)
    error = np.abs(actual - found.exact)
    assert (error <= found.bound).all()
    assert found.bound.max() < 4 * dtype.unit_roundoff


def test_a_softmax_stands_at_the_end_of_a_prologue_only() -> None:
    graph = ElementwiseBuilder()
    graph.unary(UnaryOp.RELU, graph.softmax(0))
    with pytest.raises(InvalidProblemError, match="node 1 is a softmax"):
        graph.build()
    with pytest.raises(InvalidProblemError, match="prologue, not an epilogue"):
        Layer(problem=Gemm(m=8, n=8, k=8), epilogue=SOFTMAX)
    with pytest.raises(InvalidProblemError, match="no softmax"):
        emit_epilogue(SOFTMAX)


def test_scores_are_fp32_only_where_a_prologue_takes_them() -> None:
    before = Layer(problem=Gemm(m=8, n=8, k=8, out_dtype=DType.F32))
    Workload(layers=(before, Layer(problem=Gemm(m=8, n=8, k=8), prologue=SOFTMAX)))
    with pytest.raises(InvalidProblemError, match="gives float32"):
        Workload(layers=(before, Layer(problem=Gemm(m=8, n=8, k=8))))


def test_its_json_form_and_key_are_its_own() -> None:
    workload = attention(20, 50, 16, 24)
    assert decode(Workload, encode(Workload, workload)) == workload
    plain = Layer(problem=workload.last.problem)
    assert digest(plain) != digest(workload.last)


def test_only_families_of_attention_take_it() -> None:
    workload = attention(64, 64, 64, 64)
    for arch in map(arch_named, ("sm_75", "sm_80", "sm_90a", "sm_120")):
        takes = [each.name for each in FAMILIES if each.rejects(workload, arch) is None]
        of_hopper = ["attention_sm90"] if arch.name == "sm_90a" else []
        assert takes == ["attention", *of_hopper]
