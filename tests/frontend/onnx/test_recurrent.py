"""LSTM, GRU and RNN, kept or unrolled: what ONNX Runtime computes before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.cases.onnx_models import assert_same, model, node, noise, operators, prepared
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import Prepared, prepare, relay_importer
from boltgen.frontend.relax.onnx_reader import converter

STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": ["y", "h", "c"], "GRU": ["y", "h"], "RNN": ["y", "h"]}


def layer(
    kind: str, direction: str, inputs: tuple[str, ...] = (), steps: Any = STEPS, **attributes: Any
) -> onnx.ModelProto:
    """One recurrent layer with the named optional inputs."""
    count, gates = (2 if direction == "bidirectional" else 1), GATES[kind]
    constants = {
        "w": noise(count, gates * HIDDEN, SIZE, seed=1),
        "r": noise(count, gates * HIDDEN, HIDDEN, seed=2) / 2,
        "bias": noise(count, 2 * gates * HIDDEN, seed=3),
        "lens": np.array([5, 2, 4], np.int32),
        "h0": noise(count, BATCH, HIDDEN, seed=4),
        "c0": noise(count, BATCH, HIDDEN, seed=5),
        "peep": noise(count, 3 * HIDDEN, seed=6),
    }
    order = ["bias", "lens", "h0", "c0", "peep"][: 3 if kind != "LSTM" else 5]
    given = [name if name in inputs else "" for name in order]
    made = node(
        kind,
        ["x", "w", "r", *given],
        STATES[kind],
        hidden_size=HIDDEN,
        direction=direction,
        **attributes,
    )
    used = {name: constants[name] for name in ("w", "r", *filter(None, given))}
    return model([made], {"x": (steps, BATCH, SIZE)}, used, outputs=STATES[kind])


def unrolled(made: onnx.ModelProto) -> Prepared:
    """A model as a converter without recurrent layers gets it."""
    return prepare(made, {}, relay_importer(converter().takes - GATES.keys()))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("inputs", [(), ("bias",), ("bias", "h0", "c0"), ("bias", "lens", "h0")])
def test_every_direction_with_states_and_lengths(
    kind: str, direction: str, inputs: tuple[str, ...]
) -> None:
    made = layer(kind, direction, inputs)
    after = unrolled(made).model
    assert not GATES.keys() & set(operators(after))
    assert_same(made, after, {"x": noise(STEPS, BATCH, SIZE)})


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"clip": 0.5}),
        ("LSTM", {"clip": 0.5}),
        ("LSTM", {"activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.3]}),
        ("RNN", {"activations": ["Relu"]}),
    ],
)
def test_attributes(kind: str, attributes: dict[str, Any]) -> None:
    made = layer(kind, "forward", ("bias", "h0"), **attributes)
    assert_same(made, unrolled(made).model, {"x": noise(STEPS, BATCH, SIZE)})


def test_peepholes() -> None:
    made = layer("LSTM", "bidirectional", ("bias", "h0", "c0", "peep"))
    assert_same(made, unrolled(made).model, {"x": noise(STEPS, BATCH, SIZE)})


def test_the_inputs_of_all_steps_are_one_product() -> None:
    after = unrolled(layer("LSTM", "forward", ("bias",)))
    # One for the inputs, and one for the state of each step but the first, which is zero.
    assert operators(after.model).count("MatMul") == STEPS
    assert any("LSTM" in note and "unrolled" in note for note in after.notes)


def test_an_open_batch_is_unrolled_and_open_steps_are_refused() -> None:
    made = layer("GRU", "forward", ("bias",))
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    assert "GRU" not in operators(unrolled(made).model)
    with pytest.raises(ModelImportError, match=r"LSTM.*--shape"):
        unrolled(layer("LSTM", "forward", steps="steps"))


@pytest.mark.parametrize("kind", GATES)
def test_the_converter_to_relax_gets_one_operator(kind: str) -> None:
    made = layer(kind, "bidirectional", ("bias", "lens", "h0", "c0"), steps="steps")
    assert operators(prepared(made).model) == [kind]


def test_results_that_nothing_reads_are_left_out() -> None:
    made = layer("LSTM", "forward", ("bias",))
    del made.graph.output[1:]
    (kept,) = prepared(made).model.graph.node
    assert len(kept.output) == 1


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "reason"),
    [
        ("LSTM", ("bias", "peep"), {}, "no kernel has its peepholes"),
        ("GRU", ("bias",), {"clip": 0.5}, "no kernel clips sums"),
        ("LSTM", ("bias",), {"input_forget": 1}, "no kernel couples its gates"),
        ("RNN", ("bias",), {"activations": ["Softsign"]}, "no kernel has its activations"),
    ],
)
def test_other_forms_are_unrolled_and_say_why(
    kind: str, inputs: tuple[str, ...], attributes: dict[str, Any], reason: str
) -> None:
    made = layer(kind, "forward", inputs, **attributes)
    after = prepared(made)
    assert kind not in operators(after.model)
    assert any(f"{kind} was rewritten" in note and reason in note for note in after.notes)
    assert_same(made, after.model, {"x": noise(STEPS, BATCH, SIZE)})
    with pytest.raises(ModelImportError, match=rf"{kind}.*--shape"):
        prepared(layer(kind, "forward", inputs, steps="steps", **attributes))
