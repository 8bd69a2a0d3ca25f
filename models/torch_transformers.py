"""Small transformers in PyTorch, whole in their structure, in the spellings of usual libraries.

A vision transformer, Whisper and T5: what an exporter sees is what their authors' code gives it.
Weights are PyTorch's own random ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def _split(x: Tensor, heads: int) -> Tensor:
    """(B, S, H D) as (B, H, S, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """(B, H, S, D) as (B, S, H D)."""
    return x.transpose(1, 2).flatten(2)


class VitBlock(nn.Module):
    """A layer of a vision transformer: norms before attention and before the two dense layers.

    Query, key and value are one product whose columns are three times the heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    """images: (B, 3, S, S) to classes: (B, 10). Source: Dosovitskiy et al., 2021, section 3.1."""

    def __init__(
        self, *, size: int = 32, patch: int = 8, width: int = 64, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(VitBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class WhisperAttention(nn.Module):
    """Attention whose keys have no bias, and whose queries are scaled. Source: OpenAI's Whisper."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of x: (B, H, S, D) each."""
        return _split(self.key(x), self.heads), _split(self.value(x), self.heads)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        q = _split(self.query(x), self.heads)
        scale = q.shape[-1] ** -0.25
        scores = (q * scale) @ (keys * scale).transpose(-1, -2)
        if mask is not None:
            scores = scores + mask
        weights = functional.softmax(scores.float(), dim=-1).to(q.dtype)
        return self.out(_joined(weights @ values))


class WhisperBlock(nn.Module):
    """A layer of Whisper's encoder or, with `cross`, of its decoder."""

    def __init__(self, width: int, heads: int, *, cross: bool = False) -> None:
        super().__init__()
        self.attn, self.attn_ln = WhisperAttention(width, heads), nn.LayerNorm(width)
        if cross:
            self.cross, self.cross_ln = WhisperAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.mlp_ln = nn.LayerNorm(width)

    def rest(self, x: Tensor) -> Tensor:
        """The two dense layers."""
        return x + self.mlp(self.mlp_ln(x))


class WhisperEncoder(nn.Module):
    """mel: (B, 16, frames) to (B, frames / 2, width). Two 1-D convolutions in front."""

    def __init__(
        self, *, mels: int = 16, frames: int = 60, width: int = 64, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(frames // 2, width))
        self.blocks = nn.ModuleList(WhisperBlock(width, heads) for _ in range(layers))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mel)))).permute(0, 2, 1)
        x = x + self.positions
        for block in self.blocks:
            y = block.attn_ln(x)
            x = x + block.attn(y, *block.attn.keys(y), None)
            x = block.rest(x)
        return self.ln_post(x)


class WhisperStep(nn.Module):
    """A step of Whisper's decoder, of one layer: tokens after the ones whose keys are given.

    x: (B, new, width), positions of new tokens added; keys and values: (B, H, before, D), of this
    layer so far; audio: (B, S, width), the encoder's result. Returns logits and the longer cache.
    """

    def __init__(self, *, width: int = 64, heads: int = 4, tokens: int = 40) -> None:
        super().__init__()
        self.block = WhisperBlock(width, heads, cross=True)
        self.ln = nn.LayerNorm(width)
        self.tokens = nn.Parameter(torch.randn(tokens, width) * width**-0.5)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, audio: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = self.block.attn_ln(x)
        new_keys, new_values = self.block.attn.keys(y)
        keys, values = torch.cat((keys, new_keys), 2), torch.cat((values, new_values), 2)
        # Later tokens are hidden from earlier ones.
        new, all_ = x.shape[1], keys.shape[2]
        ahead = torch.full((new, all_), -1e4).triu(all_ - new + 1) if new > 1 else None
        x = x + self.block.attn(y, keys, values, ahead)
        y = self.block.cross_ln(x)
        x = x + self.block.cross(y, *self.block.cross.keys(audio), None)
        x = self.ln(self.block.rest(x))
        return x @ self.tokens.transpose(0, 1), keys, values


def sinusoids(length: int, channels: int) -> Tensor:
    """Positions as sines and cosines: (length, channels)."""
    step = math.log(10000) / (channels // 2 - 1)
    scaled = torch.outer(torch.arange(length), torch.exp(-step * torch.arange(channels // 2)))
    return torch.cat((scaled.sin(), scaled.cos()), dim=1)


class T5Norm(nn.Module):
    """An RMS norm without a shift, in the words of T5."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class T5Attention(nn.Module):
    """Attention without scaling, with a bias of relative positions. Source: Raffel et al., 2020."""

    BUCKETS, FARTHEST = 8, 20

    def __init__(self, width: int, heads: int, *, both_ways: bool) -> None:
        super().__init__()
        self.heads, self.both_ways = heads, both_ways
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(self.BUCKETS, heads)
        # Scores are not scaled by the root of a head's size; the weights of queries are.
        nn.init.normal_(self.q.weight, 0, (width * width / heads) ** -0.5)

    def bias(self, queries: int, keys: int) -> Tensor:
        """(1, H, queries, keys)."""
        relative = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
        buckets = self.BUCKETS
        found = torch.zeros_like(relative)
        if self.both_ways:
            buckets //= 2
            found = found + (relative > 0).to(torch.long) * buckets
            distance = relative.abs()
        else:
            distance = -torch.min(relative, torch.zeros_like(relative))
        exact = buckets // 2
        far = exact + (
            torch.log(distance.float() / exact)
            / math.log(self.FARTHEST / exact)
            * (buckets - exact)
        ).to(torch.long)
        far = torch.min(far, torch.full_like(far, buckets - 1))
        found = found + torch.where(distance < exact, distance, far)
        return self.relative_attention_bias(found).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (
            _split(projection(source), self.heads)
            for projection, source in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        weights = functional.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(_joined(torch.matmul(weights, v)))


class T5Feed(nn.Module):
    """Dense layers with a gate: GELU in its form with tanh, of one, times the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = T5Norm(width)
        self.wi_0, self.wi_1 = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.wo = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.wo(functional.gelu(self.wi_0(y), approximate="tanh") * self.wi_1(y))


class T5(nn.Module):
    """source: (B, S, width), target: (B, T, width), embedded tokens, to logits: (B, T, tokens).

    An encoder and a decoder of one layer each; a padding mask (B, S) of int64 hides tokens of the
    source from both.
    """

    def __init__(self, *, width: int = 64, heads: int = 4, tokens: int = 40) -> None:
        super().__init__()
        self.encoder_attention = T5Attention(width, heads, both_ways=True)
        self.decoder_attention = T5Attention(width, heads, both_ways=False)
        self.cross_attention = T5Attention(width, heads, both_ways=False)
        self.norms = nn.ModuleList(T5Norm(width) for _ in range(5))
        self.feeds = nn.ModuleList(T5Feed(width) for _ in range(2))
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, source: Tensor, target: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        x, length = source, source.shape[1]
        y = self.norms[0](x)
        x = x + self.encoder_attention(y, y, self.encoder_attention.bias(length, length) + hidden)
        memory = self.norms[1](self.feeds[0](x))
        x, length = target, target.shape[1]
        y = self.norms[2](x)
        ahead = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        x = x + self.decoder_attention(y, y, self.decoder_attention.bias(length, length) + ahead)
        x = x + self.cross_attention(self.norms[3](x), memory, hidden)
        return self.head(self.norms[4](self.feeds[1](x)))
