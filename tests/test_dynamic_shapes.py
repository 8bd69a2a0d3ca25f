"""One library for many sizes: models with open dimensions, at several sizes of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from typer.testing import CliRunner

import boltgen
from boltgen.cli.program import app
from boltgen.device.vgpu import Vgpu
from boltgen.errors import DeviceError, InputError
from boltgen.running.artifact import Artifact
from tests.test_end_to_end import fp16_tolerance

HEADS, HEAD = 2, 16
WIDTH = HEADS * HEAD
SIZES = [(1, 1), (2, 17), (4, 40), (3, 33)]

# Self-attention as PyTorch's exporter writes it where batch and sequence are open.
ENCODER = """
<ir_version: 8, opset_import: ["" : 17]>
encoder (float[batch, seq, 32] x, float[1, 1, seq, seq] mask) => (float[batch, seq, 32] y) {
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  axes = Constant <value_ints = [0]> ()
  heads = Constant <value_ints = [2]> ()
  head = Constant <value_ints = [16]> ()
  width = Constant <value_ints = [32]> ()
  root = Constant <value_float = 4.0> ()
  shape = Shape (x)
  b = Gather (shape, zero)
  s = Gather (shape, one)
  b1 = Unsqueeze (b, axes)
  s1 = Unsqueeze (s, axes)
  split = Concat <axis = 0> (b1, s1, heads, head)
  joined = Concat <axis = 0> (b1, s1, width)
  q0 = MatMul (x, wq)
  q1 = Reshape (q0, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k0 = MatMul (x, wk)
  k1 = Reshape (k0, split)
  k = Transpose <perm = [0, 2, 3, 1]> (k1)
  v0 = MatMul (x, wv)
  v1 = Reshape (v0, split)
  v = Transpose <perm = [0, 2, 1, 3]> (v1)
  scores = MatMul (q, k)
  scaled = Div (scores, root)
  masked = Add (scaled, mask)
  weights = Softmax <axis = -1> (masked)
  context = MatMul (weights, v)
  back = Transpose <perm = [0, 2, 1, 3]> (context)
  rows = Reshape (back, joined)
  dense = MatMul (rows, wo)
  y = Add (dense, x)
}
"""

IMAGES = """
<ir_version: 8, opset_import: ["" : 17]>
images (float[batch, 3, 16, 16] x) => (float[batch, 10] y) {
  a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w1)
  b = Relu (a)
  c = Conv <pads = [1, 1, 1, 1]> (b, w2)
  d = Relu (c)
  e = GlobalAveragePool (d)
  f = Flatten (e)
  y = MatMul (f, w3)
}
"""


def _save(path: Path, text: str, weights: Mapping[str, tuple[int, ...]]) -> Path:
    """Write a model whose weights keep the variance of what they multiply."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        array = rng.normal(0, fan_in**-0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dynamic")


@pytest.fixture(scope="module")
def encoder_file(folder: Path) -> Path:
    return _save(
        folder / "encoder.onnx", ENCODER, dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    )


@pytest.fixture(scope="module")
def encoder(encoder_file: Path) -> Artifact:
    shapes = {"x": ("1..4", "1..40", WIDTH)}
    return boltgen.compile(encoder_file, arch="sm_80", shapes=shapes)


def _inputs(batch: int, length: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(batch * 1000 + length)
    ahead = np.triu(np.full((length, length), -1e9, np.float32), 1)
    return {
        "x": rng.normal(0, 1, (batch, length, WIDTH)).astype(np.float32),
        "mask": ahead[None, None],
    }


def _expected(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: np.ndarray[Any, Any] = session.run(None, dict(inputs))[0]
    return found


@pytest.mark.parametrize(("batch", "length"), SIZES)
def test_an_encoder_of_open_batch_and_sequence(
    batch: int, length: int, encoder: Artifact, encoder_file: Path, checking: Vgpu
) -> None:
    inputs = _inputs(batch, length)
    output = encoder.run(inputs)["y"]
    kernels = [launch.kernel for launch in checking.launches()]
    assert sum(name.startswith("boltgen_attention_sm80") for name in kernels) == 1
    assert not any(word in name for name in kernels for word in ("softmax", "matmul", "transpose"))
    assert [finding.message for finding in checking.findings()] == []
    expected = _expected(encoder_file, inputs)
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers=4)


def test_every_product_of_the_encoder_has_a_table_of_its_sizes(encoder: Artifact) -> None:
    metadata = encoder.metadata
    assert [(each.name, each.low, each.high) for each in metadata.dimensions] == [
        ("batch", 1, 4),
        ("seq", 1, 40),
    ]
    assert metadata.placements
    for region in metadata.regions:
        assert region.choices
        assert region.kernel in {choice.kernel for choice in region.choices}
        assert {choice.kernel for choice in region.choices} <= {k.symbol for k in metadata.kernels}
    first, last = metadata.regions[0].choices[0], metadata.regions[0].choices[-1]
    assert first.sizes.startswith("m 1 to ")
    assert last.sizes.endswith(" to 160")


def test_inspect_shows_the_tables(encoder: Artifact, tmp_path: Path) -> None:
    encoder.save(tmp_path / "encoder")
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "encoder"), "--details"])
    assert shown.exit_code == 0
    for region in encoder.metadata.regions:
        for choice in region.choices:
            assert f"{choice.sizes}: {choice.config}" in " ".join(shown.output.split())
    said = CliRunner().invoke(app, ["inspect", str(tmp_path / "encoder"), "--json"])
    choices = [region["choices"] for region in json.loads(said.output)["regions"]]
    assert [len(each) for each in choices] == [len(r.choices) for r in encoder.metadata.regions]


