"""The digits network in training form (torch), and its re-parameterisation to deploy form.

Each 3x3 convolution is trained as the sum of a 3x3, a 1x1 and an identity branch, each with its own
batch norm, and then folded into one convolution. Source: Ding et al., RepVGG, section 3.3.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.digits.network import CLASSES, HEAD_FEATURES, STAGES, Stage
from models.parameters import FloatArray


class NormalisedConv(nn.Module):
    """A convolution without bias, and its batch norm."""

    def __init__(self, in_channels: int, channels: int, *, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, channels, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))  # type: ignore[no-any-return]

    def folded(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias of the one convolution that computes the same."""
        return _fold(self.conv.weight, self.norm)


class RepConv(nn.Module):
    """The sum of a 3x3 branch, a 1x1 branch and, where shapes allow, an identity branch."""

    def __init__(self, in_channels: int, channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.spatial = NormalisedConv(in_channels, channels, kernel=3, stride=stride)
        self.pointwise = NormalisedConv(in_channels, channels, kernel=1, stride=stride)
        has_identity = in_channels == channels and stride == 1
        self.identity = nn.BatchNorm2d(channels) if has_identity else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.spatial(x) + self.pointwise(x)
        return y if self.identity is None else y + self.identity(x)

    def folded(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias of the one 3x3 convolution that computes the same."""
        weight, bias = self.spatial.folded()
        branches = [self.pointwise.folded()]
        if self.identity is not None:
            channels = self.identity.num_features
            unit = torch.eye(channels, dtype=weight.dtype).reshape(channels, channels, 1, 1)
            branches.append(_fold(unit, self.identity))
        for branch_weight, branch_bias in branches:
            weight = weight + functional.pad(branch_weight, (1, 1, 1, 1))
            bias = bias + branch_bias
        return weight, bias


class StageModule(nn.Module):
    """One stage; its parts have the names of the deploy graph."""

    def __init__(self, in_channels: int, stage: Stage) -> None:
        super().__init__()
        self.entry = RepConv(in_channels, stage.width, stride=stage.stride)
        self.mix = NormalisedConv(stage.width, stage.width, kernel=1)
        self.residual = RepConv(stage.width, stage.width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.hardswish(self.mix(functional.relu(self.entry(x))))
        return functional.relu(self.residual(x) + x)


class DigitsNetwork(nn.Module):
    """The training form of `models.digits.network`."""

    def __init__(self) -> None:
        super().__init__()
        in_channels = (1, *(stage.width for stage in STAGES[:-1]))
        self.stages = nn.Sequential(*map(StageModule, in_channels, STAGES))
        self.head = nn.ModuleDict(
            {
                "hidden": nn.Linear(STAGES[-1].width, HEAD_FEATURES),
                "logits": nn.Linear(HEAD_FEATURES, CLASSES),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(x).mean(dim=(2, 3))
        return self.head["logits"](functional.relu(self.head["hidden"](x)))  # type: ignore[no-any-return]


def reparameterised(network: DigitsNetwork) -> dict[str, FloatArray]:
    """The tensors of the deploy form, by the names that the deploy graph gives them."""
    # Folded in float64, so that the only rounding is the last one.
    exact = DigitsNetwork().double()
    exact.load_state_dict(network.state_dict())
    tensors: dict[str, Tensor] = {}
    for name, module in exact.named_modules():
        if isinstance(module, RepConv) or (
            isinstance(module, NormalisedConv) and name.endswith(".mix")
        ):
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = module.folded()
        elif isinstance(module, nn.Linear):
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = module.weight, module.bias
    return {name: tensor.detach().numpy().astype(np.float32) for name, tensor in tensors.items()}


def _fold(weight: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return weight * scale.reshape(-1, 1, 1, 1), norm.bias - norm.running_mean * scale
