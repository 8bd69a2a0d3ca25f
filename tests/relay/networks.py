"""A small PyTorch network with what convolutional models have, and its Relay module."""

from __future__ import annotations

import torch
from torch import nn
from tvm import IRModule, relay

SHAPE = (2, 8, 16, 16)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.body = nn.Conv2d(16, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.head = nn.Linear(16, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.hardswish(self.body(x) + x)
        x = nn.functional.max_pool2d(x, 2)
        x = torch.relu(self.depthwise(x))
        return torch.sigmoid(self.head(x.mean((2, 3))))


def network() -> tuple[Network, torch.Tensor]:
    """The network in inference mode, its norm's statistics not trivial, and an input."""
    torch.manual_seed(0)
    made = Network().eval()
    with torch.no_grad():
        for statistic in (made.norm.running_mean, made.norm.weight, made.norm.bias):
            statistic.normal_(0.5, 0.5)
        made.norm.running_var.uniform_(0.5, 2.0)
    return made, torch.randn(SHAPE)


def imported() -> tuple[IRModule, dict[str, object], torch.Tensor, torch.Tensor]:
    """The Relay module, its parameters, an input, and PyTorch's output for it."""
    made, x = network()
    with torch.no_grad():
        expected = made(x)
    module, params = relay.frontend.from_pytorch(torch.jit.trace(made, x), [("x", SHAPE)])
    return module, params, x, expected
