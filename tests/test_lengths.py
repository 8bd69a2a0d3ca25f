"""Models whose sequences have lengths of their own: attention skips the keys that are padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from models.open_transformers import TOKENS, Bert
from tests.test_end_to_end import fp16_tolerance

BATCH, LENGTH, WIDTH, HEADS = 3, 200, 64, 4
LENGTHS = ((200, 200, 200), (200, 40, 7), (33, 40, 64))


class OfLengths(nn.Module):
    """Self-attention of sequences of `lengths` tokens, which `attend` hides padding of."""

    def __init__(self, attend: Callable[..., Tensor], *, tokens_last: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attend, self.tokens_last = attend, tokens_last

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        place = torch.arange(length)[None]
        seen = place >= length - lengths[:, None] if self.tokens_last else place < lengths[:, None]
        heads = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = self.attend(*heads, seen[:, None, None, :])
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class OfModules(nn.Module):
    """`nn.MultiheadAttention`, whose padding mask is made of lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden = torch.arange(x.shape[1])[None] >= lengths[:, None]
        return x + self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]


def _boolean(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def _float(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    mask = torch.where(seen, 0.0, -torch.inf)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _chosen(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / 4.0
    return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) @ v


def _filled(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 4.0).masked_fill(~seen, -torch.inf).softmax(-1) @ v


MODULES: dict[str, Callable[[], nn.Module]] = {
    "boolean": lambda: OfLengths(_boolean),
    "boolean, padded before": lambda: OfLengths(_boolean, tokens_last=True),
    "float": lambda: OfLengths(_float),
    "chosen": lambda: OfLengths(_chosen),
    "filled": lambda: OfLengths(_filled),
    "multi-head": OfModules,
}


def _counted(
    artifact: Artifact, inputs: Sequence[Tensor], vgpu: Vgpu
) -> tuple[np.ndarray[Any, Any], int]:
    """The result, and the tensor cores' operations of all kernels of attention."""
    named = {each.name: x.numpy() for each, x in zip(artifact.metadata.inputs, inputs, strict=True)}
    vgpu.set_option("counters", "on")
    vgpu.clear_launches()
    try:
        (output,) = artifact.run(named, device="vgpu").values()
        counters = vgpu.counters()
    finally:
        vgpu.set_option("counters", "off")
    of_attention = [each for each in counters if "attention_" in each["kernel"]]
    assert of_attention
    return output, sum(each["mma_operations"] for each in of_attention)


def _judge(output: np.ndarray[Any, Any], expected: Tensor, layers: int) -> None:
    wide = expected.numpy()
    error = float(np.sqrt(np.mean(np.square(output - wide))))
    assert error <= fp16_tolerance(wide, layers)


@pytest.mark.parametrize("name", MODULES)
def test_padding_that_lengths_say_is_not_multiplied(name: str, checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = MODULES[name]().eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    artifact = boltgen.compile(module, (x, torch.tensor(LENGTHS[0])), arch="sm_80")
    counted = []
    for lengths in LENGTHS:
        inputs = x, torch.tensor(lengths)
        output, operations = _counted(artifact, inputs, checking)
        with torch.no_grad():
            _judge(output, module(*inputs), layers=4)
        counted.append(operations)
    assert [finding.message for finding in checking.findings()] == []
    # Steps of 128 keys: 3 * 2 of them, 2 + 1 + 1, and 1 + 1 + 1.
    whole, some, few = counted
    assert some <= whole * 4 // 6
    assert few <= whole * 3 // 6


def test_a_tokenizer_s_mask_of_any_batch_and_length(checking: Vgpu) -> None:
    """Hugging Face's BERT, whose numbers that hide are FP32's lowest; one library."""
    torch.manual_seed(0)
    module = Bert().eval()
    batch = torch.export.Dim("batch", min=1, max=4)
    length = torch.export.Dim("length", min=2, max=64)
    sizes = {0: batch, 1: length}
    given = _tokens((40, 11))
    artifact = boltgen.compile(
        module, given, arch="sm_80", dynamic_shapes={"ids": sizes, "attention_mask": sizes}
    )
    for lengths in ((64,), (64, 9, 30), (17, 17)):
        inputs = _tokens(lengths)
        output, operations = _counted(artifact, inputs, checking)
        with torch.no_grad():
            _judge(output, module(*inputs), layers=14)
        ids, _ = inputs
        _, whole = _counted(artifact, (ids, torch.ones_like(ids)), checking)
        assert operations <= whole  # one step has all of so few keys
    assert [finding.message for finding in checking.findings()] == []


def _tokens(lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Ids, and 1 for each token that is there."""
    place = torch.arange(max(lengths))[None]
    mask = (place < torch.tensor(lengths)[:, None]).to(torch.int64)
    return torch.randint(TOKENS, mask.shape), mask
