from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boltgen.graph.attributes import NONE, Pad, Permutation
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.passes.regions.boundary import entry, exit_, is_made_of_inputs
from boltgen.passes.regions.products import find_products
from boltgen.problems.layout_transform.problem import Form, ImageLayout
from boltgen.problems.region import Stored

NCHW, NHWC = (2, 3, 5, 7), (2, 5, 7, 3)
IMAGES = Stored(form=Form(layout=ImageLayout.NCHW, dtype=DType.F32), shape=NCHW)


def value(op: str, *args: int, shape: tuple[int, ...] = NHWC, dtype: str = "float16") -> Expr:
    axes = (0, 2, 3, 1) if shape == NHWC else (0, 3, 1, 2)
    attrs = Permutation(axes) if op == "permute_dims" else NONE
    return Expr(op=op, args=args, shape=shape, dtype=dtype, attrs=attrs)


def graph(*exprs: Expr, escaping: int | None = None) -> Graph:
    return Graph(exprs, frozenset({len(exprs) - 1 if escaping is None else escaping}))


X = value(INPUT, shape=NCHW, dtype="float32")
CAST = value("astype", 0, shape=NCHW)


def test_cast_and_permutation_of_an_input_are_one_move() -> None:
    found = entry(graph(X, CAST, value("permute_dims", 1), value("conv", 2)), 2, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored) == ((1, 2), 0, IMAGES)


def test_of_something_that_tvm_computes_they_stay_with_tvm() -> None:
    exprs = (X, value("exp", 0, shape=NCHW, dtype="float32"), value("astype", 1, shape=NCHW))
    assert entry(graph(*exprs, value("permute_dims", 2)), 3, is_image=True) is None


@pytest.mark.parametrize("source", ["uint8", "float32"])
def test_tvm_pads_what_it_makes_of_an_image(source: str) -> None:
    wide = (*NHWC[:-1], 4)
    pad = replace(
        value("nn.pad", 2, shape=wide), attrs=Pad(((0, 0),) * 3 + ((0, 1),), 0.0, "constant")
    )
    exprs = (value(INPUT, dtype=source), value("astype", 0), value("nn.relu", 1), pad)
    made = graph(*exprs, value("conv", 3, shape=wide))
    assert is_made_of_inputs(made, 2)
    assert entry(made, 3, is_image=True) is None


def test_a_call_pads_what_a_kernel_made_and_what_it_only_casts() -> None:
    wide = (*NHWC[:-1], 4)
    attrs = Pad(((0, 0),) * 3 + ((0, 1),), 0.0, "constant")
    for exprs in (
        (value(INPUT), value("conv", 0), value("nn.relu", 1)),
        (value(INPUT, dtype="float32"), value("astype", 0), value("astype", 1)),
    ):
        pad = replace(value("nn.pad", 2, shape=wide), attrs=attrs)
        made = graph(*exprs, pad, value("conv", 3, shape=wide))
        assert not is_made_of_inputs(made, 2)
        assert entry(made, 3, is_image=True) is not None


def test_a_cast_of_bytes_is_no_border() -> None:
    made = graph(value(INPUT, dtype="uint8"), value("astype", 0), value("conv", 1))
    assert is_made_of_inputs(made, 1)
    assert not is_made_of_inputs(made, 0)


def test_a_cast_that_others_read_too_stays() -> None:
    exprs = (X, CAST, value("permute_dims", 1), value("exp", 1, shape=NCHW))
    assert entry(graph(*exprs, value("conv", 2)), 2, is_image=True) is None


def test_a_matrix_is_cast_but_not_permuted() -> None:
    exprs = (X, CAST, value("permute_dims", 1), value("conv", 2))
    assert entry(graph(*exprs), 2, is_image=False) is None
    cast = entry(graph(X, CAST, value("matmul", 1)), 1, is_image=False)
    assert cast is not None
    assert cast.stored == Stored(form=Form(layout=ImageLayout.NHWC, dtype=DType.F32), shape=NCHW)


@pytest.mark.parametrize("readers", [1, 2])
def test_a_cast_alone_is_done_by_the_call_of_its_only_reader(readers: int) -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=NHWC, dtype="float32"))
    narrow = builder.astype(x, "float16")
    window = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    made = []
    for _ in range(readers):
        weight = builder.constant(np.ones((8, 3, 3, 3), np.float16))
        args, shape = (narrow, weight), (2, 3, 5, 8)
        made.append(builder.operator("nn.conv2d", args, shape, "float16", **window, **layouts))
    found = find_products(builder.graph(tuple(made)))
    assert [each.entry is not None for each in found] == [readers == 1] * readers


def test_what_is_in_the_kernels_form_has_no_border() -> None:
    assert entry(graph(value(INPUT), value("conv", 0)), 0, is_image=True) is None


@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (2, 3, 1, 1)])
def test_a_reshape_that_moves_extents_of_one_is_a_permutation(shape: tuple[int, ...]) -> None:
    n, c, h, w = shape
    source = value(INPUT, shape=shape, dtype="float32")
    exprs = (source, value("astype", 0, shape=shape), value("reshape", 1, shape=(n, h, w, c)))
    found = entry(graph(*exprs, value("conv", 2)), 2, is_image=True)
    assert found is not None
    assert found.stored == Stored(form=IMAGES.form, shape=shape)


