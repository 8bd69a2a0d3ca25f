"""Models in, or an error that names what is wrong and what to do."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from tvm import relax

from benchmarks.cases.relax_modules import build
from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import TensorSpec, annotate, import_model
from boltgen.installation import install_command

WEIGHT = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16)


def _model(
    *nodes: onnx.NodeProto,
    shape: tuple[int | str | None, ...] = (4, 8),
    weight: np.ndarray = WEIGHT,
    name: str = "x",
) -> onnx.ModelProto:
    """`x` through `nodes` to `y`, with an initialiser `w`; by default one product."""
    made = list(nodes) or [helper.make_node("MatMul", [name, "w"], ["y"], name="product")]
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _message(source: object, **options: Any) -> str:
    with pytest.raises(ModelImportError) as caught:
        import_model(source, **options)
    return str(caught.value)


def test_an_onnx_file_and_its_names(tmp_path: Path) -> None:
    onnx.save(_model(), tmp_path / "model.onnx")
    for path in (tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        model = import_model(path)
        assert model.inputs == (TensorSpec(name="x", shape=(4, 8), dtype="float32"),)
        assert model.outputs == (TensorSpec(name="y", shape=(4, 16), dtype="float32"),)


def test_onnx_numbers_match_numpy() -> None:
    model = Model(import_model(_model()).module, normalise=True)
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    # Eight products of numbers rounded to FP16, each below 2.
    np.testing.assert_allclose(model.run(x)[0], x @ WEIGHT, atol=8 * 2 * 2**-10)


def test_a_missing_file(tmp_path: Path) -> None:
    assert _message(tmp_path / "no.onnx") == f"{tmp_path / 'no.onnx'}: there is no such file"
    assert "there is no such file" in _message(tmp_path / "no.pt2")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", b"\x89PNG" * 100])
def test_a_file_that_is_no_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "picture.onnx"
    path.write_bytes(content)
    message = _message(path)
    assert message.startswith(f"{path}: not an ONNX model")
    assert message.endswith("Export or download it again")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file(tmp_path: Path, kept: float) -> None:
    whole = _model().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert "cut.onnx: not an ONNX model" in _message(path)


def test_an_operator_that_tvm_does_not_know() -> None:
    message = _message(
        _model(
            helper.make_node("Frobnicate", ["x"], ["z"], name="frob 1", domain="com.acme"),
            helper.make_node("StringNormalizer", ["z"], ["y"]),
        )
    )
    assert "Frobnicate (node 'frob 1', domain 'com.acme')" in message
    assert "StringNormalizer (the node that makes 'y')" in message


def test_an_operator_that_tvm_fails_on_is_named() -> None:
    message = _message(
        _model(helper.make_node("Reshape", ["x", "w"], ["y"], name="to 'nowhere'")),
    )
    assert "Reshape" in message
    assert "to 'nowhere'" in message or "valid" in message


def test_open_dimensions_stay_symbols_under_their_names() -> None:
    model = import_model(_model(shape=("batch", 8)))
    assert model.inputs[0].shape == ("batch", 8)
    assert model.outputs[0].shape == ("batch", 16)
    assert import_model(_model(shape=(None, 8))).inputs[0].shape == ("x_0", 8)


def test_an_unknown_rank_is_named_with_the_remedy() -> None:
    model = _model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x' has an unknown rank" in _message(model)
    assert import_model(model, shapes={"x": (3, 8)}).inputs[0].shape == (3, 8)


def test_shapes_fix_dynamic_dimensions() -> None:
    model = import_model(_model(shape=("batch", 8)), shapes={"x": (3, 8)})
    assert model.inputs[0].shape == (3, 8)
    assert model.outputs[0].shape == (3, 16)


@pytest.mark.parametrize("shape", [(3, 9), (3, 8, 1)])
def test_shapes_that_contradict_the_model(shape: tuple[int, ...]) -> None:
    message = _message(_model(shape=("batch", 8)), shapes={"x": shape})
    assert message == f"the shape {shape} given for input 'x' does not fit the model's (batch, 8)"


@pytest.mark.parametrize("shape", [(0, 8), (-1, 8)])
def test_shapes_without_elements(shape: tuple[int, ...]) -> None:
    message = _message(_model(shape=("batch", 8)), shapes={"x": shape})
    assert message == (
        f"the shape {shape} given for input 'x' has no elements; give it extents of at least 1, or "
        "ranges such as 1..64"
    )


def test_shapes_for_an_input_that_is_not_there() -> None:
    message = _message(_model(), shapes={"image": (1, 8)})
    assert message == "shapes names the input 'image', which the model does not have; it has 'x'"


def test_weights_that_are_no_numbers() -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.nan
    message = _message(_model(weight=weight))
    assert message.startswith("initializer 'w' contains NaN (nan at [2, 3], 1 of 128 elements)")
    assert message.endswith("or pass allow_nonfinite=True to compile it all the same")
    assert import_model(_model(weight=weight), allow_nonfinite=True).inputs


@pytest.mark.parametrize("large", [-np.inf, 70000.0])
def test_weights_beyond_fp16_are_imported(large: float) -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = large
    assert import_model(_model(weight=weight)).inputs


def test_a_mask_may_be_infinite_but_not_nan() -> None:
    add = helper.make_node("Add", ["x", "w"], ["y"])
    mask = np.full((4, 8), -np.inf, np.float32)
    assert import_model(_model(add, weight=mask)).inputs
    mask[0, 0] = np.nan
    assert "initializer 'w' contains NaN" in _message(_model(add, weight=mask))


HOSTILE = [
    'quote"d',
    "apos'trophe",
    "new\nline",
    "comment */ int x; /*",
    "shell $(touch x) `y` ; rm -rf .",
    "ünïcode-名前",
    "back\\slash",
    "../../up",
    "{{ jinja }}",
    "#include <x>",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless(name: str) -> None:
    nodes = (
        helper.make_node("MatMul", [name or "x", "w"], ["h"], name=name),
        helper.make_node("Relu", ["h"], ["y"], name=name),
    )
    imported = import_model(_model(*nodes, name=name or "x"))
    assert imported.inputs[0].name == (name or "x")
    model = Model(imported.module, normalise=True)
    assert [region.symbol for region in model.regions] == ["boltgen_0_matmul"]
    assert model.regions[0].label == "matmul + relu + astype"
    x = np.ones((4, 8), np.float32)
    np.testing.assert_allclose(model.run(x)[0], np.maximum(x @ WEIGHT, 0), atol=8 * 2**-10)


def test_a_model_with_no_product_imports() -> None:
    imported = import_model(_model(helper.make_node("Softmax", ["x"], ["y"])))
    annotated = annotate(imported.module)
    (region,) = annotated.regions
    assert (region.label, region.workload.first.problem.has_b) == ("softmax", False)
    assert [placed.region for placed in annotated.placements] == [region.symbol]


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> object:
        if name in {"onnx", "torch"}:
            raise ImportError(f"No module named '{name}'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert install_command("onnx") in _message(tmp_path / "a.onnx")
    assert install_command("torch") in _message(tmp_path / "a.pt2")


def test_something_else_is_no_model() -> None:
    assert "a builtins.dict is no model that boltgen knows" in _message({})


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 16)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.dense(image))


def test_torch_export(tmp_path: Path) -> None:
    program = torch.export.export(Dense().eval(), (torch.zeros(4, 8),))
    torch.export.save(program, tmp_path / "dense.pt2")
    for source in (program, tmp_path / "dense.pt2"):
        model = import_model(source)
        assert model.inputs == (TensorSpec(name="image", shape=(4, 8), dtype="float32"),)
        assert model.outputs == (TensorSpec(name="relu", shape=(4, 16), dtype="float32"),)


def test_a_broken_torch_file(tmp_path: Path) -> None:
    (tmp_path / "dense.pt2").write_bytes(b"PK\x03\x04")
    assert "not a program that torch.export.save wrote" in _message(tmp_path / "dense.pt2")


def test_torch_dynamic_dimensions() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        Dense().eval(), (torch.zeros(4, 8),), dynamic_shapes={"image": {0: batch}}
    )
    (image,) = import_model(program).inputs
    assert image.shape is not None and image.shape[1] == 8 and isinstance(image.shape[0], str)
    assert import_model(program, shapes={"image": (5, 8)}).outputs[0].shape == (5, 16)


def test_torch_weights_that_are_no_numbers() -> None:
    net = Dense().eval()
    with torch.no_grad():
        net.dense.weight[1, 2] = float("nan")
    message = _message(torch.export.export(net, (torch.zeros(4, 8),)))
    assert message.startswith("parameter 'dense.weight' contains NaN (nan at [1, 2]")


def test_torch_operator_that_tvm_does_not_know() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    message = _message(torch.export.export(Odd(), (torch.zeros(4, 8),)))
    assert message.startswith("TVM cannot import the torch.export program: ")
    assert "bessel_j0" in message


def test_a_relax_module() -> None:
    module = build({"x": ((4, 8), "float16")}, relax.op.nn.relu)
    model = import_model(module)
    assert model.inputs == (TensorSpec(name="x", shape=(4, 8), dtype="float16"),)
    assert model.outputs == (TensorSpec(name="output_0", shape=(4, 8), dtype="float16"),)


def test_a_relax_module_with_symbols() -> None:
    extent = tvm.tirx.Var("n", "int64")
    module = build({"x": ((extent, 8), "float32")}, relax.op.nn.relu)  # type: ignore[dict-item]
    assert import_model(module).inputs[0].shape == ("n", 8)
    assert import_model(module, shapes={"x": (3, 8)}).outputs[0].shape == (3, 8)


def test_a_module_without_main() -> None:
    module = build({"x": ((4, 8), "float32")}, relax.op.nn.relu)
    renamed = tvm.IRModule({"forward": module["main"].with_attr("global_symbol", "forward")})
    assert _message(renamed) == "the module has no Relax function 'main'; it has forward"
