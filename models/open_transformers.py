"""Transformers whose batch and sequence are open, in the spellings of Hugging Face's library.

In each inference they compute the tensors that depend only on a sequence's length: positions cut
from a table, rotations, and masks. Weights are PyTorch's own random ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, HEAD, TOKENS, PLACES = 64, 4, 2, 16, 40, 64


class BertLayer(nn.Module):
    """Attention and two dense layers, a norm after each."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            projection(x).view(batch, length, HEADS, HEAD).permute(0, 2, 1, 3)
            for projection in (self.query, self.key, self.value)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HEAD) + hidden
        mixed = torch.matmul(functional.softmax(scores, dim=-1), v)
        mixed = mixed.permute(0, 2, 1, 3).contiguous().view(batch, length, WIDTH)
        x = self.norms[0](self.dense(mixed) + x)
        return self.norms[1](self.down(functional.gelu(self.up(x))) + x)


class Bert(nn.Module):
    """ids and attention_mask: (B, S) of int64, to (B, S, WIDTH). Source: Devlin et al., 2019.

    Places are a buffer, of which each inference cuts the first S.
    """

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.register_buffer("places", torch.arange(PLACES)[None])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer() for _ in range(layers))

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(self.places[:, : ids.shape[1]])
        hidden = 1.0 - attention_mask[:, None, None, :].float()
        hidden = hidden * torch.finfo(torch.float32).min
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, hidden)
        return x


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    low, high = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


def _repeated(x: Tensor) -> Tensor:
    """(B, GROUPS, S, D) as (B, HEADS, S, D)."""
    batch, groups, length, head = x.shape
    x = x[:, :, None].expand(batch, groups, HEADS // groups, length, head)
    return x.reshape(batch, HEADS, length, head)


class LlamaLayer(nn.Module):
    """Rotary positions, two queries for each head of keys and values, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        y = self.norms[0](x)
        q, k, v = (
            projection(y).view(batch, length, heads, HEAD).transpose(1, 2)
            for projection, heads in ((self.q, HEADS), (self.k, GROUPS), (self.v, GROUPS))
        )
        q, k = _rotated(q, cosine, sine), _rotated(k, cosine, sine)
        k, v = _repeated(k), _repeated(v)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(HEAD) + mask
        weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.o(mixed)
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """ids: (B, S) of int64, to (B, S, WIDTH). Rotations and the causal mask are made of S."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(TOKENS, WIDTH), nn.RMSNorm(WIDTH, eps=1e-6)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(layers))
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(0, HEAD, 2) / HEAD))

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        places = torch.arange(length)[None, None, :].float()
        angles = (self.frequencies[None, :, None].float() @ places).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)
        cosine, sine = both.cos()[:, None], both.sin()[:, None]
        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        mask = mask[None, None].expand(batch, 1, -1, -1)
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cosine, sine, mask)
        return self.norm(x)


class LlamaStep(nn.Module):
    """A step of decoding, of one layer, whose keys and values so far are given and returned.

    x: (B, 1, WIDTH), an embedded token; position: (B, 1) of int64, its place; keys and values:
    (B, GROUPS, before, HEAD). Returns the layer's result and the longer cache.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = LlamaLayer()
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(0, HEAD, 2) / HEAD))

    def forward(
        self, x: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        layer, (batch, length, _) = self.layer, x.shape
        angles = position[:, :, None].float() * self.frequencies
        both = torch.cat((angles, angles), dim=-1)[:, None]
        y = layer.norms[0](x)
        q, k, v = (
            projection(y).view(batch, length, heads, HEAD).transpose(1, 2)
            for projection, heads in ((layer.q, HEADS), (layer.k, GROUPS), (layer.v, GROUPS))
        )
        q, k = (_rotated(each, both.cos(), both.sin()) for each in (q, k))
        keys, values = torch.cat((keys, k), dim=2), torch.cat((values, v), dim=2)
        mixed = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        mixed = mixed.transpose(1, 2)
        x = x + layer.o(mixed.reshape(batch, length, -1))
        y = layer.norms[1](x)
        return x + layer.down(functional.silu(layer.gate(y)) * layer.up(y)), keys, values
