"""Masks as transformers makes them: of places, of packed sequences and of a tokenizer's padding.

A causal mask costs no launch and no load, padding is skipped, and a bias of places is one constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from tests.module_runs import Case, judged_case
from tests.test_end_to_end import fp16_tolerance

WIDTH, HEADS, LENGTH, TOKENS = 64, 4, 136, 50


class Attending(nn.Module):
    """Self-attention behind projections that are one product."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def attended(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        heads = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Decoder(Attending):
    """One that looks for packed sequences in its positions, and takes a tokenizer's mask.

    Source: transformers 5, masking_utils, whose masks are functions of four indices.
    """

    def __init__(self, window: int = 0) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        positions = (torch.arange(length) + 0)[None].expand(batch, length)
        starts = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1
        packed = starts.cumsum(-1)
        sequence = torch.arange(batch)[:, None, None, None]
        row = (torch.arange(length) + 0)[None, None, :, None]
        key = (torch.arange(length) + 0)[None, None, None, :]
        mask = positions[sequence, key] <= positions[sequence, row]
        if self.window:
            mask = mask & (positions[sequence, key] > positions[sequence, row] - self.window)
        mask = torch.tensor(True) & mask & (packed[sequence, row] == packed[sequence, key])
        mask = mask & kept.bool()[sequence, key]
        return x + self.attended(x, mask.expand(batch, 1, length, length))


class Encoder(Attending):
    """T5's: a bias of distances, where the tokenizer's mask shows a key. Source: Raffel et al."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(33, HEADS)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        length = x.shape[1]
        place = torch.arange(length)
        far = (place[None, :] - place[:, None]).clamp(-16, 16) + 16
        bias = self.bias(far).permute(2, 0, 1)[None]
        lowest = torch.finfo(x.dtype).min
        return x + self.attended(x, torch.where(kept.bool()[:, None, None, :], bias, lowest))


class OfOneKind(nn.Module):
    """Embeddings of BERT in transformers, where no types of tokens are given."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(TOKENS, WIDTH), nn.Embedding(2, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32)
        self.register_buffer("positions", torch.arange(LENGTH)[None], persistent=False)
        self.register_buffer("kinds", torch.zeros(1, LENGTH, dtype=torch.int64), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length = tokens.shape
        positions = self.positions[:, :length]
        kinds = torch.gather(self.kinds, 1, positions).expand(batch, length)
        total = self.words(tokens) + self.types(kinds) + self.places(positions)
        return self.out(self.norm(total))


def _given(lengths: Sequence[int], *, before: bool) -> tuple[Tensor, Tensor]:
    """Tokens, and 1 for each that is no padding, which is before them or behind."""
    most = max(lengths)
    place = torch.arange(most)[None]
    own = torch.tensor(lengths)[:, None]
    kept = place >= most - own if before else place < own
    return torch.randn(len(lengths), most, WIDTH), kept.to(torch.int64)


def _run(artifact: Artifact, given: Sequence[Tensor], vgpu: Vgpu) -> tuple[Any, int, list[str]]:
    """The result, the operations of attention's tensor cores, and TVM's kernels."""
    named = {each.name: x.numpy() for each, x in zip(artifact.metadata.inputs, given, strict=True)}
    vgpu.set_option("counters", "on")
    vgpu.clear_launches()
    try:
        (output,) = artifact.run(named, device="vgpu").values()
        counters = vgpu.counters()
        kept = [each.kernel for each in vgpu.launches() if "boltgen" not in each.kernel]
    finally:
        vgpu.set_option("counters", "off")
    (count,) = {each["mma_operations"] for each in counters if "attention_" in each["kernel"]}
    return output, count, kept


def _judge(artifact: Artifact, module: nn.Module, given: tuple[Tensor, ...], vgpu: Vgpu) -> int:
    """The library agrees with the module; the operations of attention."""
    output, operations, _ = _run(artifact, given, vgpu)
    with torch.no_grad():
        expected = module(*given).numpy()
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, 4)
    return operations


def _prologues(artifact: Artifact) -> set[str]:
    trials = [trial for each in artifact.metadata.kernels for trial in each.trials]
    layers = [layer for each in trials for layer in each.workload.layers]
    return {
        layer.prologue.describe()
        for layer in layers
        if layer.prologue is not None and "softmax" in layer.prologue.describe()
    }


@pytest.mark.parametrize("window", [0, 40], ids=["causal", "window"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_padding_of_causal_rows_is_skipped(*, is_open: bool, window: int, checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Decoder(window).eval()
    given = _given((LENGTH, 20, 77), before=True)
    sizes = {
        0: torch.export.Dim("batch", min=1, max=4),
        1: torch.export.Dim("length", min=2, max=LENGTH),
    }
    shapes = {"x": sizes, "kept": sizes} if is_open else None
    artifact = boltgen.compile(module, given, arch="sm_80", dynamic_shapes=shapes)
    expected = f"causal softmax of {window}(acc)" if window else "causal softmax(acc)"
    assert _prologues(artifact) == {expected}
    of_some = _judge(artifact, module, given, checking)
    of_all = _judge(artifact, module, (given[0], torch.ones_like(given[1])), checking)
    # A window of 40 keys is within one or two steps of any row.
    assert of_some <= of_all if window else of_some < of_all
    if is_open:
        for lengths, before in (((17,), True), ((40, 3), False), ((9, 64, 64, 33), True)):
            _judge(artifact, module, _given(lengths, before=before), checking)
    assert [finding.message for finding in checking.findings()] == []


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_padding_beside_a_bias_of_places_is_skipped(*, is_open: bool, checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Encoder().eval()
    given = _given((LENGTH, 20, 77), before=False)
    sizes = {
        0: torch.export.Dim("batch", min=1, max=4),
        1: torch.export.Dim("length", min=2, max=LENGTH),
    }
    shapes = {"x": sizes, "kept": sizes} if is_open else None
    artifact = boltgen.compile(module, given, arch="sm_80", dynamic_shapes=shapes)
    of_some = _judge(artifact, module, given, checking)
    whole = given[0], torch.ones_like(given[1])
    assert of_some < _judge(artifact, module, whole, checking)
    # TVM casts the tokens, makes truths of the mask, and numbers of these.
    assert len(_run(artifact, given, checking)[2]) <= 3
    assert [finding.message for finding in checking.findings()] == []


def test_tokens_of_one_kind_cost_no_launch(checking: Vgpu) -> None:
    case = Case(OfOneKind, lambda batch: (torch.randint(TOKENS, (batch, 40)),), 2, 0, 4)
    judged_case(case, 3, checking)
