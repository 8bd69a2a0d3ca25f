"""Images of bytes, normalised in the model: one launch before the first convolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.arch import arch_named
from boltgen.ir.dtypes import DType
from boltgen.options import Precision
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition
from tests.test_end_to_end import fp16_tolerance

_SIDE, _CHANNELS, _FILTERS = 32, 3, 16
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Normalised(nn.Module):
    """A convolution of a normalised photo, in NCHW or, of `pixels`, in NHWC."""

    def __init__(self, *, pixels: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(_CHANNELS, _FILTERS, 3, 2, 1)
        self.register_buffer("mean", torch.tensor(_MEAN).view(_CHANNELS, 1, 1))
        self.register_buffer("std", torch.tensor(_STD).view(_CHANNELS, 1, 1))
        self.pixels = pixels

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2) if self.pixels else x
        y = self.first((x.float() / 255.0 - self.mean) / self.std)
        return torch.relu(y).mean((2, 3))


def _photo(count: int, *, pixels: bool) -> Tensor:
    sides = (_SIDE, _SIDE)
    shape = (count, *sides, _CHANNELS) if pixels else (count, _CHANNELS, *sides)
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def _onnx(module: Normalised, path: Path) -> Path:
    """The model as scale and bias of the channels, and Transpose after them."""
    sides = [_SIDE, _SIDE]
    shape = ["n", *sides, _CHANNELS] if module.pixels else ["n", _CHANNELS, *sides]
    rank = (1, 1, 1, _CHANNELS) if module.pixels else (1, _CHANNELS, 1, 1)
    scale = 1 / (255.0 * np.array(_STD))
    given = {
        "scale": scale.reshape(rank),
        "bias": (-np.array(_MEAN) / np.array(_STD)).reshape(rank),
        "w": module.first.weight.detach().numpy(),
        "b": module.first.bias.detach().numpy(),  # type: ignore[union-attr]
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["image"]),
    ]
    image = "image"
    if module.pixels:
        nodes.append(helper.make_node("Transpose", [image], ["planes"], perm=[0, 3, 1, 2]))
        image = "planes"
    nodes += [
        helper.make_node("Conv", [image, "w", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("ReduceMean", ["z"], ["out"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "photo",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", _FILTERS])],
        [numpy_helper.from_array(np.float32(each), name) for name, each in given.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, path)
    return path


def _partitioned(model: Any, **given: Any) -> Any:
    options = PipelineOptions(**given)
    imported = import_model(model, options)
    partition(imported, "sm_80", options)
    return imported


def _check_launches(imported: Any) -> None:
    """One kernel of TVM's stands before the convolution."""
    kernels = [each.kernel for each in imported.rest_functions(arch_named("sm_80"))]
    before = [each for each in kernels if "mean" not in each.name]
    assert [each.count for each in before] == [1], before
    assert "pad" in before[0].name


def _judge(imported: Any, module: Normalised, x: Tensor, unit: float = 1.0) -> None:
    """The convolution moves nothing itself, and the result is right."""
    (region,) = imported.partitioned.regions
    assert region.a_stored is None
    assert region.workload.first.problem.alignment_a in {4, 8}
    (found,) = Model.of_annotated(imported.partitioned).run(x.numpy())
    wanted = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(found.astype(np.float32) - wanted))))
    assert error <= unit * fp16_tolerance(wanted, 2)


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_a_program_of_pytorch(precision: Precision, pixels: bool) -> None:
    torch.manual_seed(0)
    module, x = Normalised(pixels=pixels).eval(), _photo(2, pixels=pixels)
    imported = _partitioned(torch.export.export(module, (x,)), precision=precision)
    narrow = DType.BF16 if precision is Precision.BF16 else DType.F16
    assert imported.partitioned.regions[0].workload.first.problem.in_dtype is narrow
    _check_launches(imported)
    _judge(imported, module, x, unit=8.0 if precision is Precision.BF16 else 1.0)


@pytest.mark.parametrize("pixels", [False, True])
def test_a_model_of_onnx(pixels: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Normalised(pixels=pixels).eval(), _photo(2, pixels=pixels)
    path = _onnx(module, tmp_path / "photo.onnx")
    imported = _partitioned(path, shapes={"x": tuple(x.shape)})
    _check_launches(imported)
    _judge(imported, module, x)


def test_a_batch_of_any_size() -> None:
    torch.manual_seed(0)
    module, x = Normalised(pixels=True).eval(), _photo(2, pixels=True)
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
    imported = _partitioned(program)
    for count in (1, 5):
        _judge(imported, module, _photo(count, pixels=True))
