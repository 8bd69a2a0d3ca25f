"""Recurrent layers of torch.export programs: one region for the steps of each."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax.importer import import_model
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent

BATCH, STEPS, SIZE, HIDDEN = 2, 5, 8, 16


class Layer(nn.Module):
    """A recurrent layer, and which of its results are read."""

    def __init__(self, kind: str, read: slice = slice(None), **given: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(SIZE, HIDDEN, **given)
        self._read = read

    def forward(self, x: torch.Tensor, *states: Any) -> Any:
        return torch.utils._pytree.tree_leaves(self.layer(x, *states))[self._read]


def _exported(module: nn.Module, *inputs: Any, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that PyTorch flattens
        return torch.export.export(module.eval(), inputs, **given)


def _problems(model: Model) -> list[Recurrent]:
    layers = (layer.problem for region in model.regions for layer in region.workload.layers)
    return [problem for problem in layers if isinstance(problem, Recurrent)]


def _assert_alike(model: Model, module: nn.Module, *inputs: Any) -> None:
    flat = torch.utils._pytree.tree_leaves(inputs)
    found = model.run(*(each.numpy() for each in flat))
    with torch.no_grad():
        expected = module(*inputs)
    for actual, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, exact.numpy(), atol=2e-3)


@pytest.mark.parametrize(
    ("kind", "given", "cell"),
    [
        ("LSTM", {}, Cell.LSTM),
        ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}, Cell.LSTM),
        ("GRU", {"bias": False}, Cell.GRU),
        ("GRU", {"num_layers": 2, "bidirectional": True}, Cell.GRU),
        ("RNN", {"batch_first": True}, Cell.RNN_TANH),
        ("RNN", {"nonlinearity": "relu", "bidirectional": True}, Cell.RNN_RELU),
    ],
)
@pytest.mark.parametrize("has_states", [False, True])
def test_each_layer_is_one_region(
    kind: str, given: dict[str, Any], cell: Cell, has_states: bool
) -> None:
    torch.manual_seed(0)
    module, x = Layer(kind, **given), torch.randn(BATCH, STEPS, SIZE)
    layers, directions = given.get("num_layers", 1), 1 + given.get("bidirectional", False)
    rows = BATCH if given.get("batch_first") else STEPS
    inputs: list[Any] = [x]
    if has_states:
        states = [torch.randn(layers * directions, rows, HIDDEN) for _ in range(cell.states)]
        inputs.append(tuple(states) if kind == "LSTM" else states[0])
    model = Model(import_model(_exported(module, *inputs)).module, normalise=True)
    problems = _problems(model)
    assert len(problems) == layers
    for problem in problems:
        assert (problem.cell, problem.directions) == (cell, directions)
        assert problem.has_states == has_states
    _assert_alike(model, module, *inputs)


@pytest.mark.parametrize(
    ("read", "keeps_last"), [(slice(1), False), (slice(2), False), (slice(3), True)]
)
def test_the_last_cell_state_is_written_where_it_is_read(read: slice, keeps_last: bool) -> None:
    module, x = Layer("LSTM", read), torch.randn(STEPS, BATCH, SIZE)
    model = Model(import_model(_exported(module, x)).module, normalise=True)
    (problem,) = _problems(model)
    assert problem.keeps_last == keeps_last
    _assert_alike(model, module, x)


def test_the_batch_may_be_open() -> None:
    """torch.export itself fixes the number of steps."""
    module, x = nn.GRU(SIZE, HIDDEN, batch_first=True), torch.randn(BATCH, STEPS, SIZE)
    program = _exported(module, x, dynamic_shapes=({0: Dim("batch", min=2, max=100)},))
    model = Model(import_model(program).module, normalise=True)
    assert len(_problems(model)) == 1
    for rows in (2, 33):
        _assert_alike(model, module, torch.randn(rows, STEPS, SIZE))


def test_projections_are_unrolled_by_pytorch() -> None:
    module, x = Layer("LSTM", slice(1), proj_size=4), torch.randn(STEPS, BATCH, SIZE)
    model = Model(import_model(_exported(module, x)).module, normalise=True)
    assert not _problems(model)
    assert model.regions
    _assert_alike(model, module, x)
