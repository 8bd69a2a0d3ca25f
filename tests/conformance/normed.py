"""Models whose norms the products around them can compute, for both frontends."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

NARROW = 64
# Rows of so many wide columns that a norm's own kernel takes longer than what replaces it: moments
# to which threadblocks add in memory that is cleared before, and moments in twelve parts.
SIZES = ((1024, 2048), (128, 768))


class PostNorm(nn.Module):
    """Norms behind residual sums, as in BERT: the normed rows are multiplied, and added again."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(NARROW, wide), nn.Linear(wide, NARROW)
        self.again, self.head = nn.Linear(NARROW, wide), nn.Linear(wide, NARROW)
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide, eps=1e-3)
        for norm in (self.first, self.second):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.first(self.widen(x) + 0.5)
        y = self.again(functional.gelu(self.narrow(normed)))
        return self.head(self.second(y + normed))


class RmsNorm(nn.Module):
    """As models spell it out."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(wide).uniform_(0.5, 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class PreNorm(nn.Module):
    """Norms before products, as in a decoder: what is not normed goes on past them."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.widen, self.up = nn.Linear(NARROW, wide), nn.Linear(wide, NARROW, bias=False)
        self.down, self.head = nn.Linear(NARROW, wide), nn.Linear(wide, NARROW)
        self.first, self.second = RmsNorm(wide), RmsNorm(wide)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.widen(x)
        hidden = hidden + self.down(functional.silu(self.up(self.first(hidden))))
        return self.head(self.second(hidden))


def network(made: type[PostNorm | PreNorm], wide: int) -> nn.Module:
    """A model with the same weights each time."""
    torch.manual_seed(0)
    return made(wide).eval()


def assert_right(found: np.ndarray, net: nn.Module, x: Tensor) -> None:
    """The result is the model's, but for what four products and two norms round: their operands and
    their results, half a unit each, in quadrature.
    """
    with torch.no_grad():
        wanted = net(x).numpy()
    error, size = (float(np.sqrt(np.mean(np.square(each)))) for each in (found - wanted, wanted))
    assert error <= 2.0**-11 * np.sqrt(2 * 6) * size
