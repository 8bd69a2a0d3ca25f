"""A model of odd channel counts, for both frontends."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

SHAPE = (2, 3, 9, 11)  # NCHW, of its input


class Odd(nn.Module):
    """Residual, pool, join and division; no channel count that a vector divides."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 13, 3, padding=1)
        self.b = nn.Conv2d(13, 13, 3, padding=1)
        self.c = nn.Conv2d(13, 7, 1)
        self.d = nn.Linear(7, 5)
        self.e = nn.Conv2d(13, 9, 1)
        self.f = nn.Conv2d(9, 5, 1)
        nn.init.constant_(self.f.bias, 4.0)
        self.g = nn.Conv2d(19, 3, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.a(x))
        y = torch.relu(torch.sigmoid(self.b(y)) + y)
        z = torch.relu(self.c(y))
        u = torch.relu(self.e(functional.max_pool2d(y, 2)))
        v = 1.0 / self.f(u)  # of a padded channel's zero: no number to pad with
        return self.d(z.mean((2, 3))), self.b(y), self.g(torch.cat([v, u, v], 1))
