"""Models that do something to each element before a product: the product's own kernel does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.module_runs import judged

SIZE = 12


class Excited(nn.Module):
    """A convolution, a gate of each channel of each image, and a projection.

    Source: Hu et al., Squeeze-and-excitation networks, 2018, as MobileNetV3 and EfficientNet have
    them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 48, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(48, 16, 1), nn.Conv2d(16, 48, 1)
        self.project = nn.Conv2d(48, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.silu(self.first(x))
        gate = self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        return self.project(y * torch.sigmoid(gate))


class Dense(nn.Module):
    """A layer of a DenseNet: a batch norm and an activation of all that came before.

    Source: Huang et al., Densely connected convolutional networks, 2017.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(count) for count in (48, 64))
        self.narrow = nn.Conv2d(48, 64, 1)
        self.grow = nn.Conv2d(64, 32, 3, padding=1)
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1, 0.2)
            nn.init.normal_(norm.bias, 0, 0.2)

    def forward(self, x: Tensor) -> Tensor:
        before = torch.cat([x, functional.relu(self.first(x))], 1)
        y = self.narrow(functional.relu(self.norms[0](before)))
        y = self.grow(functional.relu(self.norms[1](y)))
        return torch.cat([before, y], 1)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and how many kernels are boltgen's and TVM's: casts and concatenations."""

    module: Callable[[], nn.Module]
    own: int
    kept: int


CASES = {"excited": Case(Excited, 5, 1), "dense": Case(Dense, 3, 3)}


def _images(batch: int) -> Tensor:
    return torch.randn(batch, 16, SIZE, SIZE)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_what_comes_before_a_product_costs_no_launch(name: str, batch: int, checking: Vgpu) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    module = case.module().eval()
    artifact = boltgen.compile(module, (_images(batch),), arch="sm_80")
    kernels = judged(artifact, module, (_images(batch),), 4, checking)
    assert sum("boltgen_prologue_" in kernel for kernel in kernels) == 1, kernels
    kept = sum("boltgen" not in kernel for kernel in kernels)
    assert (len(kernels) - kept, kept) == (case.own, case.kept), kernels


def test_one_library_of_several_batches(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Excited().eval()
    sizes = {"x": {0: torch.export.Dim("batch", min=1, max=5)}}
    artifact = boltgen.compile(module, (_images(3),), arch="sm_75", dynamic_shapes=sizes)
    for batch in (1, 2, 5):
        kernels = judged(artifact, module, (_images(batch),), 4, checking)
        assert sum("boltgen_prologue_" in kernel for kernel in kernels) == 1, kernels


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_gate_of_onnx(checking: Vgpu, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, path = Excited().eval(), tmp_path / "excited.onnx"
    torch.onnx.export(module, (_images(2),), str(path), dynamo=False, opset_version=17)
    kernels = judged(boltgen.compile(path, arch="sm_80"), module, (_images(2),), 4, checking)
    assert sum("boltgen_prologue_" in kernel for kernel in kernels) == 1, kernels
