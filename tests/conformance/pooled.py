"""A network whose products' results are summed: the pixels of an image, the columns of a row."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

SHAPE = (3, 8, 11, 9)
WIDTH = 48


class Pooled(nn.Module):
    """Convolutions, the mean over their pixels, a layer on that, and the sums of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(SHAPE[1], 32, 3, padding=1)
        self.second = nn.Conv2d(32, 64, 3, stride=2)
        self.last = nn.Linear(64, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.second(torch.relu(self.first(x))))
        z = torch.relu(self.last(y.mean((2, 3))))
        return z, z.sum(-1)


def sample(seed: int) -> torch.Tensor:
    """An input of `Pooled`."""
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def network() -> Pooled:
    """The network with weights that are always the same."""
    torch.manual_seed(0)
    return Pooled().eval()


def assert_right(found: list[np.ndarray], net: Pooled, x: torch.Tensor) -> None:
    """The results agree with the network in FP32, but for roundings to FP16."""
    with torch.no_grad():
        wanted = [each.numpy() for each in net(x)]
    # Four layers of values up to about 2, each rounded to FP16; so is each of the summed columns.
    each = 4 * 2 * 2.0**-11
    np.testing.assert_allclose(found[0], wanted[0], rtol=0, atol=each)
    np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=WIDTH * each)
    assert np.abs(wanted[0]).max() < 2
    assert wanted[1].min() > WIDTH * each, "zeros would be wrong"
