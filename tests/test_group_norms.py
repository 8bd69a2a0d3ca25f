"""Norms of several axes, which a kernel computes as norms of rows, as frontends spell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.ir.dtypes import Precision
from boltgen.running.artifact import Artifact
from tests.test_end_to_end import fp16_tolerance

SHAPE = (2, 16, 6, 6)
Array = np.ndarray[Any, Any]

_HEADER = """
<ir_version: 8, opset_import: ["" : {opset}]>
norm (float[batch, 16, 6, 6] x) => (float[batch, 16, 6, 6] y)
"""
_GROUPED = "{ y = GroupNormalization <num_groups = 4, epsilon = 0.001> (x, scale, shift) }"
# As exporters wrote a group norm before ONNX had one.
_AS_INSTANCES = """
{
  apart = Constant <value_ints = [0, 4, -1]> ()
  flat = Reshape (x, apart)
  normed = InstanceNormalization <epsilon = 0.001> (flat, one, zero)
  whole = Shape (x)
  back = Reshape (normed, whole)
  scaled = Mul (back, scale)
  y = Add (scaled, shift)
}
"""
_INSTANCES = "{ y = InstanceNormalization <epsilon = 0.001> (x, scale, shift) }"


def _judged(
    artifact: Artifact,
    x: Array,
    expected: Array,
    checking: Vgpu,
    *,
    layers: int = 1,
    count: int = 1,
) -> list[str]:
    """So many kernels norm all rows, all checks pass, and the result is right.

    Returns the kernels of TVM's that were launched.
    """
    checking.clear_launches()
    (name,) = (info.name for info in artifact.metadata.inputs)
    (output,) = artifact.run({name: x}, device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    norms = ("boltgen_layer_norm_", "boltgen_group_norm_")
    assert sum(kernel.startswith(norms) for kernel in kernels) == count, kernels
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers)
    return [kernel for kernel in kernels if "boltgen" not in kernel]


def _images(batch: int = 2) -> Array:
    rng = np.random.default_rng(batch)
    return rng.normal(1, 3, (batch, *SHAPE[1:])).astype(np.float32)


@pytest.mark.parametrize(
    "module",
    [
        lambda: nn.GroupNorm(4, 16),
        lambda: nn.GroupNorm(1, 16, affine=False),
        lambda: nn.InstanceNorm2d(16, affine=True),
        lambda: nn.LayerNorm((6, 6)),
        lambda: nn.LayerNorm((16, 6, 6), elementwise_affine=False),
    ],
    ids=["groups", "one-group", "instances", "pixels", "images"],
)
def test_norms_of_pytorch(module: Callable[[], nn.Module], checking: Vgpu) -> None:
    torch.manual_seed(0)
    made = module().eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, 1, 0.3)
    x = _images()
    artifact = boltgen.compile(made, (torch.from_numpy(x),), arch="sm_80")
    _judged(artifact, x, made(torch.from_numpy(x)).detach().numpy(), checking)


_in_every_spelling = pytest.mark.parametrize(
    ("text", "opset", "parameters"),
    [
        (_GROUPED, 18, {"scale": (4,), "shift": (4,)}),
        (_GROUPED, 21, {"scale": (16,), "shift": (16,)}),
        (_AS_INSTANCES, 13, {"scale": (16, 1, 1), "shift": (16, 1, 1), "one": (4,), "zero": (4,)}),
        (_INSTANCES, 13, {"scale": (16,), "shift": (16,)}),
    ],
    ids=["groups-18", "groups-21", "as-instances", "instances"],
)


@_in_every_spelling
def test_norms_of_onnx_at_several_batches(
    text: str, opset: int, parameters: dict[str, tuple[int, ...]], tmp_path: Path, checking: Vgpu
) -> None:
    model = onnx.parser.parse_model(_HEADER.format(opset=opset) + text)
    rng = np.random.default_rng(0)
    for name, shape in parameters.items():
        array = rng.normal(1, 0.3, shape)
        array = {"one": np.ones(shape), "zero": np.zeros(shape)}.get(name, array)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    path = tmp_path / "norm.onnx"
    onnx.save(model, path)
    artifact = boltgen.compile(path, arch="sm_80", shapes={"x": ("1..4", *SHAPE[1:])})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 3, 4):
        x = _images(batch)
        _judged(artifact, x, session.run(None, {"x": x})[0], checking)


class _Block(nn.Module):
    """A residual block of a diffusion model, between a convolution and the model's last one."""

    def __init__(self, groups: tuple[int, int, int]) -> None:
        super().__init__()
        first, second, last = groups
        self.first = nn.Conv2d(4, 16, 3, padding=1)
        self.block = nn.Sequential(
            nn.GroupNorm(first, 16),
            nn.SiLU(),
            nn.Conv2d(16, 24, 3, padding=1),
            nn.GroupNorm(second, 24),
            nn.SiLU(),
            nn.Conv2d(24, 24, 3, padding=1),
        )
        self.skip = nn.Conv2d(16, 24, 1)
        self.last = nn.Sequential(nn.GroupNorm(last, 24), nn.SiLU(), nn.Conv2d(24, 4, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.skip(x) + self.block(x))


def _random(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 1, 0.3)
    return module.eval()


@pytest.mark.parametrize(
    ("groups", "precision"),
    [((4, 4, 1), "fp16"), ((16, 24, 24), "fp16"), ((2, 4, 12), "bf16")],
    ids=["groups", "instances", "bf16"],
)
def test_a_block_of_a_diffusion_model_is_normed_where_it_lies(
    groups: tuple[int, int, int], precision: str, checking: Vgpu
) -> None:
    module, x = _random(_Block(groups)), torch.randn(2, 4, 12, 10)
    artifact = boltgen.compile(module, (x,), arch="sm_80", precision=Precision(precision))
    expected = module(x).detach().numpy()
    of_tvm = _judged(
        artifact, x.numpy(), expected, checking, layers=8 if precision == "fp16" else 80, count=3
    )
    assert len(artifact.metadata.regions) == 8
    assert of_tvm == []


def test_rows_that_no_registers_hold_are_normed_in_place_too(checking: Vgpu) -> None:
    module = _random(nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.GroupNorm(1, 32)))
    x = torch.randn(1, 8, 50, 50)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    _judged(artifact, x.numpy(), module(x).detach().numpy(), checking, layers=2)
    assert len(artifact.metadata.regions) == 2


