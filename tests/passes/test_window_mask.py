"""Masks of windows: which are repeated for all images, and that the same is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.masks import window_mask
from tests.passes.differential import checked

masks_of_all_windows = checked(window_mask.masks_of_all_windows, others=True)

Array = np.ndarray[Any, Any]
IMAGES, WINDOWS, HEADS, M, N = 3, 4, 2, 5, 7
WHOLE = (IMAGES * WINDOWS, HEADS, M, N)
SPLIT = (IMAGES, WINDOWS, HEADS, M, N)


class Net:
    """Scores of all windows, which are split into those of each image."""

    def __init__(self, whole: tuple[int, ...] = WHOLE, split: tuple[int, ...] = SPLIT) -> None:
        self.builder = GraphBuilder()
        scores = self.builder.add(Expr(op=INPUT, shape=whole, dtype="float32"))
        self.whole = whole
        self.split = self.builder.reshape(scores, split)

    def combined(self, op: str, *args: int) -> int:
        return self.builder.elementwise(op, *args)

    def mask(self, *shape: int) -> int:
        array = np.random.default_rng(len(self.builder.exprs)).random(shape, np.float32)
        return self.builder.constant(array)

    def graph(self, result: int) -> Graph:
        return self.builder.graph(self.builder.reshape(result, self.whole))


def _shapes(graph: Graph) -> list[tuple[str, Any]]:
    return [(expr.op, expr.shape) for expr in graph.exprs if expr.op != INPUT]


@pytest.mark.parametrize(
    "shape", [(1, WINDOWS, 1, M, N), (WINDOWS, 1, M, N), (WINDOWS, HEADS, M, N)]
)
def test_a_mask_of_each_image_s_windows_is_repeated(shape: tuple[int, ...]) -> None:
    net = Net()
    after = masks_of_all_windows(net.graph(net.combined("add", net.split, net.mask(*shape))))
    heads = shape[-3]
    repeated = (IMAGES * WINDOWS, heads, M, N)
    assert _shapes(after) == [("constant", repeated), ("add", WHOLE)]


def test_what_all_windows_share_is_not_repeated() -> None:
    net = Net()
    after = masks_of_all_windows(net.graph(net.combined("add", net.mask(HEADS, M, N), net.split)))
    assert _shapes(after) == [("constant", (1, HEADS, M, N)), ("add", WHOLE)]


def test_several_masks_one_after_another() -> None:
    net = Net()
    masked = net.combined("subtract", net.mask(WINDOWS, 1, M, N), net.split)
    masked = net.combined("minimum", masked, net.mask(HEADS, 1, N))
    after = masks_of_all_windows(net.graph(masked))
    assert [op for op, _ in _shapes(after)] == ["constant", "subtract", "constant", "minimum"]


def test_scores_that_something_reads_split_stay_so() -> None:
    net = Net()
    masked = net.combined("add", net.split, net.mask(WINDOWS, 1, M, N))
    read = net.builder.operator("nn.softmax", (masked,), SPLIT, "float32", axis=1)
    before = net.graph(read)
    assert _shapes(masks_of_all_windows(before)) == _shapes(before)


def test_a_mask_that_the_model_is_given_stays() -> None:
    net = Net()
    mask = net.builder.add(Expr(op=INPUT, shape=(1, WINDOWS, 1, M, N), dtype="float32"))
    before = net.graph(net.combined("add", net.split, mask))
    assert _shapes(masks_of_all_windows(before)) == _shapes(before)


def test_masks_that_are_too_large_for_a_library_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_mask, "_MOST_BYTES", IMAGES * WINDOWS * M * N * 4 - 1)
    net = Net()
    before = net.graph(net.combined("add", net.split, net.mask(WINDOWS, 1, M, N)))
    assert _shapes(masks_of_all_windows(before)) == _shapes(before)


def test_an_open_number_of_images_stays() -> None:
    images = symbolic(Symbol("images", 1, 8))
    net = Net((images * WINDOWS, HEADS, M, N), (images, WINDOWS, HEADS, M, N))
    before = net.graph(net.combined("add", net.split, net.mask(WINDOWS, 1, M, N)))
    assert masks_of_all_windows(before) is before


def test_scores_that_are_a_result_split_stay_so() -> None:
    net = Net()
    masked = net.combined("add", net.split, net.mask(WINDOWS, 1, M, N))
    before = net.builder.graph((net.builder.reshape(masked, WHOLE), masked))
    assert _shapes(masks_of_all_windows(before)) == _shapes(before)


def test_a_view_of_another_shape_does_not_undo_the_split() -> None:
    net = Net()
    masked = net.combined("add", net.split, net.mask(WINDOWS, 1, M, N))
    before = net.builder.graph(net.builder.reshape(masked, (IMAGES, WINDOWS * HEADS, M, N)))
    assert _shapes(masks_of_all_windows(before)) == _shapes(before)
