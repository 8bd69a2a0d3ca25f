"""Attention as PyTorch's modules and other people's models spell it: one kernel, nothing moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from tests.module_runs import judged

BATCH, LENGTH, WIDTH, HEADS, HEAD = 2, 24, 64, 4, 16


class Rows(nn.Module):
    """Self-attention of rows, whose heads `attend` has by its own spelling."""

    def __init__(self, attend: Callable[[Any, Tensor], Tensor], columns: int = 3 * WIDTH) -> None:
        super().__init__()
        self.attend = attend
        self.qkv = nn.Linear(WIDTH, columns)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.RMSNorm(HEAD) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.attend(self, self.qkv(x)))


def _split(_: Any, qkv: Tensor) -> Tensor:
    """GPT-2's: a split, and a mask that the module makes."""
    q, k, v = (
        part.view(BATCH, LENGTH, HEADS, HEAD).transpose(1, 2) for part in qkv.split(WIDTH, dim=2)
    )
    scores = q @ k.transpose(-1, -2) / HEAD**0.5
    seen = torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool))[None, None]
    scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
    return (functional.softmax(scores, -1) @ v).permute(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH)


def _einsum(_: Any, qkv: Tensor) -> Tensor:
    q, k, v = (part.view(BATCH, LENGTH, HEADS, HEAD) for part in qkv.chunk(3, -1))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / HEAD**0.5
    made = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    return made.reshape(BATCH, LENGTH, WIDTH)


def _spelled_softmax(_: Any, qkv: Tensor) -> Tensor:
    q, k, v = qkv.view(BATCH, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) * HEAD**-0.5
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    made = powers / powers.sum(-1, keepdim=True) @ v
    return made.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


def _interleaved(_: Any, qkv: Tensor) -> Tensor:
    """GPT-NeoX's: the three of a head are side by side."""
    q, k, v = qkv.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2).chunk(3, dim=-1)
    made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return made.transpose(1, 2).contiguous().view(BATCH, LENGTH, WIDTH)


def _chosen(_: Any, qkv: Tensor) -> Tensor:
    """Keys and values are elements of an axis within the rows, for two heads each."""
    q, kv = qkv.split((WIDTH, WIDTH), dim=-1)
    heads = q.view(BATCH, LENGTH, HEADS, HEAD).transpose(1, 2)
    pairs = kv.view(BATCH, LENGTH, HEADS // 2, 2, HEAD)
    k, v = pairs[:, :, :, 0].transpose(1, 2), pairs[:, :, :, 1].transpose(1, 2)
    made = functional.scaled_dot_product_attention(heads, k, v, enable_gqa=True)
    return made.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


def _normed(module: Any, qkv: Tensor) -> Tensor:
    q, k, v = (part.view(BATCH, LENGTH, HEADS, HEAD) for part in qkv.chunk(3, -1))
    q, k = (norm(part) for norm, part in zip(module.norms, (q, k), strict=True))
    made = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)))
    return made.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


class OfImages(nn.Module):
    """An autoencoder's attention of pixels, whose projections are convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(3))
        self.out = nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).flatten(2) for each in self.qkv)
        weights = (torch.bmm(q.permute(0, 2, 1), k) * WIDTH**-0.5).softmax(2)
        return x + self.out(torch.bmm(v, weights.permute(0, 2, 1)).view(x.shape))


class Residual(nn.Module):
    """`nn.MultiheadAttention`, to which its input is added."""

    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


@dataclass(frozen=True)
class Case:
    """A module on tensors of these shapes: TVM's kernels, attention's, and layers in a row."""

    module: Callable[[], nn.Module]
    kept: int
    shapes: tuple[tuple[int, ...], ...] = ((BATCH, LENGTH, WIDTH),)
    attentions: int = 1
    layers: int = 4


CASES = {
    # The cast of the input is TVM's, but where its first reader casts it.
    "split": Case(lambda: Rows(_split), 1),
    "einsum": Case(lambda: Rows(_einsum), 1),
    "spelled softmax": Case(lambda: Rows(_spelled_softmax), 1),
    "interleaved": Case(lambda: Rows(_interleaved), 1),
    "chosen": Case(lambda: Rows(_chosen, 2 * WIDTH), 1),
    # And the columns that each norm reads.
    "normed": Case(lambda: Rows(_normed), 3, layers=6),
    "multi-head": Case(Residual, 0),
    "sequences first": Case(
        lambda: Residual(batch_first=False), 1, shapes=((LENGTH, BATCH, WIDTH),)
    ),
    "encoder": Case(
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True),
        0,
        layers=8,
    ),
    "decoder": Case(
        lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True),
        0,
        shapes=((BATCH, LENGTH, WIDTH), (BATCH, 17, WIDTH)),
        attentions=2,
        layers=12,
    ),
    "images": Case(OfImages, 2, shapes=((BATCH, WIDTH, 8, 8),), layers=5),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_kernel_and_moves_nothing(name: str, checking: Vgpu) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    module, given = case.module().eval(), tuple(torch.randn(shape) for shape in case.shapes)
    artifact = boltgen.compile(module, given, arch="sm_80")
    _judge(artifact, module, given, case, checking)


class Masked(nn.Module):
    """Attention with a boolean mask, whose weights PyTorch's exporter guards against NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(BATCH, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return made.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


class Hidden(nn.Module):
    """A layer of a transformer, in which keys that `hidden` is true of are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=hidden)


def _seen() -> Tensor:
    """A mask whose second sequence has a row without keys, and few of the others'."""
    seen = torch.rand(BATCH, 1, LENGTH, LENGTH) < 0.7
    seen[1, :, 3] = False
    return seen


def _hidden() -> Tensor:
    return torch.arange(LENGTH)[None] >= torch.tensor([[LENGTH], [LENGTH - 7]])


# Besides the cast of the input, the numbers that are added, and which rows have keys.
EXPORTED = {
    "boolean mask": (Case(Masked, 3), _seen),
    "padding": (Case(Hidden, 2, layers=8), _hidden),
    "einsum": (Case(lambda: Rows(_einsum), 0), None),
    "spelled softmax": (Case(lambda: Rows(_spelled_softmax), 0), None),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:ONNX Preprocess:UserWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", EXPORTED)
def test_attention_as_pytorch_exports_it_to_onnx(name: str, checking: Vgpu, tmp_path: Path) -> None:
    torch.manual_seed(0)
    case, mask = EXPORTED[name]
    module = case.module().eval()
    given = (*(torch.randn(shape) for shape in case.shapes), *((mask(),) if mask else ()))
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, given, str(path), dynamo=False, opset_version=17)
    artifact = boltgen.compile(path, arch="sm_80")
    _judge(artifact, module, given, case, checking)


def _judge(
    artifact: Artifact, module: nn.Module, given: tuple[Tensor, ...], case: Case, checking: Vgpu
) -> None:
    """The artifact computes what the module does, in as many kernels as the case says."""
    kernels = judged(artifact, module, given, case.layers, checking)
    attentions = sum("_attention_" in kernel for kernel in kernels)
    assert (attentions, sum("boltgen" not in kernel for kernel in kernels)) == (
        case.attentions,
        case.kept,
    ), kernels
