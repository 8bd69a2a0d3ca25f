"""The steps of recurrent layers, written out, compute the same; other layers keep a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import ModelImportError
from boltgen.graph.graph import INPUT, RECURRENT, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.recurrence import Cell
from boltgen.passes.legalise import unroll_recurrent
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

without_recurrent = checked(unroll_recurrent.without_recurrent, others=True, has_sizes=True)
without_rejected = checked(unroll_recurrent.without_rejected)

STEPS, BATCH, HIDDEN = 3, 2, 4
ROLES = ("bias", "states", "lengths")


def _layer(
    cell: Cell,
    directions: int = 1,
    roles: tuple[str, ...] = (),
    *,
    steps: int = STEPS,
    backwards: bool = False,
    keeps_last: bool = False,
) -> Graph:
    b = GraphBuilder()

    def given(*shape: int, dtype: str = "float32") -> int:
        return b.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    columns = directions * HIDDEN
    operands = {
        "bias": lambda: given(directions, HIDDEN),
        "states": lambda: given(cell.states, BATCH, columns),
        "lengths": lambda: given(BATCH, dtype="int32"),
    }
    args = [
        given(steps, BATCH, cell.gates * columns),
        given(directions, cell.gates * HIDDEN, HIDDEN),
        *(operands[role]() for role in roles),
    ]
    last = cell.states if keeps_last else 0
    attrs = {"cell": cell.value, "backwards": backwards, "keeps_last": keeps_last, "roles": roles}
    return b.graph(b.operator(RECURRENT, args, (steps + last, BATCH, columns), "float32", **attrs))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(Cell),
    st.integers(1, 2),
    st.sets(st.sampled_from(ROLES)),
    st.integers(1, 4),
    st.tuples(st.booleans(), st.booleans()),
)
def test_any_layer_computes_the_same(
    cell: Cell, directions: int, roles: set[str], steps: int, flags: tuple[bool, bool]
) -> None:
    backwards, keeps_last = flags
    graph = _layer(
        cell,
        directions,
        tuple(role for role in ROLES if role in roles),
        steps=steps,
        backwards=backwards and directions == 1,
        keeps_last=keeps_last,
    )
    assert RECURRENT not in operators(without_recurrent(graph))


def test_a_layer_that_a_kernel_computes_stays_and_another_has_a_note() -> None:
    graph = _layer(Cell.LSTM)
    asked: list[Workload] = []

    def rejects(workload: Workload) -> str | None:
        asked.append(workload)
        return "too many hidden units" if len(asked) > 1 else None

    assert without_rejected(graph, rejects, DType.F16, None).graph is graph
    assert asked[0].single.problem.in_dtype is DType.F16
    made = without_rejected(graph, rejects, DType.F16, None)
    assert RECURRENT not in operators(made.graph)
    (note,) = made.notes
    assert note.startswith("The steps of lstm")
    assert note.endswith("are written out: too many hidden units")


def test_steps_of_an_open_number_cannot_be_written_out() -> None:
    graph = _layer(Cell.GRU, steps=symbolic(Symbol("steps", 1, 8)))
    with pytest.raises(ModelImportError, match=r"layer \(gru\) has .* steps of 2 sequences"):
        without_recurrent(graph)
