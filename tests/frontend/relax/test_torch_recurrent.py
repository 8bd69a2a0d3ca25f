"""Recurrent layers of torch.export programs: one region for the steps of each."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.arch import arch_named
from boltgen.frontend.relax import annotate
from boltgen.frontend.relax.importer import import_model
from boltgen.ir.recurrence import Cell
from boltgen.passes.legalise.unroll_recurrent import MOST_WRITTEN
from boltgen.passes.run import Passes
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.tuning.choice.graph_costs import GraphTimes

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


class Words(nn.Module):
    """A language model: words, two LSTM layers, and the scores of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(40, HIDDEN), nn.Linear(HIDDEN, 40)
        self.layers = nn.LSTM(HIDDEN, HIDDEN, num_layers=2, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> Any:
        return (self.scores(self.layers(self.words(tokens))[0]),)


def test_a_language_models_sentences_may_have_any_length(tmp_path: Path) -> None:
    """ONNX leaves the steps open; torch.export fixes them, as it says itself."""
    torch.manual_seed(0)
    module, tokens = Words().eval(), torch.randint(40, (BATCH, STEPS))
    with pytest.raises(Exception, match=r"seq.*specialized|Constraints violated \(seq\)"):
        _exported(module, tokens, dynamic_shapes=({1: Dim("seq", min=2, max=64)},))
    path = tmp_path / "words.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this exporter is the older one
        torch.onnx.export(
            *(module, (tokens,), str(path)),
            **{"dynamo": False, "input_names": ["tokens"], "opset_version": 17},
            dynamic_axes={"tokens": {0: "batch", 1: "seq"}},
        )
    model = Model(import_model(path).module, normalise=True)
    assert len(_problems(model)) == 2
    for rows, steps in ((1, 1), (2, 5), (3, 33)):
        _assert_alike(model, module, torch.randint(40, (rows, steps)))


@pytest.mark.parametrize(
    ("hidden", "rows", "steps", "is_written"),
    [
        (1024, 1024, 3, True),
        (1024, BATCH, 3, False),
        (512, BATCH, MOST_WRITTEN + 1, False),
        (32, BATCH, 3, False),
    ],
)
def test_a_few_steps_of_many_rows_are_written_out(
    hidden: int, rows: int, steps: int, is_written: bool
) -> None:
    torch.manual_seed(0)
    module = nn.GRU(SIZE, hidden)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(0.5)
    x = torch.randn(steps, rows, SIZE)
    imported = import_model(_exported(module, x)).module
    annotated = annotate(imported, Passes(joining=GraphTimes(arch_named("sm_80"))))
    model = Model.of_annotated(annotated)
    assert len(_problems(model)) == (not is_written)
    noted = [note for note in annotated.notes if "one kernel takes" in note]
    assert len(noted) == is_written
    if is_written:
        assert noted[0].startswith(f"The steps of gru {steps}x{rows}x{hidden} are written out")
        _assert_alike(model, module, x)


def test_projections_are_unrolled_by_pytorch() -> None:
    module, x = Layer("LSTM", slice(1), proj_size=4), torch.randn(STEPS, BATCH, SIZE)
    model = Model(import_model(_exported(module, x)).module, normalise=True)
    assert not _problems(model)
    assert model.regions
    _assert_alike(model, module, x)
