"""Transposed convolutions and those in groups are regions, and compute what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from benchmarks.cases.onnx_models import model, node, noise, results
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend import relax
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition
from tests.test_end_to_end import fp16_tolerance


class _UNet(nn.Module):
    """One level down and up, with the upper image beside the raised one; then two times up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.up, self.joined = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 16, 3, padding=1)
        norm = nn.BatchNorm2d(8)
        nn.init.uniform_(norm.running_mean, -1, 1)
        self.raised = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), norm, nn.ReLU())
        self.last = nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        upper = torch.relu(self.first(x))
        raised = self.up(torch.relu(self.down(upper)))
        joined = torch.relu(self.joined(torch.cat([upper, raised], 1)))
        return self.last(self.raised(joined))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "a U-Net": (_UNet, (2, 3, 16, 20), 6),
    "a vocoder": (
        lambda: nn.Sequential(
            nn.ConvTranspose1d(16, 8, 16, 8, 4), nn.LeakyReLU(), nn.ConvTranspose1d(8, 8, 4, 2, 1)
        ),
        (1, 16, 25),
        2,
    ),
    "a stride that no filter fills": (
        lambda: nn.ConvTranspose2d(8, 8, 2, 3, bias=False),
        (1, 8, 5, 4),
        1,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_no_transposed_convolution_left(name: str) -> None:
    torch.manual_seed(0)
    build, shape, products = MODELS[name]
    module, x = build().eval(), torch.randn(shape)
    imported = import_model(torch.export.export(module, (x,)), PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    placed = imported.partitioned.placements
    assert not any("transpose" in each.operator for each in placed if "conv" in each.operator)
    layers = [layer for each in imported.partitioned.regions for layer in each.workload.layers]
    assert len(layers) == products
    (found,) = Model.of_annotated(imported.partitioned).run(x.numpy())
    wanted = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(found - wanted))))
    assert error <= fp16_tolerance(wanted, layers=products)


class _ResNeXt(nn.Module):
    """A block of ResNeXt: groups of few channels between two matmuls, and a way around."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64)
        self.grouped = nn.Conv2d(64, 64, 3, 2, 1, groups=groups)
        self.last, self.around = nn.Conv2d(64, 128, 1), nn.Conv2d(64, 128, 1, 2)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.relu(self.grouped(torch.relu(self.norm(self.first(x)))))
        return torch.relu(self.last(inside) + self.around(x))


@pytest.mark.parametrize(("groups", "joined"), [(32, 2), (16, 2), (2, 2), (1, 1)], ids=str)
def test_a_convolution_in_groups_is_a_region(groups: int, joined: int) -> None:
    torch.manual_seed(0)
    module, x = _ResNeXt(groups).eval(), torch.randn(2, 64, 12, 10)
    imported = import_model(torch.export.export(module, (x,)), PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    layers = [layer for each in imported.partitioned.regions for layer in each.workload.layers]
    assert len(layers) == 4
    grouped = [each.problem for each in layers if each.problem.b_shape[1:3] == (3, 3)]
    assert [problem.groups for problem in grouped] == [joined]
    (found,) = Model.of_annotated(imported.partitioned).run(x.numpy())
    wanted = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(found - wanted))))
    assert error <= fp16_tolerance(wanted, layers=4)


def test_an_onnx_model_s_is_offloaded_too() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 6, 3, 2)).astype(np.float32)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2]
    )
    graph = helper.make_graph(
        [node],
        "up",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 5, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph))
    imported = import_model(model, PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    assert len(imported.partitioned.regions) == 1
    x = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
    (found,) = Model.of_annotated(imported.partitioned).run(x)
    whole = torch.nn.functional.conv_transpose2d(
        torch.tensor(x), torch.tensor(weight), stride=(2, 1), dilation=(1, 2)
    )
    wanted = whole[:, :, 1:, :-1].numpy()
    error = float(np.sqrt(np.mean(np.square(found - wanted))))
    assert found.shape == wanted.shape
    assert error <= fp16_tolerance(wanted, layers=1)


_KERNEL = (3, 2, 3)
# Attributes by axis, which a rank has the first of; output shapes are those of strides of two.
_ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2, 2]}),
    ("Conv", {"auto_pad": "VALID"}),
    ("Conv", {"dilations": [2, 1, 1], "pads": ([2, 2, 2], [1, 1, 1])}),
    ("ConvTranspose", {"output_shape": [14, 12, 10], "strides": [2, 2, 2]}),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ("ConvTranspose", {"auto_pad": "SAME_LOWER", "strides": [2, 2, 2]}),
    (
        "ConvTranspose",
        {"output_padding": [1, 1, 1], "pads": ([1, 1, 1], [0, 0, 0]), "strides": [2, 2, 2]},
    ),
    ("ConvTranspose", {"dilations": [2, 1, 2], "strides": [2, 2, 2]}),
]


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize(("operator", "given"), _ATTRIBUTES)
def test_onnx_runtime_agrees(operator: str, given: dict[str, Any], rank: int) -> None:
    """Each way of padding, of rows and of volumes; tests of rewrites have those of images."""
    attributes = dict(given)
    for name, value in given.items():
        if name == "pads":
            before, after = value
            attributes[name] = [*before[:rank], *after[:rank]]
        elif isinstance(value, list):
            attributes[name] = value[:rank]
    shape = (2, 8, *(7, 6, 5)[:rank])
    filters = 6 if operator == "Conv" else 4
    weight = noise(*((6, 8) if operator == "Conv" else (8, 4)), *_KERNEL[:rank])
    made = model(
        [node(operator, ["x", "w", "b"], ["y"], **attributes)],
        {"x": shape},
        {"w": weight, "b": noise(filters)},
    )
    x = noise(*shape)
    (wanted,) = results(made, {"x": x})
    found = Model(relax.import_model(made).module, normalise=True)
    assert [region.label for region in found.regions] == [f"conv{max(rank, 2)}d + add"]
    (actual,) = found.run(x)
    error = float(np.sqrt(np.mean(np.square(actual.reshape(wanted.shape) - wanted))))
    assert error <= fp16_tolerance(wanted, 1)
