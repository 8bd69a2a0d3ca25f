"""Files that are damaged or hostile: an error of boltgen's that names the thing and the remedy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from benchmarks.cases.onnx_models import model, node, noise
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model


def sound() -> ModelProto:
    """A convolution with shape arithmetic behind it."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2], name="conv"),
        node("Clip", ["c", "low", "high"], ["r"], name="clip"),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"], axis=0),
        node("Unsqueeze", ["rows", "axis"], ["row"]),
        node("Concat", ["row", "rest"], ["wanted"], axis=0),
        node("Reshape", ["r", "wanted"], ["y"], name="flatten"),
    ]
    constants = {
        "w": noise(4, 3, 3, 3),
        "low": np.float32(0),
        "high": np.float32(6),
        "zero": np.int64(0),
        "axis": np.array([0]),
        "rest": np.array([-1]),
    }
    return model(nodes, {"x": (2, 3, 8, 8)}, constants)


def message(made: object) -> str:
    with pytest.raises(ModelImportError) as caught:
        import_model(made)
    return str(caught.value)


def _dims(made: ModelProto) -> None:
    made.graph.initializer[0].dims[0] = 5


def _huge(made: ModelProto) -> None:
    made.graph.initializer[0].dims[0] = 2**40


def _negative(made: ModelProto) -> None:
    made.graph.initializer[0].dims[0] = -4


def _dtype(made: ModelProto) -> None:
    made.graph.initializer[0].data_type = 99


def _no_dtype(made: ModelProto) -> None:
    made.graph.initializer[0].data_type = TensorProto.UNDEFINED


def _text(made: ModelProto) -> None:
    made.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.STRING, [4, 3, 3, 3], [b"a"] * 108)
    )


def _external(made: ModelProto) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def _two_inputs(made: ModelProto) -> None:
    made.graph.input.append(made.graph.input[0])


def _two_constants(made: ModelProto) -> None:
    made.graph.initializer.append(made.graph.initializer[0])


def _made_twice(made: ModelProto) -> None:
    made.graph.node[1].output[0] = "c"


def _nothing_makes(made: ModelProto) -> None:
    made.graph.node[1].input[0] = "nowhere"


def _no_output(made: ModelProto) -> None:
    made.graph.output[0].name = "nowhere"


def _no_outputs(made: ModelProto) -> None:
    del made.graph.output[:]


def _no_graph(made: ModelProto) -> None:
    made.ClearField("graph")


def _no_opset(made: ModelProto) -> None:
    del made.opset_import[:]


def _two_opsets(made: ModelProto) -> None:
    made.opset_import.add(domain="", version=13)


def _domain(made: ModelProto) -> None:
    made.graph.node[0].domain = "com.acme"


def _no_operands(made: ModelProto) -> None:
    del made.graph.node[0].input[:]


def _attribute(made: ModelProto) -> None:
    made.graph.node[0].attribute[0].type = onnx.AttributeProto.INT
    made.graph.node[0].attribute[0].name = "strides"


def _sequence(made: ModelProto) -> None:
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (_dims, ["initializer 'w' of shape (5, 3, 3, 3)", "540 bytes", "432"]),
        (_huge, ["initializer 'w'", "1099511627776"]),
        (_negative, ["initializer 'w'", "-4"]),
        (_dtype, ["initializer 'w'", "data type 99"]),
        (_no_dtype, ["initializer 'w'", "data type 0"]),
        (_text, ["initializer 'w'", "STRING"]),
        (_external, ["initializer 'w'", "'weights.bin'", "onnx.load"]),
        (_two_inputs, ["2 values", "'x'", "input"]),
        (_two_constants, ["2 values", "'w'", "initializer"]),
        (_made_twice, ["node 'clip'", "'c'"]),
        (_nothing_makes, ["node 'clip'", "'nowhere'"]),
        (_no_output, ["output 'nowhere'"]),
        (_no_outputs, ["no outputs"]),
        (_no_graph, ["no operators"]),
        (_no_opset, ["operator set", "none"]),
        (_two_opsets, ["operator set", "13, 17"]),
        (_domain, ["Conv (node 'conv', domain 'com.acme')"]),
        (_no_operands, ["node 'conv'"]),
        (_attribute, ["node 'conv'"]),
        (_sequence, ["input 'x'", "no tensor"]),
    ],
)
def test_damage_is_named(damage: Callable[[ModelProto], None], parts: list[str]) -> None:
    made = sound()
    damage(made)
    said = message(made)
    for part in parts:
        assert part in said


def test_a_folder_and_files_that_are_none(tmp_path: Path) -> None:
    assert "is a folder" in message(tmp_path)
    path = tmp_path / "model.onnx"
    for content in (b"", b"\x0a" * 200_000, sound().SerializeToString()[:-200]):
        path.write_bytes(content)
        assert message(path).startswith(f"{path}: ")


def test_weights_that_are_missing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(sound(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert import_model(path).inputs
    (tmp_path / "w.bin").unlink()
    said = message(path)
    assert said.startswith(f"{path}: ")
    assert "w.bin" in said


def test_the_file_is_named_with_what_is_wrong_inside(tmp_path: Path) -> None:
    made, path = sound(), tmp_path / "model.onnx"
    _nothing_makes(made)
    onnx.save(made, path)
    assert message(path).startswith(f"{path}: node 'clip'")


def test_deeply_nested_branches() -> None:
    inner = helper.make_graph(
        [node("Relu", ["x"], ["same"])], "g", [], [helper.make_empty_tensor_value_info("same")]
    )
    flat = inner
    for level in range(20):
        nested = node("If", ["c"], [f"out{level}"], then_branch=inner, else_branch=flat)
        value = helper.make_empty_tensor_value_info(f"out{level}")
        inner = helper.make_graph([nested], "g", [], [value])
    made = model(
        [
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "zero"], ["c"]),
            node("If", ["c"], ["y"], then_branch=inner, else_branch=flat),
        ],
        {"x": (2, 4)},
        {"zero": np.float32(0)},
    )
    assert "nested" in message(made)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_files_end_in_an_error_of_ours_or_a_model(seed: int, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "mutated.onnx"
    for _ in range(12):
        content = bytearray(sound().SerializeToString())
        for _ in range(rng.choice([1, 1, 2, 4])):
            place = rng.randrange(len(content))
            content[place : place + rng.choice([0, 1, 1, 4])] = rng.randbytes(rng.choice([0, 1, 4]))
        path.write_bytes(bytes(content))
        try:
            assert import_model(path).inputs
        except ModelImportError as error:
            assert str(error).startswith(str(path))
