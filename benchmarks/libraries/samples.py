"""The samples on which a library's model is tried: its module, its inputs, and which of its tokens
are real.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

BATCH = 2
LENGTH = 24
VOCABULARY = 96
_FIRST_WORD = 3  # lower ones are padding, begin and end


@dataclass(frozen=True, slots=True)
class Sample:
    """A module in eval mode, the tensors that it is called with, and what of its output counts.

    `real` is (batch, length) and true where the output's token is none of the padding's; None where
    all of the output counts.
    """

    module: Any
    inputs: tuple[Any, ...]
    real: Any = None


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """A model's name here, the library that has it, and what builds it, small, with an input.

    `build_real` builds it at the sizes of its users: times are predicted there, nothing is run.
    """

    name: str
    library: str
    build: Callable[[], Sample]
    build_real: Callable[[], Sample] | None = None


class Called(torch.nn.Module):
    """A model that is called by keywords, and whose first output is the only one."""

    def __init__(
        self, model: Any, keywords: tuple[str, ...], *, method: str = "forward", **constants: Any
    ) -> None:
        super().__init__()
        self.model = model
        self._keywords = keywords
        self._method = method
        self._constants = constants

    def forward(self, *tensors: Any) -> Any:
        """The first output of the model's method for `tensors`, by their keywords."""
        given = dict(zip(self._keywords, tensors, strict=True))
        return getattr(self.model, self._method)(**given, **self._constants)[0]


def of_transformers(family: str, settings: Mapping[str, Any], part: str = "Model") -> Any:
    """A model of transformers, by what the names of its class and of its config begin with."""
    library = importlib.import_module("transformers")
    config = getattr(library, f"{family}Config")(**settings)
    return getattr(library, f"{family}{part}")(config).eval()


def words(length: int = LENGTH) -> Any:
    """Random tokens: (batch, length), of the vocabulary."""
    return torch.randint(_FIRST_WORD, VOCABULARY, (BATCH, length))


def image(side: int, channels: int = 3) -> Any:
    """Random numbers: (batch, channels, side, side)."""
    return torch.randn(BATCH, channels, side, side)


def attention_mask(*real: tuple[int, int]) -> Any:
    """A mask (batch, length) of ones, for each sequence from its first real token to its last."""
    places = torch.arange(LENGTH)
    return torch.stack([(first <= places) & (places < end) for first, end in real]).long()


def padded_on_the_left() -> Any:
    """The mask with which a decoder reads a batch of prompts: the second has 15 tokens."""
    return attention_mask((0, LENGTH), (9, LENGTH))


def padded_at_either_end() -> Any:
    """A mask that hides tokens at the beginning of one sequence, and at the end of the other."""
    return attention_mask((5, LENGTH), (0, 15))
