"""Blocks with depthwise convolutions, from PyTorch and ONNX to a model that is executed."""

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


def _normed(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.running_mean, 0.0, 0.3)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return norm


class Inverted(nn.Module):
    """MobileNetV2's block: 1x1, depthwise, 1x1, and a residual where the stride is 1."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        depthwise = nn.Conv2d(48, 48, 3, stride, 1, groups=48, bias=False)
        self.body = nn.Sequential(
            *(nn.Conv2d(16, 48, 1, bias=False), _normed(48), nn.ReLU6()),
            *(depthwise, _normed(48), nn.ReLU6()),
            *(nn.Conv2d(48, 16, 1, bias=False), _normed(16)),
        )
        self.is_residual = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y if self.is_residual else y


class Excited(nn.Module):
    """MobileNetV3's middle: a 5x5 depthwise convolution, its mean, and a gate of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(16, 16, 5, 2, 2, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.last = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.hardswish(self.depthwise(x))
        gate = torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        return self.last(y * nn.functional.hardsigmoid(self.excite(gate)))


class ConvNext(nn.Module):
    """ConvNeXt's block: 7x7 depthwise, a layer norm of channels, two dense layers, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(24, 24, 7, padding=3, groups=24)
        self.norm = nn.LayerNorm(24)
        self.wide, self.narrow = nn.Linear(24, 96), nn.Linear(96, 24)
        self.scale = nn.Parameter(torch.full((24,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class Causal(nn.Module):
    """A causal depthwise convolution along time, as of Mamba and WaveNet."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(24, 24, 4, padding=6, dilation=2, groups=24)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(self.depthwise(x)[..., : x.shape[-1]])


class Multiplied(nn.Module):
    """Two filters of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(12, 24, (3, 2), (1, 2), dilation=(2, 1), groups=12)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.depthwise(x))


class Ghost(nn.Module):
    """GhostNet's module: half of the channels is made of the other half; and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = nn.Sequential(nn.Conv2d(24, 12, 1, bias=False), _normed(12), nn.ReLU())
        cheap = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.cheap = nn.Sequential(cheap, _normed(12), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        return torch.cat([first, self.cheap(first)], 1) + x


class Shuffled(nn.Module):
    """ShuffleNet V2's unit behind two branches: it convolves half of the shuffled channels."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(16, 12, 1) for _ in range(2))
        self.unit = nn.Sequential(
            *(nn.Conv2d(12, 12, 1, bias=False), _normed(12), nn.ReLU()),
            *(nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), _normed(12)),
            *(nn.Conv2d(12, 12, 1, bias=False), _normed(12), nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([torch.relu(each(x)) for each in self.branches], 1)
        kept, given = nn.functional.channel_shuffle(joined, 2).chunk(2, 1)
        return torch.cat([kept, self.unit(given)], 1)


def _narrow() -> nn.Module:
    """Channels that are no multiple of a vector, between convolutions that could pad theirs."""
    between = nn.Conv2d(20, 20, 3, padding=1, groups=20)
    return nn.Sequential(nn.Conv2d(3, 20, 3, 2, 1), nn.ReLU(), between, nn.Conv2d(20, 8, 1))


_IMAGE = (2, 16, 10, 9)
MODELS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "inverted": (lambda: Inverted(1), _IMAGE),
    "inverted_strided": (lambda: Inverted(2), _IMAGE),
    "excited": (Excited, _IMAGE),
    "ghost": (Ghost, (2, 24, 9, 7)),
    "shuffled": (Shuffled, _IMAGE),
    "convnext": (ConvNext, (2, 24, 9, 7)),
    "causal": (Causal, (2, 24, 21)),
    "narrow": (_narrow, (2, 3, 12, 12)),
    "multiplied": (Multiplied, (1, 12, 9, 8)),
}


# Parts of names that no kernel of TVM's has.
_NEVER_BY_TVM = {"ghost": "concat"}


def _made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    module, shape = MODELS[name]
    return module().eval(), torch.randn(shape)


def _judge(artifact: Artifact, x: Tensor, expected: Tensor, checking: Vgpu) -> None:
    """One depthwise kernel is launched, alone or with the 1x1 convolution after it; all checks
    pass, and the result is right.
    """
    checking.clear_launches()
    (info,) = artifact.metadata.inputs
    given = x.numpy().astype(info.dtype)
    (output,) = artifact.run({info.name: given}, device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    families = ("boltgen_depthwise_", "boltgen_separable_")
    assert sum(kernel.startswith(families) for kernel in kernels) == 1, kernels
    assert not any("conv" in kernel for kernel in kernels if "boltgen" not in kernel), kernels
    wanted = expected.detach().numpy()
    error = float(np.sqrt(np.mean(np.square(output.astype(np.float32) - wanted))))
    assert error <= fp16_tolerance(wanted, 4)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_pytorch(name: str, checking: Vgpu) -> None:
    module, x = _made(name)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    _judge(artifact, x, module(x), checking)
    of_tvm = [each.kernel for each in checking.launches() if "boltgen" not in each.kernel]
    assert name not in _NEVER_BY_TVM or _NEVER_BY_TVM[name] not in " ".join(of_tvm)


def test_the_mean_of_each_channel_is_a_result_of_the_kernel(checking: Vgpu) -> None:
    module, x = _made("excited")
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    _judge(artifact, x, module(x), checking)
    kernels = [launch.kernel for launch in checking.launches()]
    assert not any("sum" in kernel for kernel in kernels if "boltgen" not in kernel), kernels
    (label,) = (each.label for each in artifact.metadata.regions if "mean" in each.label)
    assert label.startswith("conv2d + add + ")


def test_one_library_is_for_several_batches(checking: Vgpu) -> None:
    module, x = _made("inverted")
    batch = torch.export.Dim("batch", min=1, max=8)
    artifact = boltgen.compile(module, (x,), dynamic_shapes=({0: batch},), arch="sm_80")
    for count in (1, 5):
        given = torch.randn(count, *x.shape[1:])
        _judge(artifact, given, module(given), checking)


@pytest.mark.parametrize("name", ["inverted", "convnext", "causal"])
def test_blocks_of_onnx(name: str, tmp_path: Path, checking: Vgpu) -> None:
    module, x = _made(name)
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False)
    path = tmp_path / "block.onnx"
    path.write_bytes(file.getvalue())
    artifact = boltgen.compile(path, arch="sm_80")
    _judge(artifact, x, module(x), checking)
