"""Recurrent layers of ONNX models: one region each, and what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm

from benchmarks.cases.onnx_models import noise, results
from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import annotate, of_tvm_alone
from boltgen.frontend.relax.importer import import_model
from boltgen.ir.recurrence import Cell
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload
from boltgen.tvm_build.relax_link import host_machine
from tests.frontend.onnx.test_recurrent import BATCH, GATES, HIDDEN, SIZE, STEPS, layer

X = noise(STEPS, BATCH, SIZE)


def _partitioned(made: onnx.ModelProto, **given: Any) -> Partitioned:
    return annotate(import_model(made).module, passes=Passes(**given))


def _problem(annotated: Partitioned) -> Recurrent:
    found = [
        layer.problem
        for region in annotated.regions
        for layer in region.workload.layers
        if isinstance(layer.problem, Recurrent)
    ]
    (problem,) = found
    return problem


def _assert_alike(made: onnx.ModelProto, annotated: Partitioned, x: np.ndarray = X) -> None:
    found = Model.of_annotated(annotated).run(x)
    for actual, expected in zip(found, results(made, {"x": x}), strict=True):
        np.testing.assert_allclose(actual, expected, atol=5e-3)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("inputs", [(), ("bias",), ("bias", "h0", "c0"), ("bias", "lens", "h0")])
def test_a_layer_is_one_region(kind: str, direction: str, inputs: tuple[str, ...]) -> None:
    made = layer(kind, direction, inputs)
    annotated = _partitioned(made)
    problem = _problem(annotated)
    assert (problem.steps, problem.batch_rows, problem.hidden) == (STEPS, BATCH, HIDDEN)
    assert problem.directions == 1 + (direction == "bidirectional")
    assert problem.has_states == ("h0" in inputs)
    assert problem.has_lengths == ("lens" in inputs)
    _assert_alike(made, annotated)


@pytest.mark.parametrize(
    ("kind", "attributes", "cell"),
    [
        ("GRU", {"linear_before_reset": 1}, Cell.GRU),
        ("GRU", {"linear_before_reset": 0}, Cell.GRU_RESET_FIRST),
        ("RNN", {"activations": ["Relu"]}, Cell.RNN_RELU),
        ("LSTM", {"activations": ["sigmoid", "tanh", "tanh"]}, Cell.LSTM),
    ],
)
def test_attributes_say_which_cell(kind: str, attributes: dict[str, Any], cell: Cell) -> None:
    made = layer(kind, "forward", ("bias", "h0", "lens"), **attributes)
    annotated = _partitioned(made)
    assert _problem(annotated).cell is cell
    _assert_alike(made, annotated)


@pytest.mark.parametrize("kind", GATES)
def test_the_batch_may_come_first(kind: str) -> None:
    made = layer(kind, "forward", ("bias",), layout=1)
    # The steps and the batch change places; ONNX Runtime has no layers of this form.
    x = np.ascontiguousarray(X.transpose(1, 0, 2))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = BATCH
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = STEPS
    annotated = _partitioned(made)
    assert _problem(annotated).steps == STEPS
    expected = results(layer(kind, "forward", ("bias",)), {"x": X})
    found = Model.of_annotated(annotated).run(x)
    orders = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))
    for actual, right, order in zip(found, expected, orders, strict=False):
        np.testing.assert_allclose(actual, right.transpose(order), atol=5e-3)


@pytest.mark.parametrize("kind", GATES)
def test_a_layer_without_a_kernel_is_written_out(kind: str) -> None:
    def rejects(workload: Workload) -> str | None:
        is_recurrent = isinstance(workload.first.problem, Recurrent)
        return "too many units" if is_recurrent else None

    made = layer(kind, "bidirectional", ("bias", "lens", "h0", "c0"))
    annotated = _partitioned(made, rejects=rejects)
    assert not any(isinstance(each.workload.first.problem, Recurrent) for each in annotated.regions)
    assert any("written out: too many units" in note for note in annotated.notes)
    _assert_alike(made, annotated)


def test_a_layer_in_its_authors_types_is_written_out() -> None:
    made = layer("GRU", "reverse", linear_before_reset=1)
    _assert_alike(made, _partitioned(made, normalise=False))


def test_tvm_alone_runs_the_written_steps() -> None:
    made = layer("LSTM", "bidirectional", ("bias", "lens", "h0", "c0"))
    machine = host_machine(of_tvm_alone(import_model(made).module))
    found = machine["main"](tvm.runtime.tensor(X))
    for actual, expected in zip(found, results(made, {"x": X}), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected, atol=1e-5)


def test_steps_and_batch_may_be_open() -> None:
    made = layer("LSTM", "bidirectional", ("bias", "lens"), steps="steps")
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = BATCH
    module: tvm.IRModule = import_model(made).module
    annotated = annotate(module, passes=Passes())
    assert len(_problem(annotated).a_shape) == 3
    for steps in (5, 9):
        _assert_alike(made, annotated, noise(steps, BATCH, SIZE))


def test_open_steps_without_a_kernel_are_refused() -> None:
    made = layer("GRU", "forward", steps="steps")
    with pytest.raises(ModelImportError, match=r"recurrent layer \(gru_reset_first\).*--shape"):
        _partitioned(made, normalise=False)
