"""Operators that TVM computes on the host, or by NumPy, as kernels for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import numpy_helper
from tvm import relax
from tvm.relax.expr import MatchCast

import boltgen
from benchmarks.cases.relax_modules import build, operators
from boltgen.arch import arch_named
from boltgen.errors import CompileError, ModelImportError
from boltgen.frontend.relax import annotate, attach, import_model
from boltgen.tvm_build.lowering.data_extents import with_extents_first
from boltgen.tvm_build.lowering.nearest import is_exact, nearest
from boltgen.tvm_build.lowering.operators import with_device_kernels
from boltgen.tvm_build.lowering.plain_schedule import apply_rules, is_complete, schedule_plainly
from boltgen.tvm_build.lowering.schedules import scheduled, unscheduled
from boltgen.tvm_build.relax_link import cuda_target

op = relax.op
TARGET = cuda_target(arch_named("sm_80"))
rng = np.random.default_rng(0)
# Of each operator a form or two: one library, so that nvcc runs once.
TEXT = """
model (float[8, 32] x, float[1, 40, 4] boxes, float[1, 2, 40] scores, int64[24] labels)
=> (int64[a, 2] places, float[b] set, int64[c] plain, int64[c] at, int64[24] back, int64[c] count,
    int64[d] unsorted, float[e, 32] rows, int64[f, 3] kept, float[8] logs, int64[8] best,
    float[e] sums, float[e, 32] soft, float[8, 5] top, int64[8, 5] top_at, float[8, 32] running) {
  r = Relu(x)
  nz = NonZero(r)
  places = Transpose<perm=[1, 0]>(nz)
  set = GatherND(r, places)
  plain, at, back, count = Unique<sorted=1>(labels)
  unsorted = Unique<sorted=0>(labels)
  chosen = GreaterOrEqual(best_value, limit)
  rows = Compress<axis=0>(x, chosen)
  sums = ReduceSum<keepdims=0>(rows, one)
  soft = Softmax<axis=-1>(rows)
  kept = NonMaxSuppression(boxes, scores, most, overlap, least)
  logs = ReduceLogSumExp<keepdims=0>(x, one)
  best = ArgMax<axis=1, keepdims=0>(x)
  best_value = ReduceMax<keepdims=0>(x, one)
  top, top_at = TopK<axis=1>(x, five)
  running = CumSum(x, one_axis)
}
"""
CONSTANTS = {
    "most": np.array([7]),
    "overlap": np.array([0.3], np.float32),
    "least": np.array([0.2], np.float32),
    "one": np.array([1]),
    "one_axis": np.array(1),
    "five": np.array([5]),
    "limit": np.array(1.7, np.float32),
}


def parsed(text: str, constants: dict[str, np.ndarray]) -> Any:
    graph = onnx.parser.parse_graph(text)
    for name, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(value, name))
    nodes = {out: node for node in graph.node for out in node.output}
    order: list[Any] = []

    def add(node: Any) -> None:
        for name in node.input:
            if name in nodes and nodes[name] not in order:
                add(nodes[name])
        if node not in order:
            order.append(node)

    for node in list(graph.node):
        add(node)
    del graph.node[:]
    graph.node.extend(order)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8
    )


def boxes(count: int) -> np.ndarray:
    corner = rng.random((1, count, 2)).astype(np.float32)
    return np.concatenate([corner, corner + 0.1 + 0.3 * rng.random((1, count, 2))], -1).astype("f4")


def test_their_results_are_onnx_runtimes_and_may_be_empty() -> None:
    model = parsed(TEXT, CONSTANTS)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    artifact = boltgen.compile(model, arch="sm_80", check="none", reuse=False)
    x = rng.standard_normal((8, 32)).astype(np.float32)
    scores = rng.random((1, 2, 40)).astype(np.float32)
    labels = rng.integers(0, 9, 24)
    given = {"x": x, "boxes": boxes(40), "scores": scores, "labels": labels}
    none = {**given, "x": -np.abs(x), "scores": np.zeros_like(scores)}
    for inputs in (given, none):
        wanted = dict(
            zip(
                [each.name for each in session.get_outputs()],
                session.run(None, inputs),
                strict=True,
            )
        )
        found = artifact.run(inputs, device="vgpu")
        for name, want in wanted.items():
            assert found[name].shape == want.shape, name
            assert found[name].dtype == want.dtype, name
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)
    assert found["places"].shape == (0, 2) and found["kept"].shape == (0, 3)
    assert found["rows"].shape == (0, 32)


def test_limits_of_suppression_that_are_computed_are_refused_by_name() -> None:
    def body(b: relax.Expr, s: relax.Expr, most: relax.Expr) -> relax.Expr:
        limits = [relax.const(0.5, "float32"), relax.const(0.0, "float32")]
        return relax.TupleGetItem(
            op.vision.all_class_non_max_suppression(b, s, most, *limits, output_format="onnx"), 0
        )

    inputs = {
        "b": ((1, 8, 4), "float32"),
        "s": ((1, 2, 8), "float32"),
        "most": ((), "int64"),
    }
    with pytest.raises(ModelImportError, match="computes its most boxes"):
        with_device_kernels(build(inputs, body))


def test_an_extent_of_data_is_no_kernels_and_its_cast_keeps_its_operand() -> None:
    model = parsed(
        "g (float[64] c, float[64, 32] x, float[32, 8] w) => (float[n, 8] y) "
        "{ i = NonZero(c) j = Squeeze(i, zero) r = Gather<axis=0>(x, j) y = MatMul(r, w) }",
        {"zero": np.array([0])},
    )
    partitioned = annotate(import_model(model).module)
    assert partitioned.regions == ()
    assert {"nonzero", "matmul"} <= set(operators(partitioned))


def test_kernels_come_behind_the_extents_that_they_have() -> None:
    model = parsed(
        "g (int64 n) => (float[m] y) { r = Range(zero, n, one) f = Cast<to=1>(r) s = Mul(f, h) "
        "g = Cast<to=1>(n) y = Div(s, g) }",
        {"zero": np.array(0), "one": np.array(1), "h": np.array(0.5, np.float32)},
    )
    module = attach(annotate(import_model(model).module), (), (), {})
    lowered = unscheduled(module, TARGET)
    (block,) = lowered["main"].body.blocks
    casts = [isinstance(each, MatchCast) for each in block.bindings]
    named = [str(each) for each in block.bindings]
    (symbol,) = {str(each.ty.values[0]) for each in block.bindings if isinstance(each, MatchCast)}
    first = next(place for place, text in enumerate(named) if f"({symbol},)" in text)
    assert casts.index(True) < first
    assert (
        with_extents_first(lowered)["main"].body.blocks[0].bindings[-1].same_as(block.bindings[-1])
    )


REDUCTIONS = {
    "sum": lambda x: op.sum(x, [1]),
    "of all": op.argmax,
    "argmax": lambda x: op.argmax(x, 1),
    "softmax": lambda x: op.nn.softmax(x, -1),
    "elementwise": lambda x: op.exp(op.negative(x)),
    "scan": lambda x: op.cumsum(op.reshape(x, [-1]), 0),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_plain_schedule_gives_every_block_a_grid(name: str) -> None:
    module = build({"x": ((5, 7), "float32")}, REDUCTIONS[name])
    lowered = unscheduled(module, TARGET)
    made = apply_rules(lowered, TARGET, lambda _: [schedule_plainly])
    kernels = [each for each in made.functions.values() if isinstance(each, tvm.tirx.PrimFunc)]
    assert kernels and all("tirx.is_scheduled" in each.attrs for each in kernels)


def test_a_rule_that_raises_or_leaves_a_block_without_threads_is_passed_over() -> None:
    module = unscheduled(build({"x": ((5, 7), "float32")}, REDUCTIONS["argmax"]), TARGET)

    def raising(function: Any, target: Any) -> None:
        raise AssertionError

    def idle(function: Any, target: Any) -> Any:
        return tvm.s_tir.Schedule(function)

    (kernel,) = (each for each in module.functions.values() if isinstance(each, tvm.tirx.PrimFunc))
    assert not is_complete(idle(kernel, TARGET))
    assert is_complete(schedule_plainly(kernel, TARGET))
    apply_rules(module, TARGET, lambda _: [raising, idle, schedule_plainly])
    with pytest.raises(CompileError, match=r"no CUDA schedule for the function argmax"):
        apply_rules(module, TARGET, lambda _: [raising, idle])


def test_parts_without_elements_are_computed_by_nothing() -> None:
    module = build({"x": ((4, 6), "float32")}, lambda x: op.strided_slice(x, [1], [6], [6]))
    made = scheduled(module, TARGET)
    assert int(made["main"].ret_ty.shape.values[1]) == 0


@pytest.mark.parametrize(
    ("mode", "rounding", "pair", "places"),
    [
        # 3.5 * 2 / 7 - 0.5 is one half: the lower neighbour.
        ("half_pixel", "round_prefer_floor", (2, 7), [0, 0, 0, 0, 1, 1, 1]),
        ("half_pixel", "round_prefer_ceil", (2, 7), [0, 0, 0, 1, 1, 1, 1]),
        ("asymmetric", "floor", (3, 7), [0, 0, 0, 1, 1, 2, 2]),
        ("align_corners", "ceil", (3, 5), [0, 1, 1, 2, 2]),
        ("half_pixel", "round", (2, 7), None),
    ],
)
def test_the_nearest_element_is_found_in_exact_arithmetic(
    mode: str, rounding: str, pair: tuple[int, int], places: list[int] | None
) -> None:
    assert nearest(mode, rounding, *pair) == places


def test_a_power_of_two_is_exact_in_fp32() -> None:
    assert is_exact(4, 8) and is_exact(8, 4) and not is_exact(2, 7) and not is_exact(2, 12)
