"""Where the operators of a partitioned graph run, why, and their share of the work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boltgen.graph.graph import (
    GROUPED,
    INPUT,
    OPAQUE,
    PART,
    RECURRENT,
    Expr,
    Graph,
    GraphBuilder,
)
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.placement import placements
from boltgen.problems.region import Placement
from tests.passes.carved import carve

F16 = "float16"
_CONV = {
    **{"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1},
    **{"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "NCHW"},
}


class Net(GraphBuilder):
    """Grows one operator of inputs."""

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F16))

    def of(self, op: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], **attrs: Any) -> int:
        args = [self.input(*each) for each in shapes]
        if op == GROUPED:
            args[2] = self.add(Expr(op=INPUT, shape=shapes[2], dtype="int32"))
        return self.operator(op, args, out, F16, **attrs)


_CONV1D = {"strides": (1,), "padding": (0, 0), "dilation": (1,), "groups": 1}
_CONV1D |= {"data_layout": "NCW", "kernel_layout": "OIW", "out_layout": "NCW"}
_CONV3D = {"strides": (1, 1, 1), "padding": (0,) * 6, "dilation": (1, 1, 1), "groups": 1}
_CONV3D |= {"data_layout": "NCDHW", "kernel_layout": "OIDHW", "out_layout": "NCDHW"}


def _placed(graph: Graph) -> list[Placement]:
    return list(placements(graph, {}))


@pytest.mark.parametrize(
    ("op", "shapes", "out", "attrs", "flops"),
    [
        ("matmul", [(3, 4, 5), (5, 7)], (3, 4, 7), {}, 2 * 3 * 4 * 7 * 5),
        (GROUPED, [(6, 5), (2, 5, 7), (2,)], (6, 7), {}, 2 * 6 * 7 * 5),
        ("nn.conv2d", [(2, 3, 8, 8), (5, 3, 3, 2)], (2, 5, 6, 7), _CONV, 2 * 2 * 5 * 6 * 7 * 18),
        (
            "nn.conv2d",
            [(2, 8, 8, 3), (3, 2, 3, 5)],
            (2, 6, 7, 5),
            {**_CONV, "data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"},
            2 * 2 * 5 * 6 * 7 * 18,
        ),
        ("nn.conv1d", [(2, 3, 8), (5, 3, 2)], (2, 5, 7), _CONV1D, 2 * 2 * 5 * 7 * 6),
        (
            "nn.conv3d",
            [(1, 3, 4, 4, 4), (5, 3, 2, 2, 2)],
            (1, 5, 3, 3, 3),
            _CONV3D,
            2 * 5 * 27 * 24,
        ),
        # Each of the 2 x 3 x 64 elements meets the 5 x 4 numbers of its channel's filter.
        (
            "nn.conv2d_transpose",
            [(2, 3, 8, 8), (3, 5, 2, 2)],
            (2, 5, 9, 9),
            {**_CONV, "kernel_layout": "IOHW", "output_padding": (0, 0)},
            2 * 384 * 20,
        ),
        ("einsum", [(2, 3, 5), (2, 4, 5)], (3, 4), {"subscripts": "bik, bjk -> ij"}, 2 * 12 * 10),
        ("einsum", [(3, 5), (5, 4)], (3, 4), {"subscripts": "ij,jk"}, 2 * 12 * 5),
        ("einsum", [(9, 3, 5), (9, 5, 4)], (9, 3, 4), {"subscripts": "...ij,...jk->...ik"}, 1080),
        ("einsum", [(3,), (4,)], (3, 4), {"subscripts": "i,j->ij"}, 0),
        ("einsum", [(3, 5)], (3,), {"subscripts": "ij->i"}, 0),
        ("nn.relu", [(3, 4)], (3, 4), {}, 0),
    ],
)
def test_flops_of_products(
    op: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], attrs: dict[str, Any], flops: int
) -> None:
    b = Net()
    (made,) = _placed(b.graph(b.of(op, shapes, out, **attrs)))
    assert (made.operator, made.shape, made.region) == (op.removeprefix("nn."), out, None)
    assert made.flops == flops


def test_open_extents_count_in_the_middle_of_their_range() -> None:
    """Three is as many times one as nine is three."""
    b = Net()
    rows = symbolic(Symbol("rows", 1, 9))
    (made,) = _placed(b.graph(b.matmul(b.input(rows, 5), b.input(5, 7), F16)))
    assert made.flops == 2 * 3 * 7 * 5
    assert made.shape == (str(rows), 7)


_POOL = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "nn.conv1d": _CONV1D,
    "nn.conv3d_transpose": {**_CONV3D, "output_padding": (0, 0, 0)},
    "image_mean": {"axis": (1, 2), "keepdims": False},
    "concat": {"axis": 0},
    "nn.max_pool2d": {**_POOL, "ceil_mode": False, "layout": "NHWC"},
    "max": {"axis": (2,), "keepdims": False},
}


@pytest.mark.parametrize(
    ("op", "shapes", "reason"),
    [
        ("nn.relu", [(3, 4)], "no kernel begins with relu, and none before it reaches it"),
        ("reshape", [(2, 3)], "a reshape computes nothing: no kernel begins with it"),
        ("concat", [(1, 3), (1, 3)], "no kernel computes concat along axis 0"),
        ("nn.max_pool2d", [(1, 4, 4, 8)], "no kernel computes max_pool2d"),
        ("max", [(2, 3, 4)], "no kernel begins with max along the axes 2"),
        ("nn.conv1d", [(2, 3, 8), (5, 3, 2)], "images and volumes only: give it a height of one"),
        ("nn.conv3d_transpose", [(2, 3, 8), (5, 3, 2)], "as a convolution, which kernels compute"),
        ("image_mean", [(2, 3)], "no kernel begins with mean along the axes 1, 2"),
    ],
)
def test_what_stays_has_its_reason(op: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    b = Net()
    (made,) = _placed(b.graph(b.of(op, shapes, (2, 3), **_ATTRIBUTES.get(op, {}))))
    assert made.reason.endswith(reason)
    assert made.operator == {"image_mean": "mean"}.get(op, op.removeprefix("nn."))
    graph = b.graph(len(b.exprs) - 1)
    exprs = (*graph.exprs[:-1], replace(graph.exprs[-1], reason="a number is too large"))
    (made,) = _placed(replace(graph, exprs=exprs))
    assert made.reason == "a number is too large"


def test_a_region_is_one_place_and_has_its_operations() -> None:
    b = Net()
    product = b.matmul(b.input(8, 16), b.input(16, 24), F16)
    made = b.elementwise("floor", b.elementwise("nn.relu", product))
    graph, (carved,) = carve(b.graph(made), Symbols(()))
    region, floor = placements(graph, {carved.region.symbol: carved.region})
    assert (region.operator, region.region) == (carved.region.label, carved.region.symbol)
    assert (region.shape, region.flops) == ((8, 24), 2 * 8 * 24 * 16)
    assert (floor.operator, floor.region) == ("floor", None)


def test_products_inside_of_a_call_are_told() -> None:
    b, inner = Net(), Net()
    product = inner.matmul(inner.input(2, 3), inner.input(3, 4), F16)
    inside = inner.graph(inner.elementwise("nn.relu", product))
    call = b.of(OPAQUE, [(2, 3)], (2, 4), callee="branch", inside=inside)
    parts = b.operator(PART, (call,), (2, 4), F16, index=0)
    whole, product_inside = _placed(b.graph(parts))
    assert (whole.operator, whole.flops) == ("branch", 0)
    assert whole.reason == "boltgen does not look into branches and calls"
    assert (product_inside.operator, product_inside.flops) == ("matmul", 2 * 2 * 4 * 3)
    assert product_inside.reason == "it is inside of branch: give it a function of its own"


@pytest.mark.parametrize(
    ("operands", "out", "flops"),
    [
        ([(3, 5), (5, 7)], None, 0),
        ([None, (5, 7)], (3, 7), 0),
        ([(3, 5), None], (3, 7), 0),
        ([(), (5, 7)], (3, 7), 0),
        ([(3, 5), ()], (3, 7), 0),
        ([(3, "n"), ("n", 7)], (3, 7), 2 * 3 * 7),  # an extent that is only named counts as one
        ([("m", 5), (5, 7)], ("m", 7), 2 * 7 * 5),
    ],
)
def test_flops_of_shapes_that_are_not_known(
    operands: list[Any], out: tuple[int | str, ...] | None, flops: int
) -> None:
    b = Net()
    args = tuple(b.add(Expr(op=INPUT, shape=each, dtype=F16)) for each in operands)
    (made,) = _placed(b.graph(b.add(Expr(op="matmul", args=args, shape=out, dtype=F16))))
    assert (made.flops, made.shape) == (flops, out or ())


def test_flops_of_recurrent_layers_are_those_of_their_states() -> None:
    """In each of 3 steps a state of 2 x 4 meets the 16 x 4 recurrent weights of an LSTM."""
    b = Net()
    attrs = {"cell": "lstm", "backwards": False, "keeps_last": False, "roles": ()}
    made = b.of(RECURRENT, [(3, 2, 16), (1, 16, 4)], (3, 2, 4), **attrs)
    (placed,) = _placed(b.graph(made))
    assert placed.flops == 2 * 3 * 2 * 16 * 4


def test_a_call_of_something_else_has_nothing_inside() -> None:
    b = Net()
    (made,) = _placed(b.graph(b.of(OPAQUE, [(2, 3)], (2, 3), callee="vendor")))
    assert made.reason == "boltgen does not look into branches and calls"


def test_a_product_that_a_pass_left_has_the_reason_of_that_pass() -> None:
    b = Net()
    graph = b.graph(b.of("matmul", [(3,), (3, 7)], (7,)))
    (made,) = _placed(graph)
    assert "an operand is a vector" in made.reason
    exprs = (*graph.exprs[:-1], replace(graph.exprs[-1], reason="a number is too large"))
    (made,) = _placed(replace(graph, exprs=exprs))
    assert made.reason == "a number is too large"