@pytest.mark.parametrize(
    ("batch", "length", "named"),
    [(5, 8, "'x' has batch = 5"), (1, 41, "'x' has seq = 41")],
)
def test_a_size_out_of_its_range_is_named(
    batch: int, length: int, named: str, encoder: Artifact
) -> None:
    with pytest.raises(InputError) as caught:
        encoder.run(_inputs(batch, length))
    assert named in str(caught.value)
    assert ("1 to 4" if "batch" in named else "1 to 40") in str(caught.value)


def test_images_of_an_open_batch(folder: Path, checking: Vgpu) -> None:
    weights = {"w1": (16, 3, 3, 3), "w2": (24, 16, 3, 3), "w3": (24, 10)}
    path = _save(folder / "images.onnx", IMAGES, weights)
    artifact = boltgen.compile(path, arch="sm_80", shapes={"x": ("1..8", 3, 16, 16)})
    # The first convolution reads three channels as four: its call moves the images.
    assert [bool(region.moves) for region in artifact.metadata.regions] == [True, False, False]
    for batch in (1, 2, 5, 8):
        x = np.random.default_rng(batch).normal(0, 1, (batch, 3, 16, 16)).astype(np.float32)
        output = artifact.run({"x": x})["y"]
        expected = _expected(path, {"x": x})
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers=3)
    assert [finding.message for finding in checking.findings()] == []


def test_a_torch_module_whose_dimension_has_no_greatest_value(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU()).eval()
    rows = torch.export.Dim("rows")
    artifact = boltgen.compile(
        module, (torch.zeros(4, 32),), arch="sm_80", dynamic_shapes=({0: rows},)
    )
    assert len(artifact.metadata.regions) == 1
    (name,) = (info.name for info in artifact.metadata.inputs)
    for count in (2, 19, 300):
        x = torch.randn(count, 32)
        (output,) = artifact.run({name: x.numpy()}).values()
        expected = module(x).detach().numpy()
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers=1)
    assert [finding.message for finding in checking.findings()] == []
    with pytest.raises(DeviceError, match=r"m is 32769.* to 32768"):
        artifact.run({name: np.zeros((32769, 32), np.float32)})


def test_the_whole_model_is_checked_at_one_size(encoder_file: Path) -> None:
    shapes = {"x": ("1..4", "1..40", WIDTH)}
    artifact = boltgen.compile(encoder_file, arch="sm_80", shapes=shapes, check="full")
    check = artifact.metadata.check
    assert check is not None and check.model is not None
    assert check.model.error is not None and check.model.passed


SUMS = """
<ir_version: 8, opset_import: ["" : 17]>
sums (float[4, rows, depth] a, float[4, depth, columns] b) => (float[4, rows, columns] y) {
  y = MatMul (a, b)
}
"""


def test_a_product_all_of_whose_extents_are_open(folder: Path, checking: Vgpu) -> None:
    path = _save(folder / "sums.onnx", SUMS, {})
    shapes = {"a": (4, "1..40", "1..70"), "b": (4, "?", "8..50")}
    artifact = boltgen.compile(path, arch="sm_80", shapes=shapes)
    (region,) = artifact.metadata.regions
    assert region.gemms[0].batch == 4
    rng = np.random.default_rng(0)
    for rows, depth, columns in ((1, 1, 8), (40, 70, 50), (17, 64, 16), (33, 5, 49)):
        a = rng.normal(0, 1, (4, rows, depth)).astype(np.float32)
        b = rng.normal(0, depth**-0.5, (4, depth, columns)).astype(np.float32)
        output = artifact.run({"a": a, "b": b})["y"]
        expected = _expected(path, {"a": a, "b": b})
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers=1)
    assert [finding.message for finding in checking.findings()] == []
