"""A model of odd channel counts, for both frontends."""

from __future__ import annotations

import torch
from torch import nn

SHAPE = (2, 3, 9, 11)  # NCHW, of its input


class Odd(nn.Module):
    """Two results, residuals, and no channel count that a vector divides."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 13, 3, padding=1)
        self.b = nn.Conv2d(13, 13, 3, padding=1)
        self.c = nn.Conv2d(13, 7, 1)
        self.d = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.a(x))
        y = torch.relu(torch.sigmoid(self.b(y)) + y)
        z = torch.relu(self.c(y))
        return self.d(z.mean((2, 3))), self.b(y)
