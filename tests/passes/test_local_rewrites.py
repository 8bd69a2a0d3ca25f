"""Any graph of masks, moves and sums through each local rewrite: values stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.arithmetic.cse import with_single_reshapes, without_repeated
from boltgen.passes.arithmetic.fold_comparisons import with_known_truths
from boltgen.passes.arithmetic.fold_constant_sums import with_sums_of_constants
from boltgen.passes.arithmetic.hoist_scale import factors_behind_products
from boltgen.passes.masks.guarded_rows import empty_rows_behind_products
from boltgen.passes.masks.where_as_minimum import masks_as_bounds
from boltgen.passes.movement.collapse_views import with_fewer_moves
from boltgen.passes.movement.sink_broadcasts import with_late_broadcasts
from boltgen.passes.movement.sink_row_permutations import with_rows_in_place
from tests.passes.differential import checked

F32, SHAPE = "float32", (2, 3, 4, 4)
REWRITES: list[Callable[[Graph], Graph]] = [
    *(without_repeated, with_single_reshapes, with_known_truths, with_sums_of_constants),
    *(factors_behind_products, empty_rows_behind_products, masks_as_bounds),
    *(with_fewer_moves, with_late_broadcasts, with_rows_in_place),
]
STEPS = st.lists(
    st.tuples(st.integers(0, 13), st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=9
)


class Net(GraphBuilder):
    """Grows tensors of one shape, masks of some of its dimensions, and truths."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def number(self, value: float) -> int:
        return self.constant(np.array(value, np.float32))

    def weight(self, *shape: int) -> int:
        return self.constant((self.rng.integers(-8, 9, shape) / 8).astype(np.float32))

    def small(self, which: int) -> tuple[int, ...]:
        """The shape with some of its extents 1, or without the first ones."""
        kept = tuple(e if which >> axis & 1 else 1 for axis, e in enumerate(SHAPE))
        return kept[which % 3 :]

    def truths(self, which: int) -> int:
        shape = self.small(which)
        if which % 2:
            return self.constant(self.rng.integers(0, 2, shape).astype(bool))
        return self.add(Expr(op=INPUT, shape=shape, dtype="bool"))

    def wide(self, x: int) -> int:
        if self.shape(x) == SHAPE:
            return x
        return self.operator("broadcast_to", (x,), SHAPE, self.dtype(x))

    def without_nan(self, x: int) -> int:
        """`x` as the passes of masks take scores: step 3 makes NaN of rows without keys."""
        unknown = self.operator("isnan", (x,), SHAPE, "bool")
        return self.operator("where", (unknown, self.number(0.0), x), SHAPE, F32)

    def reduced(self, x: int, name: str, axis: int) -> int:
        shape = (*SHAPE[:axis], 1, *SHAPE[axis + 1 :])
        return self.operator(name, (x,), shape, self.dtype(x), axis=(axis,), keepdims=True)


