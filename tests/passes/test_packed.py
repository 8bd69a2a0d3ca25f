"""Which constants are packed, however they are spelled, and what becomes of them elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, INPUT, UNPACK, Array, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.passes.joins.fuse_gated_mlp import join_pairs
from boltgen.passes.outline import Symbols, computes_all
from boltgen.passes.padding.plan import plan_padding
from boltgen.passes.regions.anchor import Anchor, match_anchor
from boltgen.passes.weights import packed
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.passes.carved import carve
from tests.passes.differential import checked

with_floats = checked(packed.with_floats, others=True)
with_packed_weights = checked(packed.with_packed_weights, others=True, unit=2.0**-11)

K, N, GROUP = 256, 24, 64

Spell = Callable[[GraphBuilder, Array, Array, Array], int]


def _decode(builder: GraphBuilder, numbers: Array, scales: Array, zeros: Array) -> int:
    """Groups in a dimension of their own, as models of one's own making have them."""
    shape = (N, K // GROUP, GROUP)
    wide = builder.astype(builder.constant(numbers.reshape(shape)), "float16")
    minus = builder.elementwise("subtract", wide, builder.constant(zeros[..., None]))
    scaled = builder.elementwise("multiply", minus, builder.constant(scales[..., None]))
    return builder.permute_dims(builder.reshape(scaled, (N, K)), (1, 0))


def _shifted(builder: GraphBuilder, numbers: Array, scales: Array, zeros: Array) -> int:
    """Eight numbers in a word, taken out by shifts: the decoding of group-quantised weights."""
    words = (numbers.reshape(N, -1, 8).astype(np.uint32) << 4 * np.arange(8, dtype=np.uint32)).sum(
        axis=-1, dtype=np.uint32
    )
    wide = builder.reshape(builder.constant(words), (N, K // 8, 1))
    shifts = builder.constant(4 * np.arange(8, dtype=np.uint32))
    right = builder.elementwise("right_shift", wide, shifts)
    nibbles = builder.elementwise("bitwise_and", right, builder.constant(np.uint32(15)))
    half = builder.astype(builder.reshape(nibbles, (N, K // GROUP, GROUP)), "float16")
    minus = builder.elementwise("subtract", half, builder.constant(zeros[..., None]))
    scaled = builder.elementwise("multiply", builder.constant(scales[..., None]), minus)
    return builder.permute_dims(builder.reshape(scaled, (N, K)), (1, 0))


def _operator(builder: GraphBuilder, numbers: Array, scales: Array, zeros: Array) -> int:
    """Relax's operator on runs of one scale."""
    args = (numbers.reshape(-1, GROUP), scales.reshape(-1), zeros.reshape(-1).astype(np.uint8))
    made = builder.operator(
        "dequantize",
        [builder.constant(each) for each in args],
        (N * K // GROUP, GROUP),
        "float16",
        axis=0,
    )
    return builder.permute_dims(builder.reshape(made, (N, K)), (1, 0))


SPELLINGS = {"decode": _decode, "shifts": _shifted, "operator": _operator}


def _weights(rng: np.random.Generator, end: int = 16) -> tuple[Array, Array, Array]:
    numbers = rng.integers(0, end, (N, K), np.uint8)
    numbers[0, :2] = 0, end - 1
    scales = rng.uniform(0.01, 0.02, (N, K // GROUP)).astype(np.float16)
    return numbers, scales, rng.integers(0, end, (N, K // GROUP)).astype(np.float16)


def _graph(spell: Spell, weights: tuple[Array, Array, Array], rows: int = 1) -> Graph:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(rows, K), dtype="float16"))
    return builder.graph(builder.matmul(x, spell(builder, *weights), "float16"))


def _packed(graph: Graph) -> Graph:
    return with_packed_weights(graph, computes_all, DType.F32)


def _product(graph: Graph) -> Gemm:
    (index,) = (index for index, expr in enumerate(graph.exprs) if expr.op == "matmul")
    anchor = match_anchor(graph, index)
    assert isinstance(anchor, Anchor)
    assert isinstance(anchor.problem, Gemm)
    return anchor.problem


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_a_zero_point_that_is_no_whole_number_is_not_packed(
    shift: float, rng: np.random.Generator
) -> None:
    numbers, scales, zeros = _weights(rng)
    graph = _packed(_graph(_decode, (numbers, scales, np.minimum(zeros, 14) + np.float16(shift))))
    has_packed = any(expr.op == UNPACK for expr in graph.exprs)
    assert has_packed == shift.is_integer()


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_is_packed_and_becomes_one_region(
    name: str, rng: np.random.Generator
) -> None:
    numbers, scales, zeros = weights = _weights(rng)
    graph = _packed(_graph(SPELLINGS[name], weights))
    form = PackedWeights(bits=4, group=GROUP, has_zeros=True)
    assert _product(graph) == Gemm(m=1, n=N, k=K, b_layout=_product(graph).b_layout, weights=form)
    (array,) = (graph[expr.args[0]].array for expr in graph.exprs if expr.op == UNPACK)
    assert array is not None
    assert np.array_equal(array, form.packed(numbers, scales, zeros.astype(np.uint8)))
    carved, (region,) = carve(graph, Symbols(()))
    assert {expr.op for expr in carved.exprs} == {INPUT, CONSTANT, "region"}
    assert [expr.dtype for expr in carved.exprs if expr.op == CONSTANT] == ["uint8"]
    assert region.region.workload.single.problem.b_bytes == array.nbytes


def test_what_no_region_takes_becomes_floats(rng: np.random.Generator) -> None:
    graph = _packed(_graph(_decode, _weights(rng)))
    floats = with_floats(graph)
    assert UNPACK not in {expr.op for expr in floats.exprs}
    (made,) = (expr for expr in floats.exprs if expr.op == CONSTANT)
    assert made.dtype == "float16"
    assert made.shape == (N, K)


def test_eight_bits_and_the_middle_need_no_zero_points(rng: np.random.Generator) -> None:
    numbers, scales, zeros = _weights(rng, 256)
    graph = _packed(_graph(_decode, (numbers, scales, np.full_like(zeros, 128))))
    assert _product(graph).weights == PackedWeights(bits=8, group=GROUP)


def test_a_column_of_one_scale_is_packed_for_few_rows_alone(rng: np.random.Generator) -> None:
    numbers, scales, zeros = _weights(rng, 256)
    same = np.repeat(scales[:, :1], scales.shape[1], axis=1)
    weights = numbers, same, np.full_like(zeros, 128)
    few, many = (_packed(_graph(_decode, weights, rows)) for rows in (32, 33))
    assert _product(few).weights == PackedWeights(bits=8, group=256)
    assert UNPACK not in {expr.op for expr in many.exprs}
    # Who quantised groups, or to four bits, wants the weights small.
    assert _product(_packed(_graph(_decode, (numbers, scales, zeros), 4096))).weights is not None


def test_scales_that_fp16_has_not_are_left_as_floats(rng: np.random.Generator) -> None:
    weights = _weights(rng)

    def spell(scale: float) -> Spell:
        def spelled(builder: GraphBuilder, numbers: Array, scales: Array, zeros: Array) -> int:
            wide = builder.astype(builder.constant(numbers), "float32")
            scaled = builder.elementwise("multiply", wide, builder.constant(np.float32(scale)))
            return builder.astype(builder.permute_dims(scaled, (1, 0)), "float16")

        return spelled

    found = [
        any(expr.op == UNPACK for expr in _packed(_graph(spell(scale), weights)).exprs)
        for scale in (1e-2, 1.1e-6, 1e4, float("nan"))
    ]
    assert found == [True, False, False, False]


def test_groups_of_no_kernel_are_left_as_floats(rng: np.random.Generator) -> None:
    numbers, scales, zeros = _weights(rng)

    def each(builder: GraphBuilder, numbers: Array, scales: Array, zeros: Array) -> int:
        wide = builder.astype(builder.constant(numbers), "float16")
        own = rng.uniform(0.01, 0.02, (1, K)).astype(np.float16)
        scaled = builder.elementwise("multiply", wide, builder.constant(own))
        return builder.permute_dims(scaled, (1, 0))

    graph = _packed(_graph(each, (numbers, scales, zeros)))
    assert UNPACK not in {expr.op for expr in graph.exprs}


def test_nothing_is_packed_where_no_kernel_computes_it(rng: np.random.Generator) -> None:
    def rejects(workload: Workload) -> str:
        return workload.short

    graph = _graph(_decode, _weights(rng))
    assert with_packed_weights(graph, rejects, DType.F32) is graph


def test_a_weight_of_two_products_is_packed_once(rng: np.random.Generator) -> None:
    b = GraphBuilder()
    x, y = (b.add(Expr(op=INPUT, shape=(rows, K), dtype="float16")) for rows in (1, 2))
    weight = _decode(b, *_weights(rng))
    graph = _packed(b.graph(tuple(b.matmul(each, weight, "float16") for each in (x, y))))
    assert [expr.op for expr in graph.exprs].count(UNPACK) == 1


def test_a_product_of_another_type_reads_floats(rng: np.random.Generator) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(1, K), dtype="float16"))
    graph = b.graph(b.matmul(x, _decode(b, *_weights(rng)), "float32"))
    assert _packed(graph) is graph


def test_packed_weights_make_no_pair(rng: np.random.Generator) -> None:
    """Their columns are not interleaved: each is a product of its own."""

    class Costs:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(1, K), dtype="float16"))
    up, gate = (b.matmul(x, _decode(b, *_weights(rng)), "float16") for _ in range(2))
    graph = _packed(b.graph(b.elementwise("multiply", b.elementwise("nn.silu", gate), up)))
    assert [expr.op for expr in graph.exprs].count(UNPACK) == 2
    assert join_pairs(graph, Costs(), computes_all).graph is graph  # type: ignore[arg-type]


def test_packed_weights_are_not_padded(rng: np.random.Generator) -> None:
    class Costs:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    graph = _packed(_graph(_decode, _weights(rng)))
    assert plan_padding(graph, Costs()) == ()  # type: ignore[arg-type]
