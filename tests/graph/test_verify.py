"""A graph that breaks a rule is refused with the rule, the operator and its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from boltgen.errors import GraphError
from boltgen.graph.graph import INPUT, Expr, Graph
from boltgen.graph.ops import OPERATORS
from boltgen.graph.text import Constants, parse_graph
from boltgen.graph.verify import Verifier
from boltgen.passes.legalise.half_columns import HALF
from boltgen.passes.legalise.norm_of_sums import NORMED
from boltgen.passes.norms.image_norms import IMAGE_NORM
from boltgen.passes.regions.anchor import ANCHORS
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE

CONV = (
    "strides=({s}, {s}), padding=(1, 1, 1, 1), dilation=(1, 1), groups={g}, data_layout='NHWC', "
    "kernel_layout='OHWI', out_layout='NHWC'"
)
RIGHT = """
n = dim('n', 2, 64)
m = dim('m', 100, 200)
def main():
    v0: float16[n, 4, 6] = input()
    v1: float16[6, 8] = input()
    v2: float16[n, 4, 8] = matmul(v0, v1)
    v3: float16[()] = constant(0.5)
    v4: float16[n, 4, 8] = multiply(v2, v3)
    v5: float32[n, 4, 8] = astype(v4, from_dtype='float16')
    v6: float32[4*n, 8] = reshape(v5)
    v7: float32[8, 4*n] = permute_dims(v6, axes=(1, 0))
    v8: float32[8, 1] = max(v7, axis=(1,), keepdims=True)
    v9: bool[8, 4*n] = greater(v7, v8)
    v10: float32[8, 4*n] = where(v9, v7, v8)
    v11: float32[16, 4*n] = concat(v7, v10, axis=0)
    v12: float32[3, 4*n] = strided_slice(v11, axis=0, begin=2, end=5)
    v13: float32[5, 4*n] = nn.pad(v12, widths=((1, 1), (0, 0)), value=0.0, mode='constant')
    v14: float32[2, 5, 4*n] = stack(v13, v13, axis=0)
    v15: vendor = vendor.operator(v14)
    v16: float16[1, 9, 9, 6] = input()
    v17: float16[8, 3, 3, 3] = input()
    v18: float16[1, 5, 5, 8] = nn.conv2d(v16, v17, CONV)
    v19: float16[1, 5, 5, 4] = boltgen.half(v18, index=1)
    return (v15, v19)
""".replace("CONV", CONV.format(s=2, g=2))


def wrong(before: str, after: str) -> Graph:
    assert RIGHT.count(before) == 1
    return parse_graph(RIGHT.replace(before, after), Constants())


def test_a_graph_that_keeps_the_rules_is_verified() -> None:
    Verifier().verify(parse_graph(RIGHT))


def test_a_view_of_unknown_sizes_has_any_number_of_elements() -> None:
    known = Expr(op=INPUT, shape=(2, 3), dtype="float32")
    view = Expr(op="reshape", args=(0,), shape=("rows", 2), dtype="float32")
    Verifier().verify(Graph((known, view), frozenset({1}), 1))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("v2: float16[n, 4, 8] =", "v2: float16[n, 4, 9] =", "matmul's result has the shape"),
        ("v1: float16[6, 8]", "v1: float16[7, 8]", "inner extents 6 and 7 must be equal"),
        ("v2: float16[n, 4, 8] =", "v2: float16[m, 4, 8] =", "has the shape (n, 4, 8)"),
        ("v4: float16[", "v4: float32[", "multiply's result is float16"),
        ("v3: float16[()]", "v3: float32[()]", "dtypes float16, float32 must be equal"),
        ("from_dtype='float16'", "from_dtype='float32'", "must be the operand's, float16"),
        ("v6: float32[4*n, 8]", "v6: float32[9*m, 8]", "elements cannot be"),
        ("axes=(1, 0)", "axes=(1, 1)", "must name each axis once"),
        ("axes=(1, 0)", "axes=1", "attribute axes is of type tuple[int, ...] | None"),
        ("v9: bool", "v9: float32", "greater's result is bool"),
        ("where(v9, v7, v8)", "where(v8, v7, v8)", "the condition is float32"),
        ("where(v9, v7, v8)", "where(v9, v7)", "where has 3 to 3 operands"),
        ("v11: float32[16", "v11: float32[17", "concat's result has the shape (16, 4*n)"),
        ("concat(v7, v10, axis=0)", "concat(v7, v10, axis=2)", "must be an axis of 2"),
        ("begin=2, end=5", "begin=12, end=17", "12:17 must be within 16"),
        ("widths=((1, 1), (0, 0))", "widths=((1, 1),)", "1 widths must be 2"),
        ("v18: float16[1, 5, 5, 8]", "v18: float16[1, 6, 5, 8]", "shape (1, 5, 5, 8)"),
        ("groups=2", "groups=3", "6 channels must be 3 times 3 groups"),
        ("v19: float16[1, 5, 5, 4]", "v19: float16[1, 5, 5, 8]", "shape (1, 5, 5, 4)"),
    ],
)
def test_a_rule_that_is_broken_is_named(before: str, after: str, said: str) -> None:
    with pytest.raises(GraphError, match=r"breaks the rule '.*': v\d+: ") as caught:
        Verifier().verify(wrong(before, after))
    assert said in str(caught.value)


def test_an_operator_that_was_right_is_checked_again_on_other_operands() -> None:
    verifier = Verifier()
    graph = parse_graph(RIGHT)
    verifier.verify(graph)
    exprs = list(graph.exprs)
    exprs[1] = replace(exprs[1], shape=(6, 9))
    with pytest.raises(GraphError, match="matmul's result has the shape"):
        verifier.verify(replace(graph, exprs=tuple(exprs)))


def test_a_value_that_comes_later_is_not_read() -> None:
    exprs = (Expr(op="nn.relu", args=(1,), shape=(2,), dtype="float16"), Expr(op="input"))
    with pytest.raises(GraphError, match=r"operator nn\.relu .* lines above it"):
        Verifier().verify(Graph(exprs, frozenset({0}), 0))


@pytest.mark.parametrize(
    ("escaping", "results", "said"),
    [({0}, 3, "v3 is a result"), ({0, 7}, 0, "v7 is a result"), (set(), 0, "an escaping value")],
)
def test_results_exist_and_escape(escaping: set[int], results: int, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        Verifier().verify(Graph((Expr(op="input"),), frozenset(escaping), results))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda expr: replace(expr, shape=(3,)), r"its shape, not \(2,\)"),
        (lambda expr: replace(expr, dtype="float16"), "its dtype, not float32"),
        (lambda expr: replace(expr, shape=(1,), array=np.ones(1, np.float32)), "has a scalar"),
    ],
)
def test_a_constant_is_its_array(change: Callable[[Expr], Expr], said: str) -> None:
    constant = Expr(op="constant", shape=(2,), dtype="float32", array=np.ones(2, np.float32))
    Verifier().verify(Graph((constant,), frozenset({0}), 0))
    with pytest.raises(GraphError, match=said):
        Verifier().verify(Graph((change(constant),), frozenset({0}), 0))


def test_every_operator_that_passes_fuse_or_make_has_a_record() -> None:
    assert OPERATORS.keys() >= {*ELEMENTWISE, *ANCHORS, HALF, NORMED, IMAGE_NORM}
