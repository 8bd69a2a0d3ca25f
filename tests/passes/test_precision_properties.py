"""For any elementwise graph after a product: regions are closed, and compute what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import NONE, Clip
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import broadcast
from boltgen.passes.regions.anchor import Anchor, match_anchor
from boltgen.passes.regions.epilogue_walk import extensions, grow
from boltgen.passes.regions.tail import Tail
from boltgen.problems import reference

M, N, K = 6, 8, 4
ROOT = np.random.default_rng(3)
LEAVES: tuple[tuple[tuple[int, ...], float | None], ...] = (
    ((N,), None),
    ((1, N), None),
    ((M, N), None),
    ((M, N), None),
    ((M, 1), None),
    ((), 0.5),
    ((), 6.0),
    ((), 3.0),
)
VALUES = [
    np.array(scalar) if scalar is not None else ROOT.uniform(-2, 2, shape).astype(np.float16)
    for shape, scalar in LEAVES
]
A = ROOT.uniform(-1, 1, (M, K)).astype(np.float16)
B = ROOT.uniform(-1, 1, (K, N)).astype(np.float16)

# Operators by the number of their operands. No epilogue has `floor`.
ARITIES: Mapping[str, int] = {
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum"), 2),
    **dict.fromkeys(("nn.relu", "sigmoid", "tanh", "clip", "floor"), 1),
}
PRODUCT = len(LEAVES) + 2


@dataclass(frozen=True)
class Step:
    """An operator, and its operands as positions among the values so far, counted from the last."""

    name: str
    back: tuple[int, int]


STEPS = st.lists(
    st.builds(
        Step,
        name=st.sampled_from(sorted(ARITIES)),
        back=st.tuples(st.integers(0, 14), st.integers(0, 14)),
    ),
    min_size=1,
    max_size=10,
)


def _graph(steps: list[Step], extra_output: int) -> tuple[Graph, list[np.ndarray]]:
    exprs = [
        Expr(op=INPUT if scalar is None else CONSTANT, shape=shape, dtype="float16", scalar=scalar)
        for shape, scalar in LEAVES
    ]
    for array in (A, B):
        exprs.append(Expr(op=INPUT, shape=array.shape, dtype="float16"))
    exprs.append(Expr(op="matmul", args=(PRODUCT - 2, PRODUCT - 1), shape=(M, N), dtype="float16"))
    for step in steps:
        # The operands of the product itself are no operands of the tail.
        known = [*range(len(LEAVES)), *range(PRODUCT, len(exprs))]
        args = tuple(known[-1 - back % len(known)] for back in step.back[: ARITIES[step.name]])
        shape = broadcast(*(exprs[arg].static_shape for arg in args))
        attrs = Clip(0.0, 6.0) if step.name == "clip" else NONE
        exprs.append(Expr(op=step.name, args=args, shape=shape, dtype="float16", attrs=attrs))
    outputs = {len(exprs) - 1, PRODUCT + extra_output % (len(exprs) - PRODUCT)}
    graph = Graph(tuple(exprs), frozenset(outputs))
    values: list[np.ndarray] = []
    inputs = [each for each, (_, scalar) in zip(VALUES, LEAVES, strict=True) if scalar is None]
    run(graph, [*inputs, A, B], observe=lambda _, value: values.append(value), is_exact=True)
    return graph, values


@settings(max_examples=400, deadline=None)
@given(steps=STEPS, extra_output=st.integers(0, 10))
@example(  # max(3 x, x) is a leaky ReLU of 3 x
    steps=[
        Step(name="add", back=(1, 1)),
        Step(name="multiply", back=(1, 2)),
        Step(name="maximum", back=(0, 13)),
    ],
    extra_output=1,
)
def test_a_region_is_closed_and_computes_its_output(steps: list[Step], extra_output: int) -> None:
    graph, values = _graph(steps, extra_output)
    anchor = match_anchor(graph, PRODUCT)
    assert isinstance(anchor, Anchor)
    tail = grow(graph, anchor)
    members = set(tail.members)
    for member in members - {tail.output}:
        assert member not in graph.escaping
        assert members.issuperset(graph.consumers[member])
    assert_computed(anchor, tail, values)


@settings(max_examples=400, deadline=None)
@given(steps=STEPS, extra_output=st.integers(0, 10))
@example(  # relu(s * x) behind the model's own result x
    steps=[Step(name="multiply", back=(0, 10)), Step(name="nn.relu", back=(0, 0))],
    extra_output=0,
)
def test_what_a_longer_region_writes_is_read_behind_it(
    steps: list[Step], extra_output: int
) -> None:
    graph, values = _graph(steps, extra_output)
    anchor = match_anchor(graph, PRODUCT)
    assert isinstance(anchor, Anchor)
    tail = grow(graph, anchor)
    for longer in extensions(graph, anchor, tail, tail.members):
        members = set(longer.members)
        assert members > set(tail.members)
        assert longer.output == max(members)
        assert all(operand.expr < longer.output for operand in longer.operands)
        for member in members:
            outside = set(graph.consumers[member]) - members
            assert all(reader > longer.output for reader in outside)
            is_read = bool(outside) or member in graph.escaping
            assert is_read <= (member in (longer.output, *longer.further))
        assert_computed(anchor, longer, values)


def assert_computed(anchor: Anchor, tail: Tail, values: list[np.ndarray]) -> None:
    """Check the region's results; an operand that is computed outside is no FP16 number here."""
    if any(operand.expr >= len(LEAVES) for operand in tail.operands):
        return
    shaped = [
        values[operand.expr]
        .astype(np.float16)
        .reshape((M, N) if load.kind is LoadKind.TENSOR else -1)
        for operand, load in zip(tail.operands, tail.epilogue.loads, strict=True)
    ]
    # Parameters of activations that are recognised, such as a slope of 1/3, are FP32 numbers: half
    # an ulp off at most, of the largest value that meets one.
    largest = max(float(np.abs(value).max()) for value in values)
    error = len(values) * 2.0**-24 * largest
    found = reference.results(anchor.problem, tail.epilogue, A, B, shaped)
    for actual, output in zip(found, (tail.output, *tail.further), strict=True):
        np.testing.assert_allclose(actual, values[output], rtol=1e-9, atol=error)
