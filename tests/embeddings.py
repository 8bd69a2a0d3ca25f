"""What comes before a transformer's first layer: rows of tables, by the numbers of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TOKENS, WIDTH, LENGTH = 50, 64, 7
Array = np.ndarray[Any, Any]


class Decoder(nn.Module):
    """As of a Llama: tokens, an RMS norm of them, and what is added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(TOKENS, WIDTH), nn.RMSNorm(WIDTH, eps=1e-6)
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        return x + self.dense(self.norm(x))


class Places(nn.Module):
    """As of a GPT-2: tokens and their places, and a layer norm of the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(3 * LENGTH, WIDTH)
        self.norm, self.dense = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(places)
        return x + self.dense(self.norm(x))


MODELS: Mapping[str, type[nn.Module]] = {"decoder": Decoder, "places": Places}


def model(name: str) -> nn.Module:
    """One of the models, with weights that are FP16 numbers."""
    torch.manual_seed(0)
    made = MODELS[name]()
    for each in made.parameters():
        each.data = each.data.half().float()
    return made.eval()


def tokens(name: str, batch: int) -> list[Tensor]:
    """The inputs of a model."""
    made = torch.Generator().manual_seed(batch)
    ids = torch.randint(0, TOKENS, (batch, LENGTH), generator=made)
    places = (torch.arange(LENGTH) + batch).expand(batch, LENGTH).contiguous()
    return [ids, places][: 1 + (name == "places")]


def exported(name: str) -> Any:
    """The program of a model, whose batch is open."""
    batch = torch.export.Dim("batch", min=1, max=8)
    given = tuple(tokens(name, 2))
    return torch.export.export(model(name), given, dynamic_shapes=tuple({0: batch} for _ in given))


def expected(name: str, given: list[Tensor]) -> Array:
    """The result in FP64."""
    with torch.no_grad():
        return model(name).double()(*given).numpy()