def _grown(b: Net, step: tuple[int, int, int], x: int, y: int) -> int:  # noqa: PLR0912
    """One more tensor of the shape, of two that there are."""
    kind, which, how = step
    match kind:
        case 0:
            return b.elementwise(("add", "subtract", "multiply", "maximum")[how % 4], x, y)
        case 1:
            constant = b.weight(*b.small(which))
            return b.elementwise(("add", "multiply", "minimum")[how % 3], x, b.wide(constant))
        case 2:
            args = (x, b.weight(*b.small(which)))
            total = b.elementwise("add", *(args if how % 2 else args[::-1]))
            return b.elementwise("add", total, b.weight(*SHAPE[how % 3 :]))
        case 3:
            lowest = (-np.inf, -1e4, float(np.finfo(np.float32).min))[how % 3]
            chosen = (b.number(0.0), b.number(lowest))
            seen = b.truths(which)
            mask = b.operator("where", (seen, *chosen), b.shape(seen), F32)
            total = b.elementwise("add", x, b.wide(mask) if how % 2 else mask)
            return b.operator("nn.softmax", (total,), SHAPE, F32, axis=3)
        case 4:
            seen = b.wide(b.truths(which))
            args = (b.without_nan(x), b.number(float(np.finfo(np.float32).min)))
            hidden = b.operator("where", (seen, *args[:: 1 - 2 * (how % 2)]), SHAPE, F32)
            return b.operator("nn.softmax", (hidden,), SHAPE, F32, axis=3 if which % 4 else 2)
        case 5:
            both = b.operator(
                "logical_and", [b.wide(b.truths(w)) for w in (which, how)], SHAPE, "bool"
            )
            return b.operator("where", (both, x, y), SHAPE, F32)
        case 6:
            order = ((0, 1, 3, 2), (1, 0, 2, 3), (2, 1, 0, 3))[how % 3]
            turned = b.permute_dims(x, order)
            back = [order.index(axis) for axis in range(4)]
            return b.permute_dims(b.elementwise("nn.relu", turned) if which % 2 else turned, back)
        case 7:
            flat = b.reshape(b.reshape(x, (6, 16)), (2, 3, 16))
            return b.reshape(b.elementwise("tanh", flat) if how % 2 else flat, SHAPE)
        case 8:
            scaled = b.elementwise(("multiply", "divide")[how % 2], x, b.number(0.5))
            return b.matmul(b.reshape(scaled, SHAPE), b.permute_dims(y, (0, 1, 3, 2)), F32)
        case 9:
            return b.wide(b.reduced(x, ("max", "min", "mean")[how % 3], which % 4))
        case 10:
            choices = b.weight(*SHAPE), b.number(-1e4)
            mask = b.operator("where", (b.truths(which), *choices), SHAPE, F32)
            mask = b.elementwise("add", mask, b.weight(4)) if how % 3 == 0 else mask
            least = b.number((-np.inf, 0.0)[how % 2])
            above = b.operator("greater", (mask, least), SHAPE, "bool")
            return b.operator("where", (above, y, b.number(1.0)), SHAPE, F32)
        case 11:
            axis = which % 4
            rows = b.constant(b.rng.permutation(SHAPE[axis]))
            return b.operator("take", (x, rows), SHAPE, F32, axis=axis, mode="fast")
        case 12:
            windows = b.reshape(b.matmul(x, y, F32), (2, 3, 2, 2, 4))
            mask = b.weight(1, 3, 2, 2, 4) if how % 2 else b.weight(3, 1, 1, 4)
            return b.reshape(b.elementwise("add", windows, mask), SHAPE)
        case _:
            scores = b.without_nan(x)
            masked = b.operator("where", (b.truths(which), scores, b.number(-np.inf)), SHAPE, F32)
            weights = b.operator("nn.softmax", (masked,), SHAPE, F32, axis=3)
            empty = b.operator("isnan", (weights,), SHAPE, "bool")
            kept = b.operator("where", (empty, b.number(0.0), weights), SHAPE, F32)
            return b.matmul(kept, y, F32)


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_any_graph_computes_the_same(
    rewrite: Callable[[Graph], Graph], steps: list[tuple[int, int, int]]
) -> None:
    checked(rewrite)(_graph(steps))


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
def test_each_rewrite_changes_some_of_them(rewrite: Callable[[Graph], Graph]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        graph = _graph([tuple(map(int, each)) for each in rng.integers(0, (14, 31, 31), (6, 3))])
        before, after = ([(e.op, e.args) for e in g.exprs] for g in (graph, rewrite(graph)))
        if before != after:
            return
    pytest.fail("no graph has its pattern")


def _graph(steps: Sequence[tuple[int, ...]]) -> Graph:
    b = Net()
    values = [b.add(Expr(op=INPUT, shape=SHAPE, dtype=F32)) for _ in range(2)]
    for kind, which, how in steps:  # as of `STEPS`
        x, y = values[-1 - which % min(3, len(values))], values[how % len(values)]
        made = _grown(b, (kind, which, how), x, y)
        assert b.shape(made) == SHAPE
        values.append(made)
    return b.graph((values[-1], values[len(values) // 2]))
