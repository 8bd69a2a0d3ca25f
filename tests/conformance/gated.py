"""Models with gates that one kernel can compute, for both frontends."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, FEED = 48, 72


class SwiGlu(nn.Module):
    """Two dense layers with biases, as of PaLM, and the one behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, FEED), nn.Linear(WIDTH, FEED)
        self.down = nn.Linear(FEED, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class GeGlu(nn.Module):
    """One dense layer whose halves are multiplied, as of diffusers, and the one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.down = nn.Linear(WIDTH, 2 * FEED), nn.Linear(FEED, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden, gate = self.proj(x).chunk(2, dim=-1)
        return self.down(hidden * functional.gelu(gate))


MODELS = (SwiGlu, GeGlu)


def network(made: type[nn.Module]) -> nn.Module:
    """A model with the same weights each time."""
    torch.manual_seed(0)
    return made().eval()


def assert_right(found: np.ndarray, net: nn.Module, x: Tensor) -> None:
    """The result is the model's in FP32, but for what three products round: their operands and
    their results, half a unit each, in quadrature.
    """
    with torch.no_grad():
        wanted = net(x).numpy()
    error, size = (float(np.sqrt(np.mean(np.square(each)))) for each in (found - wanted, wanted))
    assert error <= 2.0**-11 * np.sqrt(3 * 3) * size
