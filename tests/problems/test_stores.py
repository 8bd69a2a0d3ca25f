"""Stores of elementwise graphs: their shapes, what they reduce, and who refuses them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from boltgen.arch import arch_named
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.errors import InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.families.registry import FAMILIES
from boltgen.families.rejections import graph_rejection
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import (
    MAX_LOADS,
    MAX_OPERANDS,
    SOFTMAX,
    Accumulator,
    BinaryOp,
    ElementwiseGraph,
    Load,
    LoadKind,
    Reduction,
    Store,
    Unary,
)
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import canonical
from boltgen.measure.epilogue_nodes import epilogue_nodes
from boltgen.passes.regions.activations import recognise
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.results import store_ld, store_shape
from boltgen.problems.workload import Layer, Workload

ROW, COLUMN, TENSOR = LoadKind.ROW, LoadKind.COLUMN, LoadKind.TENSOR
RELU = (Accumulator(), Unary(UnaryOp.RELU, 0))
PROBLEMS = {
    "gemm": Gemm(m=6, n=5, k=7),
    "batched": Gemm(batch=2, m=3, n=5, k=7),
    "conv": Conv2d(n=2, h=4, w=3, c=4, k=5, r=2, s=1),
}
# Those whose columns have a number for each of two products, or images.
SEVERAL_EACH = {"batched", "conv"}


def inputs(problem, rng):
    return tuple(
        rng.uniform(-1.5, 1.5, shape).astype(np.float16)
        for shape in (problem.a_shape, problem.b_shape)
    )


def statistics() -> ElementwiseGraph:
    """A biased tensor, and what a normalisation after it needs."""
    b = ElementwiseBuilder()
    x = b.binary(BinaryOp.ADD, 0, b.load(ROW))
    b.store(x)
    b.store(x, COLUMN, DType.F32, Reduction.SUM)
    b.store(x, COLUMN, DType.F32, Reduction.SUM_OF_SQUARES)
    b.store(b.unary(UnaryOp.ABS, x), ROW, DType.F16, Reduction.MAXIMUM)
    return b.build()


@pytest.mark.parametrize("name", PROBLEMS)
def test_several_stores_are_numpys_reductions(name, request):
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    a, b = inputs(problem, rng)
    bias = rng.uniform(-1, 1, 5).astype(np.float16)
    whole, sums, squares, largest = reference.results(problem, statistics(), a, b, [bias])
    expected = reference.run(problem, ElementwiseGraph(), a, b, []) + bias.astype(np.float64)
    np.testing.assert_allclose(whole, expected)
    np.testing.assert_allclose(sums, expected.sum(axis=-1))
    np.testing.assert_allclose(squares, (expected**2).sum(axis=-1))
    rows = expected.reshape(2 if name in SEVERAL_EACH else 1, -1, 5)
    largest_of_rows = np.abs(rows).max(axis=1)
    np.testing.assert_allclose(
        largest, largest_of_rows if name in SEVERAL_EACH else largest_of_rows[0]
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_fp32_reductions_in_any_order_are_within_the_bound_and_a_lost_element_is_not(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(4)
    a, b = inputs(problem, rng)
    bias = rng.uniform(1, 2, 5).astype(np.float16)
    found = reference.enclosures(problem, statistics(), a, b, [bias])
    value = found[0].exact.astype(np.float32)
    order = rng.permutation(value.shape[-1])
    sums, squares = np.float32(0), np.float32(0)
    for column in order:
        sums = sums + value[..., column]
        squares = squares + value[..., column] * value[..., column]
    for store, actual in ((1, sums), (2, squares)):
        expected = found[store]
        assert reference.compare(actual, expected.exact, expected.bound).within
        lost = actual - (value[..., 0] if store == 1 else value[..., 0] ** 2)
        assert not reference.compare(lost, expected.exact, expected.bound).within
    rows = tuple(range(1 if name in SEVERAL_EACH else 0, value.ndim - 1))
    largest = np.abs(value).max(axis=rows).astype(np.float16)
    assert reference.compare(largest, found[3].exact, found[3].bound).within
    assert not reference.compare(-largest, found[3].exact, found[3].bound).within


def in_parts() -> ElementwiseGraph:
    """The product times the sum of five parts; the sums of every two columns of it."""
    b = ElementwiseBuilder()
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(COLUMN, DType.F32, 5))
    b.store(x)
    b.store(x, COLUMN, DType.F32, Reduction.SUM, 2)
    return b.build()


@pytest.mark.parametrize("name", PROBLEMS)
def test_columns_in_parts_are_read_as_their_sum_and_stored_as_sums_of_some_columns(name):
    problem, rng = PROBLEMS[name].resized(PROBLEMS[name].a_shape[-1], 6), np.random.default_rng(5)
    a, b = inputs(problem, rng)
    rows = problem.matrix[0]
    parts = rng.uniform(-1, 1, (rows, 5)).astype(np.float32)
    found = reference.enclosures(problem, in_parts(), a, b, [parts])
    product = reference.run(problem, ElementwiseGraph(), a, b, [])
    factors = parts.astype(np.float64).sum(axis=1)
    shape = (*product.shape[:-1], 1) if name == "conv" else (-1, 1)
    expected = product * factors.reshape(shape)
    sums = expected.reshape(*expected.shape[:-1], 3, 2).sum(axis=-1)
    assert store_shape(problem, in_parts().stores[1]) == sums.shape
    assert store_ld(problem, in_parts().stores[1]) == 3
    for result, wanted in zip(found, (expected, sums), strict=True):
        np.testing.assert_allclose(result.exact, wanted)
    # FP32 sums of the parts, in another order, are within the bound; without one part they are not.
    for kept, within in ((slice(None, None, -1), True), (slice(1, None), False)):
        factor = np.float32(0)
        for part in parts[:, kept].T:
            factor = factor + part
        made = (product.astype(np.float32) * factor.reshape(shape)).astype(np.float32)
        made = made.reshape((*sums.shape, 2)).sum(axis=-1, dtype=np.float32)
        assert reference.compare(made, found[1].exact, found[1].bound).within is within


def test_columns_of_a_number_divide_n():
    with pytest.raises(InvalidProblemError, match=r"N=5\b.*\b2\b"):
        store_shape(PROBLEMS["gemm"], in_parts().stores[1])
    rejected = FAMILIES.named("cutlass2").rejects(
        Workload.of(PROBLEMS["gemm"], in_parts()), arch_named("sm_80")
    )
    assert rejected is not None
    assert {"N=5", "2,"} <= set(rejected.split())


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_only_columns_of_float32_have_parts(dtype):
    for load in (Load(COLUMN, dtype, 3), Load(ROW, DType.F32, 3), Load(COLUMN, DType.F32, 0)):
        with pytest.raises(InvalidProblemError, match=str(load.parts)):
            ElementwiseGraph((Accumulator(), load))
    with pytest.raises(InvalidProblemError, match=r"row.*\b4\b"):
        ElementwiseGraph(stores=(Store(0), Store(0, ROW, DType.F32, Reduction.SUM, 4)))


def test_a_tile_has_whole_numbers():
    """Every configuration that is tried stores each number by one warp; others are named."""
    arch, problem = arch_named("sm_80"), Gemm(m=128, n=768, k=768)
    b = ElementwiseBuilder()
    b.store(0)
    b.store(0, COLUMN, DType.F32, Reduction.SUM, 64)
    workload, family = Workload.of(problem, b.build()), FAMILIES.named("cutlass2")
    chosen = family.space(workload, arch).candidates
    assert chosen
    assert all(config.threadblock.n % 64 == 0 for config in chosen)
    narrow = [
        config
        for config in family.space(Workload.of(problem), arch).candidates
        if config.threadblock.n % 64
    ]
    (found,) = family.violations(workload, narrow[0], arch)
    assert found.name == "columns_of_a_number"
    assert str(narrow[0].threadblock.n) in found.message


@pytest.mark.parametrize("family", ["cutlass3", "skinny", "b2b", "attention", "norm"])
def test_other_families_name_columns_in_parts(family):
    b = ElementwiseBuilder()
    b.binary(BinaryOp.MULTIPLY, 0, b.load(COLUMN, DType.F32, 5))
    layer = Layer(problem=Gemm(m=16, n=64, k=64), epilogue=b.build())
    layers = (layer,)
    if family == "b2b":
        layers = (layer, Layer(problem=Gemm(m=16, n=64, k=64)))
    if family == "attention":
        product = Gemm(m=16, n=64, k=64, b_layout=Layout.COLUMN, out_dtype=DType.F32)
        after = Gemm(m=16, n=64, k=64)
        layers = (
            Layer(problem=product, epilogue=b.build()),
            Layer(problem=after, prologue=SOFTMAX),
        )
    if family == "norm":
        norm = Norm(rows=16, columns=64, function=NormFunction.RMS)
        layers = (Layer(problem=norm, epilogue=b.build()),)
    arch = arch_named("sm_90a")
    plain = tuple(replace(each, epilogue=ElementwiseGraph()) for each in layers)
    assert FAMILIES.named(family).rejects(Workload(layers=plain), arch) is None
    rejected = FAMILIES.named(family).rejects(Workload(layers=layers), arch)
    assert rejected is not None
    assert "column0 of 5 parts" in rejected


@pytest.mark.parametrize("reduction", Reduction)
def test_nan_and_infinity_pass_through_reductions(reduction):
    problem = Gemm(m=4, n=3, k=1, out_dtype=DType.F32)
    a = np.array([[np.nan], [np.inf], [-np.inf], [1.0]], np.float16)
    b = np.array([[1.0, 1.0, 2.0]], np.float16)
    graph = ElementwiseGraph(stores=(Store(0, COLUMN, DType.F32, reduction),))
    (found,) = reference.enclosures(problem, graph, a, b, [])
    with np.errstate(all="ignore"):
        value = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        actual = {
            Reduction.SUM: value.sum(axis=1),
            Reduction.SUM_OF_SQUARES: (value**2).sum(axis=1),
            Reduction.MAXIMUM: value.max(axis=1),
        }[reduction]
    assert np.isnan(found.exact[0])
    assert np.isinf(found.exact[1:3]).all()
    assert reference.compare(actual, found.exact, found.bound).within
    finite = np.where(np.isfinite(actual), actual, np.float32(0))
    assert not reference.compare(finite, found.exact, found.bound).within


def test_a_sum_that_may_overflow_is_anything():
    problem = Gemm(m=1, n=4, k=1, out_dtype=DType.F32)
    a, b = np.array([[60000.0]], np.float16), np.full((1, 4), 60000.0, np.float16)
    builder = ElementwiseBuilder()
    large = builder.binary(BinaryOp.MULTIPLY, 0, builder.scalar(3e28))
    builder.store(large, COLUMN, DType.F32, Reduction.SUM)
    (found,) = reference.enclosures(problem, builder.build(), a, b, [])
    assert np.isinf(found.bound).all()


@pytest.mark.parametrize(
    ("store", "named"),
    [
        (Store(2), "node 2; there are 2"),
        (Store(-1), "node -1"),
        (Store(1, ROW), "'row' has no reduction"),
        (Store(1, TENSOR, None, Reduction.SUM), "'tensor' has sum"),
    ],
)
def test_a_store_that_makes_no_sense_is_refused(store, named):
    with pytest.raises(InvalidProblemError, match=named):
        ElementwiseGraph(RELU, (store,))


SEVERAL = (Store(1), Store(0, TENSOR, DType.F16))
REJECTED = {
    "store 1 names no type": (Store(1), Store(0)),
    "reduces (maximum)": (Store(1, ROW, DType.F32, Reduction.MAXIMUM),),
    "float32": (Store(1, TENSOR, DType.F32),),
}


@pytest.mark.parametrize("named", REJECTED)
def test_kernels_name_the_store_that_they_refuse_and_nobody_drops_it(named):
    graph = ElementwiseGraph(RELU, REJECTED[named])
    reason = graph_rejection(graph)
    assert reason is not None
    assert named in reason
    a = b = np.ones((1, 1), np.float16)
    for user in (
        lambda: emit_epilogue(graph),
        lambda: epilogue_nodes(graph, [], []),
        lambda: recognise(graph, DType.F16),
        lambda: graph.further,
        lambda: reference.run(Gemm(m=1, n=1, k=1), graph, a, b, []),
        lambda: reference.enclosure(Gemm(m=1, n=1, k=1), graph, a, b, []),
    ):
        with pytest.raises(InvalidProblemError, match="tensor"):
            user()


def test_kernels_reduce_to_float32_alone():
    stores = (Store(1), Store(1, COLUMN, DType.F16, Reduction.SUM))
    graph = ElementwiseGraph(RELU, stores)
    reason = graph_rejection(graph)
    assert reason is not None
    assert "store 1 reduces to float16" in reason
    with pytest.raises(InvalidProblemError, match="sum in float16"):
        emit_epilogue(graph)
    graph = ElementwiseGraph(RELU, (Store(1), replace(stores[1], dtype=DType.F32)))
    assert graph_rejection(graph) is None
    code = emit_epilogue(graph)
    assert code.reduces
    assert code.operands.endswith("boltgen::Reduced<boltgen::Column<float>, boltgen::Sum>>")


def test_kernels_write_full_tensors_besides_d():
    graph = ElementwiseGraph(RELU, SEVERAL)
    assert graph_rejection(graph) is None
    assert graph.further == ((SEVERAL[1], DType.F16),)
    assert graph.up_to(0) == ElementwiseGraph()
    code = emit_epilogue(graph)
    assert "boltgen::OperandsAndResults<" in code.operands
    assert code.operands.endswith("cutlass::half_t>")
    assert (code.result, code.statements[-1]) == ("relu1", "further[0] = acc;")
    # What reads one result takes none of several for it.
    for user in (lambda: epilogue_nodes(graph, [], []), lambda: graph.result):
        with pytest.raises(InvalidProblemError, match="tensor"):
            user()


def test_a_launch_passes_so_many_addresses_of_loads_and_results():
    b = ElementwiseBuilder()
    for _ in range(MAX_LOADS[ROW]):
        b.load(ROW)
    nodes = b.build().nodes
    further = (Store(0, TENSOR, DType.F16),) * (MAX_OPERANDS - MAX_LOADS[ROW])
    assert graph_rejection(ElementwiseGraph(nodes, (Store(0), *further))) is None
    reason = graph_rejection(ElementwiseGraph(nodes, (Store(0), *further, further[0])))
    assert reason is not None
    assert f"4 loads and 4 stores besides D: a launch passes {MAX_OPERANDS}" in reason


@pytest.mark.parametrize("family", ["b2b", "b2b_sm90", "move"])
def test_families_that_write_d_alone_name_the_layer_that_stores_more(family):
    layers = (
        Layer(problem=Gemm(m=64, n=64, k=64)),
        Layer(problem=Gemm(m=64, n=64, k=64), epilogue=ElementwiseGraph(RELU, SEVERAL)),
    )
    chosen = FAMILIES.named(family)
    reason = chosen.rejects(Workload(layers=layers), arch_named("sm_90a"))
    assert reason is not None
    assert family == "move" or "layer 1: 2 stores" in reason


def test_results_are_simplified_together_and_keep_their_types():
    """What is stored is a node of its own, and a cast to the stored type goes."""
    b = ElementwiseBuilder()
    total = b.binary(BinaryOp.ADD, 0, b.load(ROW))
    rounded = b.cast(total, DType.BF16)
    b.store(b.binary(BinaryOp.MULTIPLY, total, b.unary(UnaryOp.SIGMOID, total)))
    b.store(rounded, dtype=DType.BF16)
    found = recognise(b.build(), DType.F16)
    assert found.describe() == "tensor: silu(add(acc, row0)); tensor bfloat16: add(acc, row0)"


def test_one_store_of_the_last_node_is_the_graph_without_stores():
    graph = ElementwiseGraph(RELU, (Store(1),))
    assert graph == ElementwiseGraph(RELU)
    assert graph_rejection(graph) is None
    assert graph.results == (Store(1),)


def test_a_graph_of_one_store_has_the_key_and_the_record_that_it_always_had():
    plain = ElementwiseGraph(RELU)
    key = "Epilogue(nodes=(Accumulator(),Unary(op=UnaryOp.RELU,x=0,params=())))"  # before stores
    record = {
        "nodes": [{"type": "Accumulator"}, {"type": "Unary", "op": "relu", "x": 0, "params": []}]
    }
    assert canonical(plain) == key
    assert encode(ElementwiseGraph, plain) == record
    assert decode(ElementwiseGraph, record) == plain


@pytest.mark.parametrize("named", REJECTED)
def test_stores_are_part_of_keys_and_records(named):
    graph = ElementwiseGraph(RELU, REJECTED[named])
    assert canonical(graph) != canonical(ElementwiseGraph(RELU))
    assert (
        decode(ElementwiseGraph, json.loads(json.dumps(encode(ElementwiseGraph, graph)))) == graph
    )


def test_stores_are_described_by_what_they_span():
    assert statistics().describe() == (
        "tensor: add(acc, row0); column float32: sum(add(acc, row0)); "
        "column float32: sum_of_squares(add(acc, row0)); "
        "row float16: maximum(abs(add(acc, row0)))"
    )


@pytest.mark.parametrize("stores", [1, 3])
def test_the_text_of_shared_nodes_is_linear(stores):
    b = ElementwiseBuilder()
    x, lengths = 0, []
    for count in range(1, 401):
        x = b.binary(BinaryOp.ADD, x, x)
        if count in (200, 400):
            whole = ElementwiseGraph(b.build().nodes, tuple(Store(x) for _ in range(stores)))
            lengths.append(len(whole.describe()))
    assert lengths[1] < 2.3 * lengths[0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_convolution_of_pixels_is_a_product_unless_it_sums_those_of_several_images(
    count: int,
) -> None:
    pointwise = Conv2d(n=count, h=4, w=3, c=4, k=5, r=1, s=1)
    b = ElementwiseBuilder()
    b.store(0)
    assert Workload.of(pointwise, b.build()).single.problem == pointwise.gemm
    b.store(0, COLUMN, DType.F32, Reduction.SUM)
    assert Workload.of(pointwise, b.build()).single.problem == pointwise.gemm
    b.store(0, ROW, DType.F32, Reduction.SUM)
    kept = Workload.of(pointwise, b.build()).single.problem
    assert kept == (pointwise.gemm if count == 1 else pointwise)


def test_a_batch_of_one_b_is_a_longer_product_unless_it_sums_the_rows_of_each() -> None:
    batched = Gemm(batch=2, m=3, n=5, k=7, b_batched=False)
    b = ElementwiseBuilder()
    b.store(0)
    assert Workload.of(batched, b.build()).single.problem == batched.folded
    b.store(0, ROW, DType.F32, Reduction.SUM)
    assert Workload.of(batched, b.build()).single.problem == batched
