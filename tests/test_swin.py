"""Swin transformers in their libraries' spellings: windows cost no launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boltgen
from boltgen.device.vgpu import Vgpu
from models.torch_swin import Swin, SwinBlock, WindowAttention
from tests.module_runs import judged

SIZE, WIDTH, HEADS, WINDOW = 8, 64, 4, 4


class FlatBlock(SwinBlock):
    """A layer of tokens in a row, (B, H W, C), as the paper's authors have them."""

    def forward(self, x: Tensor) -> Tensor:
        images = x.flatten(1, 2)
        y = self.norm1(images).view(x.shape)
        images = images + self.mixed(y).view(images.shape)
        images = images + self.fc2(functional.gelu(self.fc1(self.norm2(images))))
        return images.view(x.shape)


class TorchvisionBlock(SwinBlock):
    """torchvision's: images are padded, if by nothing, and each call makes its mask."""

    def mixed(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        across, down = -width % self.window, -height % self.window
        x = functional.pad(x, (0, 0, 0, across, 0, down))
        _, rows, columns, _ = x.shape
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        counts = rows // self.window, columns // self.window
        x = x.view(batch, counts[0], self.window, counts[1], self.window, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, channels)
        attn = self.attn
        if self.shift:
            attn.mask = self._mask(x, rows, columns)
        x = attn(x).view(batch, *counts, self.window, self.window, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, channels)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        return x[:, :height, :width, :].contiguous()

    def _mask(self, x: Tensor, rows: int, columns: int) -> Tensor:
        mask, number = x.new_zeros((rows, columns)), 0
        spans = (0, -self.window), (-self.window, -self.shift), (-self.shift, None)
        for down in spans:
            for across in spans:
                mask[down[0] : down[1], across[0] : across[1]] = number
                number += 1
        mask = mask.view(rows // self.window, self.window, columns // self.window, self.window)
        mask = mask.permute(0, 2, 1, 3).reshape(-1, self.window**2)
        apart = mask.unsqueeze(1) - mask.unsqueeze(2)
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


class FusedAttention(WindowAttention):
    """timm's since 1.0: PyTorch's attention, whose mask has the bias in it."""

    def forward(self, x: Tensor) -> Tensor:
        windows, length, width = x.shape
        q, k, v = self.qkv(x).reshape(windows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.table[self.places.view(-1)].view(length, length, -1)
        bias = bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if self.mask is not None:
            count = self.mask.shape[0]
            mask = self.mask.view(1, count, 1, length, length)
            mask = mask.expand(windows // count, -1, self.heads, -1, -1)
            bias = bias + mask.reshape(-1, self.heads, length, length)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(mixed.transpose(1, 2).reshape(windows, length, width))


class FusedBlock(SwinBlock):
    def __init__(self, size: int, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__(size, width, heads, window, shift)
        self.attn = FusedAttention(width, heads, window, self.attn.mask)


class PostNormBlock(SwinBlock):
    """Norms behind, as in Swin V2. Source: Liu et al., 2022, section 3.2."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norm1(self.mixed(x))
        return x + self.norm2(self.fc2(functional.gelu(self.fc1(x))))


class Pair(nn.Module):
    """images: (B, 3, 32, 32) to tokens: (B, 8, 8, C), by a block and a shifted one."""

    def __init__(self, block: type[SwinBlock]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        shifts = 0, WINDOW // 2
        self.blocks = nn.Sequential(*(block(SIZE, WIDTH, HEADS, WINDOW, each) for each in shifts))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.blocks(self.patches(images).permute(0, 2, 3, 1)))


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and how many kernels are boltgen's and TVM's."""

    module: Callable[[], nn.Module]
    own: int
    kept: int = 0
    layers: int = 15


# A move of the images, the patches, seven kernels of each block, and the last norm.
PAIR = 2 + 2 * 7 + 1
CASES = {
    "timm": Case(lambda: Pair(SwinBlock), PAIR),
    "flat": Case(lambda: Pair(FlatBlock), PAIR),
    "torchvision": Case(lambda: Pair(TorchvisionBlock), PAIR),
    "fused attention": Case(lambda: Pair(FusedBlock), PAIR),
    # No norm takes the rows of a block's operand, which its residual is, too.
    "norms behind": Case(lambda: Pair(PostNormBlock), PAIR, 2),
    # Two dense layers of width 32 are one kernel. TVM takes the merged tokens, and the mean.
    "two stages": Case(Swin, 3 + 2 * 6 + 2 + 2 * 7 + 2, 3, 28),
}


def _images(batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 3, 32, 32),)


@pytest.mark.parametrize("name", CASES)
def test_windows_cost_no_launches(name: str, checking: Vgpu) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    module = case.module().eval()
    artifact = boltgen.compile(module, _images(2), arch="sm_80")
    kernels = judged(artifact, module, _images(2), case.layers, checking)
    kept = [kernel for kernel in kernels if "boltgen" not in kernel]
    assert (len(kernels) - len(kept), len(kept)) == (case.own, case.kept), kernels
    assert sum("attention_" in kernel for kernel in kernels) == (4 if case.kept == 3 else 2)


def test_a_model_of_onnx_whose_rolls_are_cut(tmp_path: Path, checking: Vgpu) -> None:
    torch.manual_seed(0)
    module, path = Pair(SwinBlock).eval(), tmp_path / "swin.onnx"
    torch.onnx.export(module, _images(2), path, dynamo=False, opset_version=17)
    artifact = boltgen.compile(path, arch="sm_80")
    kernels = judged(artifact, module, _images(2), CASES["timm"].layers, checking)
    assert (len(kernels), sum("boltgen" in kernel for kernel in kernels)) == (PAIR, PAIR), kernels


def test_windows_in_bf16(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Pair(SwinBlock).eval()
    artifact = boltgen.compile(module, _images(2), arch="sm_80", precision="bf16")
    # BF16 rounds eight times as coarsely as FP16.
    kernels = judged(artifact, module, _images(2), 64 * CASES["timm"].layers, checking)
    assert (len(kernels), sum("boltgen" in kernel for kernel in kernels)) == (PAIR, PAIR), kernels


def test_an_open_number_of_images(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Pair(SwinBlock).eval()
    sizes = {"images": {0: torch.export.Dim("batch", min=1, max=4)}}
    artifact = boltgen.compile(module, _images(2), arch="sm_80", dynamic_shapes=sizes)
    for batch in (1, 3):
        judged(artifact, module, _images(batch), CASES["timm"].layers, checking)
