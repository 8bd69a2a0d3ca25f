"""From products in a graph to problems, and the reasons where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boltgen.graph.attributes import Convolution, Permutation
from boltgen.graph.graph import INPUT, Expr, Graph
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.regions.anchor import Anchor, match_anchor
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.region import Rejected

Shape = tuple[int | str, ...]
CONV = Convolution(
    strides=(2, 1),
    padding=(1, 1, 1, 0),
    dilation=(1, 2),
    groups=1,
    data_layout="NHWC",
    kernel_layout="OHWI",
    out_layout="NHWC",
)


def _input(shape: Shape | None, dtype: str = "float16") -> Expr:
    return Expr(op=INPUT, shape=shape, dtype=dtype)


def _matmul(a: Shape, b: Shape, out: Shape, axes: tuple[int, ...] | None = ()) -> Anchor | Rejected:
    exprs = [_input(a), _input(b)]
    if axes != ():
        swapped = (*b[:-2], b[-1], b[-2])
        attrs = Permutation(axes)
        permute = Expr(op="permute_dims", args=(1,), shape=swapped, dtype="float16", attrs=attrs)
        exprs.append(permute)
    last = len(exprs) - 1
    exprs.append(Expr(op="matmul", args=(0, last), shape=out, dtype="float16"))
    return match_anchor(Graph(tuple(exprs), frozenset()), last + 1)


def _conv2d(
    weight: tuple[int, ...] = (32, 3, 3, 16), channels: int = 16, **changes: Any
) -> Anchor | Rejected:
    exprs = (
        _input((2, 9, 8, channels)),
        _input(weight),
        Expr(
            op="nn.conv2d",
            args=(0, 1),
            shape=(2, 5, 5, 32),
            dtype="float16",
            attrs=replace(CONV, **changes),
        ),
    )
    return match_anchor(Graph(exprs, frozenset()), 2)


@pytest.mark.parametrize(
    ("a", "b", "out", "expected"),
    [
        ((4, 8), (8, 6), (4, 6), Gemm(m=4, n=6, k=8)),
        ((2, 3, 4, 8), (8, 6), (2, 3, 4, 6), Gemm(m=24, n=6, k=8)),
        ((5, 4, 8), (1, 8, 6), (5, 4, 6), Gemm(m=20, n=6, k=8)),
        ((1, 4, 8), (1, 8, 6), (1, 4, 6), Gemm(m=4, n=6, k=8)),
        ((5, 4, 8), (5, 8, 6), (5, 4, 6), Gemm(batch=5, m=4, n=6, k=8)),
        ((2, 3, 4, 8), (2, 3, 8, 6), (2, 3, 4, 6), Gemm(batch=6, m=4, n=6, k=8)),
        ((4, 8), (5, 8, 6), (5, 4, 6), Gemm(batch=5, m=4, n=6, k=8, a_batched=False)),
        ((1, 4, 8), (5, 8, 6), (5, 4, 6), Gemm(batch=5, m=4, n=6, k=8, a_batched=False)),
    ],
)
def test_matmul(a: Shape, b: Shape, out: Shape, expected: Gemm) -> None:
    anchor = _matmul(a, b, out)
    assert isinstance(anchor, Anchor)
    assert (anchor.problem, anchor.a, anchor.b, anchor.absorbed) == (expected, 0, 1, ())


@pytest.mark.parametrize(
    ("a", "b", "axes", "expected"),
    [
        ((4, 8), (6, 8), None, Gemm(m=4, n=6, k=8, b_layout=Layout.COLUMN)),
        ((4, 8), (6, 8), (1, 0), Gemm(m=4, n=6, k=8, b_layout=Layout.COLUMN)),
        (
            (5, 4, 8),
            (5, 6, 8),
            (0, 2, 1),
            Gemm(batch=5, m=4, n=6, k=8, b_layout=Layout.COLUMN),
        ),
    ],
)
def test_a_transposed_b_is_read_as_columns(
    a: Shape, b: Shape, axes: tuple[int, ...] | None, expected: Gemm
) -> None:
    anchor = _matmul(a, b, (*a[:-1], 6), axes)
    assert isinstance(anchor, Anchor)
    assert (anchor.problem, anchor.a, anchor.b, anchor.absorbed) == (expected, 0, 1, (2,))


def test_another_permutation_of_b_is_not_absorbed() -> None:
    anchor = _matmul((5, 4, 8), (8, 5, 6), (5, 4, 6), (1, 0, 2))
    assert not isinstance(anchor, Anchor) or anchor.absorbed == ()


def test_conv2d() -> None:
    anchor = _conv2d()
    assert isinstance(anchor, Anchor)
    assert anchor.problem == Conv2d(
        n=2,
        h=9,
        w=8,
        c=16,
        k=32,
        r=3,
        s=3,
        stride=(2, 1),
        padding=(1, 1, 1, 0),
        dilation=(1, 2),
    )


def test_the_result_type_is_the_problem_output_type() -> None:
    exprs = (
        _input((4, 8)),
        _input((8, 6)),
        Expr(op="matmul", args=(0, 1), shape=(4, 6), dtype="float32"),
    )
    anchor = match_anchor(Graph(exprs, frozenset()), 2)
    assert isinstance(anchor, Anchor)
    assert anchor.problem.out_dtype is DType.F32


def test_as_many_groups_as_channels_are_a_depthwise_convolution() -> None:
    anchor = _conv2d(groups=16, kernel_layout="HWOI", weight=(3, 3, 32, 1))
    two = _conv2d(groups=2, kernel_layout="HWOI", weight=(3, 3, 32, 1), channels=2)
    assert isinstance(two, Anchor)
    assert isinstance(two.problem, Depthwise)
    assert (two.problem.c, two.problem.multiplier) == (2, 16)
    assert isinstance(anchor, Anchor)
    stride, padding, dilation = CONV.strides, CONV.padding, CONV.dilation
    assert anchor.problem == Depthwise(
        n=2, h=9, w=8, c=16, r=3, s=3, multiplier=2,
        stride=stride, padding=padding, dilation=dilation,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (_matmul(("n", 8), (8, 6), ("n", 6)), "dimension 0 of an operand, (n, 8), is the symbolic"),
        (_matmul((8,), (8, 6), (6,)), "an operand is a vector"),
        (_matmul((2, 1, 4, 8), (2, 3, 8, 6), (2, 3, 4, 6)), "broadcast in part"),
        (_conv2d(groups=16), "kernels take NHWC activations and HWOI weights"),
        (_conv2d(data_layout="NCHW"), "its layouts are NCHW, OHWI and NHWC"),
        (_conv2d(kernel_layout="HWIO"), "its layouts are NHWC, HWIO and NHWC"),
    ],
)
def test_a_rejection_says_why(found: Anchor | Rejected, reason: str) -> None:
    assert isinstance(found, Rejected)
    assert reason in found.reason


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_another_dtype_is_rejected(dtype: str) -> None:
    exprs = (
        _input((4, 8), dtype),
        _input((8, 6), dtype),
        Expr(op="matmul", args=(0, 1), shape=(4, 6), dtype=dtype),
    )
    found = match_anchor(Graph(exprs, frozenset()), 2)
    assert found == Rejected(
        operator="matmul",
        reason=f"an operand is {dtype}; tensor-core kernels take float16 or bfloat16",
    )


@pytest.mark.parametrize(
    ("types", "found"),
    [
        (("bfloat16", "bfloat16", "bfloat16"), None),
        (("bfloat16", "bfloat16", "float32"), None),
        (("bfloat16", "float16", "bfloat16"), "its operands are bfloat16 and float16"),
        (("bfloat16", "bfloat16", "float16"), "its result is float16, not bfloat16 or float32"),
    ],
)
def test_a_product_is_of_one_type(types: tuple[str, str, str], found: str | None) -> None:
    a, b, d = types
    exprs = (
        _input((4, 8), a),
        _input((8, 6), b),
        Expr(op="matmul", args=(0, 1), shape=(4, 6), dtype=d),
    )
    matched = match_anchor(Graph(exprs, frozenset()), 2)
    if found is not None:
        assert matched == Rejected(operator="matmul", reason=found)
        return
    assert isinstance(matched, Anchor)
    assert (matched.problem.in_dtype.value, matched.problem.out_dtype.value) == (a, d)


def test_an_unknown_rank_is_rejected() -> None:
    exprs = (
        _input(None),
        _input((8, 6)),
        Expr(op="matmul", args=(0, 1), shape=None, dtype="float16"),
    )
    found = match_anchor(Graph(exprs, frozenset()), 2)
    assert isinstance(found, Rejected)
    assert "no known rank" in found.reason


def test_a_stride_that_only_a_formula_decides_leaves_a_convolution_to_tvm() -> None:
    # (2s - 1 + 2 - 3)//2 is s - 1, but the kernel has one symbol for 2s - 1.
    s = symbolic(Symbol("s", 4, 64))
    exprs = (
        _input((2, 1, 2 * s - 1, 16)),
        _input((32, 1, 3, 16)),
        Expr(
            op="nn.conv2d",
            args=(0, 1),
            shape=(2, 1, s, 32),
            dtype="float16",
            attrs=replace(CONV, strides=(1, 2), padding=(0, 1, 0, 1), dilation=(1, 1)),
        ),
    )
    found = match_anchor(Graph(exprs, frozenset()), 2)
    assert isinstance(found, Rejected)
    assert "does not decide '// 2'" in found.reason
