"""Models that scale, shift and gate each image of a batch by numbers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.module_runs import Case, judged, judged_case

LENGTH, WIDTH, HEADS = 40, 64, 4


class DiT(nn.Module):
    """A block of a diffusion transformer. Source: Peebles and Xie, 2023, adaLN-Zero."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def parts(self, c: Tensor) -> tuple[Tensor, ...]:
        return self.modulation(functional.silu(c))[:, None].chunk(6, dim=-1)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate, shift_after, scale_after, gate_after = self.parts(c)
        y = self.norms[0](x) * (1 + scale) + shift
        batch, length, width = x.shape
        heads = (batch, length, HEADS, width // HEADS)
        q, k, v = (each.reshape(heads).transpose(1, 2) for each in self.qkv(y).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + gate * self.out(y.reshape(x.shape))
        y = self.norms[1](x) * (1 + scale_after) + shift_after
        y = self.narrow(functional.gelu(self.wide(y), approximate="tanh"))
        return x + gate_after * y


class PixArt(DiT):
    """The same, whose numbers are parts of a table beside those of the time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, WIDTH) / 8)

    def parts(self, c: Tensor) -> tuple[Tensor, ...]:
        made = self.table[None] + self.modulation(c).reshape(c.shape[0], 6, -1)
        return made.chunk(6, dim=1)


class Residual(nn.Module):
    """A residual block of a diffusion U-Net, whose time is added to each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, 32) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(24, 32)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.convs[0](functional.silu(self.norms[0](x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        return x + self.convs[1](functional.silu(self.norms[1](y)))


class Film(nn.Module):
    """Pixels scaled and shifted by a condition. Source: Perez et al., FiLM, 2018."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 32, 1)
        self.conv = nn.Conv2d(32, 48, kernel, padding=kernel // 2)
        self.condition = nn.Linear(24, 96)
        self.last = nn.Conv2d(48, 16, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.condition(condition).chunk(2, dim=1)
        y = self.conv(functional.relu(self.first(x)))
        return self.last(functional.relu(y * scale[:, :, None, None] + shift[:, :, None, None]))


def _tokens(batch: int, width: int = WIDTH) -> tuple[Tensor, ...]:
    return torch.randn(batch, LENGTH, width), torch.randn(batch, width)


def _images(batch: int, channels: int = 32) -> tuple[Tensor, ...]:
    return torch.randn(batch, channels, 12, 10), torch.randn(batch, 24)


CASES = {
    # Eight kernels of a transformer's block with the product that makes the numbers; TVM casts the
    # tokens, and computes what is of the condition alone.
    "dit": Case(DiT, _tokens, 8, 2),
    "odd width": Case(lambda: DiT(60), lambda batch: _tokens(batch, 60), 8, 2),
    # The condition is cast in a move, and the table is added by TVM.
    "table": Case(PixArt, _tokens, 9, 2),
    # The block's input is in NCHW.
    "u-net": Case(Residual, _images, 5, 4),
    # With moves of the condition and of the images, two of three convolutions in one kernel.
    "film": Case(lambda: Film(3), lambda batch: _images(batch, 8), 6, 0),
    "pointwise film": Case(lambda: Film(1), lambda batch: _images(batch, 8), 5, 0),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_each_image_cost_no_launch(name: str, batch: int, checking: Vgpu) -> None:
    judged_case(CASES[name], batch, checking)


def test_one_library_of_several_batches_and_lengths(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module, case = DiT().eval(), CASES["dit"]
    batch = torch.export.Dim("batch", min=1, max=6)
    length = torch.export.Dim("length", min=1, max=64)
    open_sizes = {"x": {0: batch, 1: length}, "c": {0: batch}}
    artifact = boltgen.compile(module, _tokens(5), arch="sm_80", dynamic_shapes=open_sizes)
    for size, tokens in ((1, 1), (3, 40), (6, 64), (2, 7)):
        given = (torch.randn(size, tokens, WIDTH), torch.randn(size, WIDTH))
        kernels = judged(artifact, module, given, case.layers, checking)
        assert sum("boltgen" in kernel for kernel in kernels) == case.own, kernels


def test_a_block_on_hopper(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module, case = DiT(128).eval(), CASES["dit"]
    artifact = boltgen.compile(module, _tokens(3, 128), arch="sm_90a")
    judged(artifact, module, _tokens(3, 128), case.layers, checking)
    workloads = [trial.workload for each in artifact.metadata.kernels for trial in each.trials]
    of_images = [each for each in workloads if any(layer.has_slices for layer in each.layers)]
    assert len(of_images) == 3  # both norms are one kernel's


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_block_of_onnx(checking: Vgpu, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, case, path = DiT().eval(), CASES["dit"], tmp_path / "dit.onnx"
    torch.onnx.export(module, _tokens(3), str(path), dynamo=False, opset_version=17)
    artifact = boltgen.compile(path, arch="sm_80")
    kernels = judged(artifact, module, _tokens(3), case.layers, checking)
    assert sum("boltgen" in kernel for kernel in kernels) == case.own, kernels
