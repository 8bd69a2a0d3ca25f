"""Models with convolutions of volumes and transposed ones, to a model that is executed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from tests.test_end_to_end import fp16_tolerance


class Unet3d(nn.Module):
    """Two levels of a 3D U-Net: a strided convolution down, a transposed one up, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU())
        self.down = nn.Sequential(nn.Conv3d(8, 16, 3, 2, 1), nn.ReLU())
        self.up = nn.ConvTranspose3d(16, 8, 2, 2)
        self.last = nn.Sequential(nn.Conv3d(16, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.cat([x, self.up(self.down(x))], 1))


class Factored(nn.Module):
    """R(2+1)D's block: a convolution in the plane, one along time, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv3d(8, 24, (1, 3, 3), padding=(0, 1, 1), bias=False)
        self.norm = nn.BatchNorm3d(24)
        self.time = nn.Conv3d(24, 8, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.time(torch.relu(self.norm(self.plane(x)))))


class Vocoder(nn.Module):
    """HiFi-GAN's block: a transposed convolution along time, and dilated residual ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(20, 32, 7, padding=3)
        self.up = nn.ConvTranspose1d(32, 16, 8, 4, 2)
        self.wide = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=d, padding=d) for d in (1, 3))
        self.last = nn.Conv1d(16, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(nn.functional.leaky_relu(self.first(x), 0.1))
        for each in self.wide:
            x = x + each(nn.functional.leaky_relu(x, 0.1))
        return torch.tanh(self.last(nn.functional.leaky_relu(x, 0.1)))


class Causal(nn.Module):
    """WaveNet's layers: dilated convolutions along time that see no later steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(16, 32, 3, dilation=2), nn.Conv1d(32, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(nn.functional.pad(x, (4, 0))))
        return self.second(nn.functional.pad(x, (2, 0)))


def _bordered(mode: str) -> nn.Module:
    """Two convolutions of images whose borders are other pixels."""
    given = {"padding": (1, 2), "padding_mode": mode}
    return nn.Sequential(
        nn.Conv2d(16, 32, (3, 5), **given), nn.ReLU(), nn.Conv2d(32, 8, (3, 5), **given)
    )


def _up(groups: int) -> nn.Module:
    """A transposed convolution in groups, with an output padding, after a convolution."""
    up = nn.ConvTranspose2d(24, 24, 3, 2, 1, output_padding=1, groups=groups)
    return nn.Sequential(nn.Conv2d(8, 24, 1), nn.ReLU(), up, nn.ReLU())


# Each model's input, and how many kernels compute convolutions.
MODELS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "unet3d": (Unet3d, (1, 1, 6, 8, 4), 5),
    "factored": (Factored, (2, 8, 4, 6, 5), 2),
    "vocoder": (Vocoder, (1, 20, 16), 5),
    "causal": (Causal, (2, 16, 12), 2),
    "circular": (lambda: _bordered("circular"), (2, 16, 6, 9), 2),
    "reflect": (lambda: _bordered("reflect"), (2, 16, 6, 9), 2),
    "grouped": (lambda: _up(3), (2, 8, 5, 6), 2),
    "depthwise": (lambda: _up(24), (2, 8, 5, 6), 2),
}


def _made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    module, shape, _ = MODELS[name]
    made = module().eval()
    for each in made.modules():
        if isinstance(each, nn.BatchNorm3d):
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.normal_(each.running_mean, 0.0, 0.3)
    return made, torch.randn(shape)


def _judge(artifact: Artifact, name: str, x: Tensor, expected: Tensor, checking: Vgpu) -> None:
    """Kernels of boltgen's compute all convolutions, all checks pass, and the result is right."""
    checking.clear_launches()
    (info,) = artifact.metadata.inputs
    (output,) = artifact.run({info.name: x.numpy().astype(info.dtype)}, device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    assert not any("conv" in kernel for kernel in kernels if "boltgen" not in kernel), kernels
    moves = sum("move_kernel" in kernel for kernel in kernels)
    assert sum("boltgen" in kernel for kernel in kernels) - moves == MODELS[name][2], kernels
    wanted = expected.detach().numpy()
    error = float(np.sqrt(np.mean(np.square(output.astype(np.float32) - wanted))))
    assert error <= fp16_tolerance(wanted, 4)


_BORDERS = ("causal", "circular", "reflect")


@pytest.mark.parametrize("name", [each for each in MODELS if each not in _BORDERS])
def test_models_of_pytorch(name: str, checking: Vgpu) -> None:
    module, x = _made(name)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    _judge(artifact, name, x, module(x), checking)


# A border is one kernel before each convolution, or one along each axis; zeros are none. The first
# tensor, and the last, are transposed and cast.
@pytest.mark.parametrize(("name", "launches"), [("causal", 4), ("circular", 5), ("reflect", 8)])
def test_borders_cost_few_launches(name: str, launches: int, checking: Vgpu) -> None:
    module, x = _made(name)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    _judge(artifact, name, x, module(x), checking)
    assert len(checking.launches()) <= launches


@pytest.mark.parametrize("name", ["unet3d", "vocoder", "grouped", "causal", "circular"])
def test_models_of_onnx(name: str, tmp_path: Path, checking: Vgpu) -> None:
    module, x = _made(name)
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False)
    path = tmp_path / "model.onnx"
    path.write_bytes(file.getvalue())
    artifact = boltgen.compile(path, arch="sm_80")
    _judge(artifact, name, x, module(x), checking)


def test_one_library_is_for_several_batches(checking: Vgpu) -> None:
    module, x = _made("factored")
    batch = torch.export.Dim("batch", min=1, max=4)
    artifact = boltgen.compile(module, (x,), dynamic_shapes=({0: batch},), arch="sm_80")
    for count in (1, 3):
        given = torch.randn(count, *x.shape[1:])
        _judge(artifact, "factored", given, module(given), checking)