def test_groups_with_next_to_nothing_of_a_pixel_are_moved_and_said_to_be(checking: Vgpu) -> None:
    module = _random(
        nn.Sequential(nn.Conv2d(8, 24, 3, padding=1), nn.GroupNorm(8, 24), nn.Conv2d(24, 8, 1))
    )
    x = torch.randn(2, 8, 9, 9)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    assert len(_judged(artifact, x.numpy(), module(x).detach().numpy(), checking, layers=3)) == 2
    assert any("6 bytes of a pixel" in note for note in artifact.metadata.notes)


_BETWEEN = """
<ir_version: 8, opset_import: ["" : {opset}]>
between (float[batch, 8, 6, 6] image) => (float[batch, 8, 6, 6] result)
{{
  x = Conv <pads = [1, 1, 1, 1]> (image, first, bias)
  {norm}
  opened = Sigmoid (y)
  active = Mul (y, opened)
  result = Conv <pads = [1, 1, 1, 1]> (active, last)
}}
"""


@_in_every_spelling
def test_norms_of_onnx_between_convolutions_move_nothing_at_several_batches(
    text: str, opset: int, parameters: dict[str, tuple[int, ...]], tmp_path: Path, checking: Vgpu
) -> None:
    body = text.strip().removeprefix("{").removesuffix("}")
    model = onnx.parser.parse_model(_BETWEEN.format(opset=opset, norm=body))
    weights = {"first": (16, 8, 3, 3), "bias": (16,), "last": (8, 16, 3, 3)}
    rng = np.random.default_rng(0)
    for name, shape in {**weights, **parameters}.items():
        array = rng.normal(0 if name in weights else 1, 0.3, shape)
        array = {"one": np.ones(shape), "zero": np.zeros(shape)}.get(name, array)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    path = tmp_path / "between.onnx"
    onnx.save(model, path)
    artifact = boltgen.compile(path, arch="sm_75", shapes={"image": ("1..4", 8, 6, 6)})
    assert len(artifact.metadata.regions) == 3
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 3, 4):
        x = np.random.default_rng(batch).normal(1, 3, (batch, 8, 6, 6)).astype(np.float32)
        expected = session.run(None, {"image": x})[0]
        assert _judged(artifact, x, expected, checking, layers=4) == []


def test_an_exported_block_of_any_batch_moves_nothing(checking: Vgpu) -> None:
    module = _random(_Block((4, 4, 12)))
    shapes = ({0: torch.export.Dim("batch", min=1, max=6)},)
    artifact = boltgen.compile(
        module, (torch.randn(2, 4, 12, 10),), arch="sm_80", dynamic_shapes=shapes
    )
    assert len(artifact.metadata.regions) == 8
    for batch in (1, 5):
        x = torch.randn(batch, 4, 12, 10)
        expected = module(x).detach().numpy()
        assert _judged(artifact, x.numpy(), expected, checking, layers=8, count=3) == []
