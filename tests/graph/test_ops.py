"""The shapes that records infer are those of NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from boltgen.errors import GraphError
from boltgen.graph.attributes import Axis
from boltgen.graph.graph import INPUT, PART, Expr, Graph, GraphBuilder
from boltgen.graph.verify import Verifier

F32 = "float32"
WINDOW = {"strides": (2, 1), "padding": (1, 0, 1, 0), "dilation": (1, 2)}
IMAGE = torch.zeros(2, 4, 9, 11)


def _graph(op: str, arrays: list[Any], shape: tuple[int, ...], **attrs: object) -> Graph:
    b = GraphBuilder()
    args = [
        b.add(Expr(op=INPUT, shape=tuple(each.shape), dtype=str(each.dtype).removeprefix("torch.")))
        for each in arrays
    ]
    return b.graph(b.operator(op, args, shape, F32, **attrs))


def _check(op: str, arrays: list[Any], wanted: Any, **attrs: object) -> None:
    """Verify the shape of a library's result, and that no other extent is verified."""
    shape = tuple(wanted.shape)
    Verifier().verify(_graph(op, arrays, shape, **attrs))
    for axis in range(len(shape)):
        other = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        with pytest.raises(GraphError, match=f"{op}'s result has the shape"):
            Verifier().verify(_graph(op, arrays, other, **attrs))


@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pools(name: str, layout: str) -> None:
    # PyTorch's mean pool has no dilation.
    window = WINDOW if name == "nn.max_pool2d" else {**WINDOW, "dilation": (1, 1)}
    padded = functional.pad(IMAGE, (0, 0, 1, 1))
    unfolded = functional.max_pool2d(padded, (3, 2), (2, 1), 0, window["dilation"])
    back = ["NCHW".index(letter) for letter in layout]
    more = {"count_include_pad": False} if name == "nn.avg_pool2d" else {}
    _check(
        name,
        [IMAGE.permute(back)],
        unfolded.permute(back),
        pool_size=(3, 2),
        ceil_mode=False,
        layout=layout,
        **window,
        **more,
    )


def test_a_pool_with_a_last_window_that_is_cut_off_is_not_inferred() -> None:
    attrs = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}
    attrs |= {"ceil_mode": True, "layout": "NCHW"}
    wanted = functional.max_pool2d(IMAGE, 2, 2, ceil_mode=True)
    Verifier().verify(_graph("nn.max_pool2d", [IMAGE], tuple(wanted.shape), **attrs))
    with pytest.raises(GraphError, match=r"shape \(2, 4, \?, \?\)"):
        Verifier().verify(_graph("nn.max_pool2d", [IMAGE], (2, 5, 5, 6), **attrs))


@pytest.mark.parametrize("size", [(3, 5), (1, 1)])
def test_adaptive_pools(size: tuple[int, int]) -> None:
    wanted = functional.adaptive_avg_pool2d(IMAGE, size)
    _check("nn.adaptive_avg_pool2d", [IMAGE], wanted, output_size=size, layout="NCHW")


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 3, 2, 2), (3, 1, 1, 4)]
)
def test_convolutions_of_one_dimension(
    stride: int, padding: int, dilation: int, groups: int
) -> None:
    x, w = torch.zeros(2, 4, 17), torch.zeros(8, 4 // groups, 3)
    wanted = functional.conv1d(x, w, None, stride, padding, dilation, groups)
    window = {"strides": (stride,), "padding": (padding,) * 2, "dilation": (dilation,)}
    for layout, order in (("NCW", (0, 1, 2)), ("NWC", (0, 2, 1))):
        layouts = {"data_layout": layout, "kernel_layout": "OIW", "out_layout": layout}
        seen = [x.permute(order), w]
        _check("nn.conv1d", seen, wanted.permute(order), groups=groups, **window, **layouts)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_elements(axis: int) -> None:
    x, places = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.int64)
    places = places[:2] if axis == 0 else places[:, :2]
    wanted = np.take_along_axis(x, places, axis)
    _check("gather_elements", [x, places], wanted, axis=axis)


def test_elements_are_gathered_from_as_many_axes() -> None:
    x, places = np.zeros((3, 4), np.float32), np.zeros((5, 2), np.int64)
    with pytest.raises(GraphError, match="5 indices must be within 3"):
        Verifier().verify(_graph("gather_elements", [x, places], (5, 2), axis=1))
    with pytest.raises(GraphError, match="2 axes must have 1 axes of indices"):
        Verifier().verify(_graph("gather_elements", [x, places[0]], (2,), axis=1))


@pytest.mark.parametrize("shapes", [[(2,)], [(5, 1), (3,)], [(2, 1, 3), (4, 1), ()]])
def test_indexed_tensors(shapes: list[tuple[int, ...]]) -> None:
    x = np.zeros((3, 4, 5, 6), np.float32)
    indices = [np.zeros(shape, np.int64) for shape in shapes]
    _check("index_tensor", [x, *indices], x[tuple(indices)])


@pytest.mark.parametrize("axis", [0, -1])
def test_parts_of_a_split(axis: int) -> None:
    parts = np.split(np.zeros((6, 9), np.float32), [2, 3], axis)

    def graph(*shapes: tuple[int, ...], along: int = axis) -> Graph:
        b = GraphBuilder()
        x = b.add(Expr(op=INPUT, shape=(6, 9), dtype=F32))
        whole = b.add(Expr(op="split", args=(x,), attrs=Axis(along)))
        read = [b.operator(PART, [whole], s, F32, index=i) for i, s in enumerate(shapes)]
        return b.graph(tuple(read))

    Verifier().verify(graph(*(part.shape for part in parts)))
    for wrong in ((6, 10), (7, 9), (6,), (4, 4)):
        with pytest.raises(GraphError, match=r"a part of \(6, 9\) along axis"):
            Verifier().verify(graph(parts[0].shape, wrong))
    with pytest.raises(GraphError, match=r"an axis of \(2,\) is beyond the 2"):
        Verifier().verify(graph(parts[0].shape, along=2))