ROWS_FIRST, ROWS_LAST, TALL = (2, 3, 35), (2, 35, 3), (2, 1, 35, 3)
ROWS = Stored(form=IMAGES.form, shape=ROWS_FIRST)


def rows(
    op: str,
    *args: int,
    shape: tuple[int, ...],
    dtype: str = "float16",
    axes: tuple[int, ...] = (0, 2, 1),
) -> Expr:
    attrs = Permutation(axes) if op == "permute_dims" else NONE
    return Expr(op=op, args=args, shape=shape, dtype=dtype, attrs=attrs)


def test_rows_of_pixels_are_images_of_height_one() -> None:
    before = (
        rows(INPUT, shape=ROWS_FIRST, dtype="float32"),
        rows("astype", 0, shape=ROWS_FIRST),
        rows("permute_dims", 1, shape=ROWS_LAST),
        rows("reshape", 2, shape=TALL),
    )
    found = entry(graph(*before, rows("conv", 3, shape=TALL)), 3, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored) == ((1, 2, 3), 0, ROWS)
    behind = (
        rows("conv", shape=TALL),
        rows("reshape", 0, shape=ROWS_LAST),
        rows("permute_dims", 1, shape=ROWS_FIRST),
        rows("astype", 2, shape=ROWS_FIRST, dtype="float32"),
    )
    found = exit_(graph(*behind), 0, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored) == ((1, 2, 3), 3, ROWS)


def test_a_reshape_that_mixes_pixels_and_channels_stays() -> None:
    behind = (
        rows("conv", shape=TALL),
        rows("reshape", 0, shape=(2, 3, 35)),
        rows("astype", 1, shape=(2, 3, 35), dtype="float32"),
    )
    assert exit_(graph(*behind), 0, is_image=True) is None


def test_two_permutations_are_not_one_layout() -> None:
    exprs = (X, CAST, value("permute_dims", 1), value("permute_dims", 2, shape=NHWC))
    assert entry(graph(*exprs, value("conv", 3)), 3, is_image=True) is None


RESULT = (
    value("conv"),
    value("permute_dims", 0, shape=NCHW),
    value("astype", 1, shape=NCHW, dtype="float32"),
)


def test_a_result_is_written_as_the_models_user_wants_it() -> None:
    found = exit_(graph(*RESULT), 0, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored) == ((1, 2), 2, IMAGES)


def test_what_tvm_goes_on_with_is_left_to_tvm() -> None:
    later = value("exp", 2, shape=NCHW, dtype="float32")
    assert exit_(graph(*RESULT, later), 0, is_image=True) is None


def test_a_result_that_is_used_in_the_kernels_form_too_stays() -> None:
    assert exit_(graph(*RESULT, value("exp", 0), escaping=2), 0, is_image=True) is None
    assert exit_(graph(*RESULT, escaping=0), 0, is_image=True) is None


def test_a_join_of_pixels_beyond_a_permutation_stays() -> None:
    """The shape there is not that of the tensor whose channels are moved."""
    before = (
        rows(INPUT, shape=(2, 3, 5, 7), dtype="float32"),
        rows("reshape", 0, shape=(2, 15, 7), dtype="float32"),
        rows("astype", 1, shape=(2, 15, 7)),
        rows("permute_dims", 2, shape=(2, 7, 15)),
    )
    assert entry(graph(*before, rows("conv", 3, shape=(2, 7, 15))), 3, is_image=True) is None
    behind = (
        rows("conv", shape=(2, 7, 15)),
        rows("permute_dims", 0, shape=(2, 15, 7)),
        rows("reshape", 1, shape=(2, 3, 5, 7)),
    )
    found = exit_(graph(*behind), 0, is_image=True)
    assert found is None


def test_a_join_of_pixels_beyond_a_permutation_is_one_of_channels_first() -> None:
    """As the input of a 1D convolution is, whose kernel reads an image of one row."""
    before = (
        rows(INPUT, shape=(2, 15, 7), dtype="float32"),
        rows("reshape", 0, shape=(2, 15, 1, 7), dtype="float32"),
        rows("astype", 1, shape=(2, 15, 1, 7)),
        rows("permute_dims", 2, shape=(2, 1, 7, 15), axes=(0, 2, 3, 1)),
    )
    found = entry(graph(*before, rows("conv", 3, shape=(2, 1, 7, 15))), 3, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored.shape) == ((1, 2, 3), 0, (2, 15, 7))
    assert found.stored.form.layout is ImageLayout.NCHW
    behind = (
        rows("conv", shape=(2, 5, 7, 15)),
        rows("permute_dims", 0, shape=(2, 15, 5, 7), axes=(0, 3, 1, 2)),
        rows("reshape", 1, shape=(2, 15, 35)),
    )
    found = exit_(graph(*behind), 0, is_image=True)
    assert found is not None
    assert (found.members, found.tensor, found.stored.shape) == ((1, 2), 2, (2, 15, 35))
