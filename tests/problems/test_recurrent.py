"""Recurrent layers: what is right by PyTorch's own, and what no such problem is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from boltgen.errors import InputError, InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import DType
from boltgen.ir.recurrence import Cell
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.problem import Problem
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.reference import compare
from boltgen.problems.workload import Workload

STEPS, ROWS, HIDDEN = 6, 3, 8
PROBLEM = Recurrent(cell=Cell.GRU, steps=STEPS, batch_rows=ROWS, hidden=HIDDEN, has_bias=True)
# PyTorch's layer of each cell, and the places of the problem's gates among its own.
LAYERS: Mapping[Cell, tuple[Any, tuple[int, ...]]] = {
    Cell.LSTM: (torch.nn.LSTM, (0, 3, 1, 2)),
    Cell.GRU: (torch.nn.GRU, (1, 0, 2)),
    Cell.RNN_TANH: (torch.nn.RNN, (0,)),
    Cell.RNN_RELU: (lambda *given, **more: torch.nn.RNN(*given, nonlinearity="relu", **more), (0,)),
}


def _made(problem: Recurrent, seed: int = 0) -> tuple[np.ndarray, LayerInputs]:
    """Random inputs, with weights that matter."""
    rng = np.random.default_rng(seed)
    further = []
    for each in problem.further_inputs:
        if each.field == "lengths":
            further.append(np.array([6, 2, 4], np.int32))
            continue
        drawn = rng.uniform(-0.4, 0.4, each.shape)
        further.append(drawn.astype(problem.in_dtype.numpy))
    a = rng.uniform(-1.0, 1.0, problem.a_shape).astype(problem.in_dtype.numpy)
    return a, LayerInputs(further=tuple(further))


def _torch(problem: Recurrent, a: np.ndarray, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """What PyTorch computes in FP64, without roundings of the states."""
    make, order = LAYERS[problem.cell]
    gates, hidden, directions = problem.cell.gates, problem.hidden, problem.directions
    inverse = np.argsort(order)
    found, lasts = [], []
    for place in range(directions):
        one = make(gates * hidden, hidden).double()
        weights = given["weights"][place].reshape(gates, hidden, hidden)[list(inverse)]
        state = {
            "weight_ih_l0": np.eye(gates * hidden),
            "weight_hh_l0": weights.reshape(gates * hidden, hidden),
            "bias_ih_l0": np.zeros(gates * hidden),
            "bias_hh_l0": np.zeros(gates * hidden),
        }
        if "bias" in given:
            state["bias_hh_l0"][2 * hidden :] = given["bias"][place]
        one.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
        x = a.astype(np.float64).reshape(*a.shape[:2], directions, gates, hidden)[:, :, place]
        x = torch.tensor(x[:, :, list(inverse)].reshape(*a.shape[:2], -1))
        columns = slice(place * hidden, (place + 1) * hidden)
        first = None
        if "states" in given:
            parts = [
                torch.tensor(each.astype(np.float64)[None, :, columns]) for each in given["states"]
            ]
            first = tuple(parts) if problem.cell is Cell.LSTM else parts[0]
        backwards = problem.backwards or place == 1
        x = x.flip(0) if backwards else x
        with torch.no_grad():
            y, last = one(x, first)
        y = y.flip(0) if backwards else y
        last = last if isinstance(last, tuple) else (last,)
        found.append(y.numpy())
        lasts.append(np.concatenate([each.numpy() for each in last]))
    made = np.concatenate(found, axis=-1)
    if problem.keeps_last:
        made = np.concatenate([made, np.concatenate(lasts, axis=-1)])
    return made


@pytest.mark.parametrize("cell", LAYERS)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("has_states", [False, True])
def test_the_oracle_is_pytorchs_layer(cell: Cell, directions: int, has_states: bool) -> None:
    problem = Recurrent(
        cell=cell,
        steps=STEPS,
        batch_rows=ROWS,
        hidden=HIDDEN,
        directions=directions,
        backwards=directions == 1,
        has_bias=cell is Cell.GRU,
        has_states=has_states,
        keeps_last=has_states,
        out_dtype=DType.F32,
    )
    a, inputs = _made(problem)
    given = dict(zip((each.field for each in problem.further_inputs), inputs.further, strict=True))
    expected = _torch(problem, a, given)
    found = enclose(Workload.of(problem), a, [inputs])
    # States are rounded in each step, which PyTorch's are not.
    np.testing.assert_allclose(found.exact, expected, atol=2e-3)
    agreement = compare(found.exact.astype(np.float32), found.exact, found.bound)
    assert agreement.within
    assert found.bound.max() < 0.02
    wrong = replace(inputs, further=(np.roll(inputs.further[0], 1, axis=1), *inputs.further[1:]))
    other = enclose(Workload.of(problem), a, [wrong])
    assert not compare(found.exact.astype(np.float32), other.exact, other.bound).within


def test_a_reset_gate_may_come_first() -> None:
    problem = replace(PROBLEM, cell=Cell.GRU_RESET_FIRST, has_bias=False, has_states=True, steps=1)
    a, inputs = _made(problem)
    weights, states = (each.astype(np.float64) for each in inputs.further)
    x = a.astype(np.float64).reshape(ROWS, 3, HIDDEN)
    of = weights[0].reshape(3, HIDDEN, HIDDEN)
    h = states[0]
    z, r = (1 / (1 + np.exp(-(x[:, gate] + h @ of[gate].T))) for gate in range(2))
    new = np.tanh(x[:, 2] + (r * h).astype(np.float16).astype(np.float64) @ of[2].T)
    found = enclose(Workload.of(problem), a, [inputs])
    np.testing.assert_allclose(found.exact[0], (1 - z) * new + z * h, atol=1e-3)


def test_lengths_end_a_sequence_and_keep_its_states() -> None:
    problem = replace(PROBLEM, cell=Cell.LSTM, has_bias=False, has_lengths=True, keeps_last=True)
    a, inputs = _made(problem)
    exact = enclose(Workload.of(problem), a, [inputs]).exact
    assert exact.shape == (STEPS + 2, ROWS, HIDDEN)
    for row, length in enumerate((6, 2, 4)):
        assert not exact[length:STEPS, row].any()
        rounded = exact[length - 1, row].astype(np.float16)
        np.testing.assert_array_equal(exact[STEPS, row], rounded.astype(np.float64))


def test_bounds_of_long_sequences_stay_useful() -> None:
    problem = replace(PROBLEM, steps=200, hidden=64)
    rng = np.random.default_rng(3)
    weights, bias = (
        rng.uniform(-each.most, each.most, each.shape).astype(np.float16)
        for each in problem.further_inputs
    )
    a = rng.uniform(-1.5, 1.5, problem.a_shape).astype(np.float16)
    found = enclose(Workload.of(problem), a, [LayerInputs(further=(weights, bias))])
    assert found.bound.max() < 1e-3


def test_a_problem_has_its_shapes_work_and_record() -> None:
    problem = replace(PROBLEM, cell=Cell.LSTM, has_bias=False, directions=2, keeps_last=True)
    assert problem.a_shape == (STEPS, ROWS, 2 * 4 * HIDDEN)
    assert problem.d_shape == (STEPS + 2, ROWS, 2 * HIDDEN)
    assert problem.flops == 2 * STEPS * 2 * ROWS * 4 * HIDDEN * HIDDEN
    assert problem.sizes["last_states"] == 2
    assert problem.short == "lstm 6x3x8, both directions"
    assert decode(Problem, encode(Problem, problem)) == problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0 is out of range"),
        ({"directions": 3}, "directions=3"),
        ({"directions": 2, "backwards": True}, "backwards=True"),
        ({"cell": Cell.LSTM}, "lstm with has_bias=True"),
        ({"in_dtype": DType.F32, "out_dtype": DType.F32}, "operands are float32"),
    ],
)
def test_what_is_no_such_problem(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        replace(PROBLEM, **change)


def test_it_is_no_matrix_product() -> None:
    with pytest.raises(InvalidProblemError, match="no matrix product"):
        _ = PROBLEM.gemm


def test_further_inputs_are_checked() -> None:
    a, inputs = _made(PROBLEM)
    with pytest.raises(InputError, match=r"1 further inputs; .* takes weights, bias"):
        enclose(Workload.of(PROBLEM), a, [replace(inputs, further=inputs.further[:1])])
    narrow = replace(inputs, further=(inputs.further[0][:, :8], inputs.further[1]))
    with pytest.raises(InputError, match="weights is float16"):
        enclose(Workload.of(PROBLEM), a, [narrow])
