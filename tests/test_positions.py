"""Models that tell tokens and patches where they are: one table for all sequences of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.ir.elementwise import LoadKind
from boltgen.running.artifact import Artifact
from tests.module_runs import Case, judged, judged_case

LENGTH, WIDTH, TOKENS = 40, 64, 50


class Patches(nn.Module):
    """Patches of an image with their places, normed and multiplied, as a ViT without a class has
    them. Source: Beyer et al., Better plain ViT baselines for ImageNet-1k, 2022.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.places = nn.Parameter(torch.randn(1, 30, WIDTH) / 4)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.out(self.norm(x))


class Tokens(nn.Module):
    """Embedded tokens with learned positions, as GPT-2 has them, and the residual behind the norm.

    Source: Radford et al., 2019.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(64, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return x + self.narrow(functional.gelu(self.wide(self.norm(x))))


class Typed(nn.Module):
    """Embedded words, types and places, normed. Source: Devlin et al., BERT, 2019."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(TOKENS, WIDTH), nn.Embedding(2, WIDTH)
        self.places = nn.Embedding(64, WIDTH)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32)

    def forward(self, tokens: Tensor, types: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])[None]
        x = self.words(tokens) + self.types(types) + self.places(places)
        return self.out(self.norm(x))


class Projected(nn.Module):
    """Frames that are projected, told their places, and scaled for each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, WIDTH), nn.Linear(WIDTH, 16)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / 4)

    def forward(self, frames: Tensor, gates: Tensor) -> Tensor:
        x = functional.gelu(self.first(frames)) + self.places[: frames.shape[1]]
        return self.last(x * gates[:, None])


def _frames(batch: int, length: int = LENGTH) -> tuple[Tensor, ...]:
    return torch.randn(batch, length, 24), torch.randn(batch, WIDTH)


def _words(batch: int) -> Tensor:
    return torch.randint(TOKENS, (batch, LENGTH))


CASES = {
    # The images become NHWC in a move.
    "patches": Case(Patches, lambda batch: (torch.randn(batch, 3, 24, 20),), 4, 0, 4),
    "tokens": Case(Tokens, lambda batch: (_words(batch),), 3, 0, 4),
    # TVM casts the types, and takes their rows.
    "typed": Case(Typed, lambda batch: (_words(batch), torch.randint(2, (batch, LENGTH))), 2, 2, 4),
    # TVM casts the frames.
    "projected": Case(Projected, _frames, 1, 1, 4),
}


def _kinds(artifact: Artifact) -> set[LoadKind]:
    trials = [trial for each in artifact.metadata.kernels for trial in each.trials]
    layers = [layer for each in trials for layer in each.workload.layers]
    return {load.kind for layer in layers for load in layer.loads}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_positions_cost_no_launch(name: str, batch: int, checking: Vgpu) -> None:
    artifact = judged_case(CASES[name], batch, checking)
    assert (LoadKind.POSITION_ROW in _kinds(artifact)) == (batch > 1)


def test_positions_of_several_batches_and_lengths(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Projected().eval()
    batch = torch.export.Dim("batch", min=1, max=6)
    length = torch.export.Dim("length", min=1, max=LENGTH)
    open_sizes = {"frames": {0: batch, 1: length}, "gates": {0: batch}}
    artifact = boltgen.compile(module, _frames(5), arch="sm_80", dynamic_shapes=open_sizes)
    for size, frames in ((1, 1), (3, LENGTH), (6, 17), (2, 7)):
        judged(artifact, module, _frames(size, frames), 4, checking)
    assert LoadKind.POSITION_ROW in _kinds(artifact)


def test_positions_on_hopper(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Projected().eval()
    artifact = boltgen.compile(module, _frames(3), arch="sm_90a")
    judged(artifact, module, _frames(3), 4, checking)
    assert LoadKind.POSITION_ROW in _kinds(artifact)
