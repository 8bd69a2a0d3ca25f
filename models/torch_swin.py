"""A small Swin transformer in PyTorch: attention within windows, every other time shifted.

Source: Liu et al., Swin Transformer, 2021, section 3. The windows are cut out, rolled and put back
in the words of timm's and torchvision's modules. Weights are PyTorch's own random ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def partition(x: Tensor, window: int) -> Tensor:
    """(B, H, W, C) as (B windows, window, window, C)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window, window, channels)


def reverse(windows: Tensor, window: int, height: int, width: int) -> Tensor:
    """Undo `partition`: return (B, H, W, C)."""
    channels = windows.shape[-1]
    x = windows.view(-1, height // window, width // window, window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, height, width, channels)


def relative_positions(window: int) -> Tensor:
    """Which bias a token of a window has for another one: (window^2, window^2)."""
    axes = torch.arange(window)
    places = torch.stack(torch.meshgrid(axes, axes, indexing="ij")).flatten(1)
    apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
    return apart[..., 0] * (2 * window - 1) + apart[..., 1]


def hidden_regions(size: int, window: int, shift: int) -> Tensor:
    """Return the mask that hides tokens that are no neighbours: (windows, window^2, window^2)."""
    regions = torch.zeros(1, size, size, 1)
    spans = slice(0, -window), slice(-window, -shift), slice(-shift, None)
    for number, (rows, columns) in enumerate((a, b) for a in spans for b in spans):
        regions[:, rows, columns] = number
    cut = partition(regions, window).view(-1, window * window)
    return torch.where(cut[:, None] == cut[:, :, None], 0.0, -100.0)


class WindowAttention(nn.Module):
    """Attention of the tokens of each window: (B windows, window^2, C)."""

    def __init__(self, width: int, heads: int, window: int, mask: Tensor | None) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        self.register_buffer("places", relative_positions(window))
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        windows, length, width = x.shape
        qkv = self.qkv(x).reshape(windows, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.places.view(-1)].view(length, length, -1)
        scores = scores + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if self.mask is not None:
            count = self.mask.shape[0]
            scores = scores.view(-1, count, self.heads, length, length)
            scores = scores + self.mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, length, length)
        mixed = functional.softmax(scores, dim=-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(windows, length, width))


class SwinBlock(nn.Module):
    """A layer of images of tokens: (B, H, W, C)."""

    def __init__(self, size: int, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        mask = hidden_regions(size, window, shift) if shift else None
        self.attn = WindowAttention(width, heads, window, mask)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def mixed(self, x: Tensor) -> Tensor:
        """Attention within windows."""
        _, height, width, channels = x.shape
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        windows = partition(x, self.window).view(-1, self.window * self.window, channels)
        windows = self.attn(windows).view(-1, self.window, self.window, channels)
        x = reverse(windows, self.window, height, width)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixed(self.norm1(x))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Merging(nn.Module):
    """(B, H, W, C) to (B, H/2, W/2, 2 C): four neighbours to one token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, -1)))


class Swin(nn.Module):
    """images: (B, 3, S, S) to classes: (B, 10), in two stages of two blocks each."""

    def __init__(
        self, *, size: int = 32, patch: int = 4, width: int = 32, window: int = 4, heads: int = 2
    ) -> None:
        super().__init__()
        self.patches, self.norm0 = nn.Conv2d(3, width, patch, patch), nn.LayerNorm(width)
        self.stages = nn.ModuleList()
        size //= patch
        for stage in range(2):
            if stage:
                self.stages.append(Merging(width))
                size, width, heads = size // 2, 2 * width, 2 * heads
            for shift in (0, window // 2 if size > window else 0):
                self.stages.append(SwinBlock(size, width, heads, window, shift))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm0(self.patches(images).permute(0, 2, 3, 1))
        for stage in self.stages:
            x = stage(x)
        return self.head(self.norm(x).mean((1, 2)))
