"""Programs of torch.export that are quantised as pt2e does it, compiled, on the virtual GPU.

pt2e writes a quantisation and its dequantisation before and after each layer, and dequantises
weights of int8 by channel. Eager PyTorch computes the same floats in FP32, products of integers
included, whose sums are exact here. It multiplies by 1 / scale; scales are powers of two, so that
this is the quotient, and all integers are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.virtual_gpu import all_checks

OPS: Any = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    device = boltgen.activate("vgpu")
    assert device.vgpu is not None
    return device.vgpu


def rounded(x: Tensor, scale: float, zero: int = 0) -> Tensor:
    """A quantisation to int8 and its dequantisation."""
    whole = OPS.quantize_per_tensor(x, scale, zero, *INT8)
    made: Tensor = OPS.dequantize_per_tensor(whole, scale, zero, *INT8)
    return made


class Weighted(nn.Module):
    """A layer with a weight of int8 and a scale for each of its channels."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(sum(shape))
        whole = torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)
        steps = torch.randint(-10, -8, (shape[0],), generator=generator)
        self.register_buffer("whole", whole)
        self.register_buffer("scales", torch.pow(2.0, steps))
        self.register_buffer("zeros", torch.zeros(shape[0], dtype=torch.int64))
        counts = torch.randint(-40, 40, (shape[0],), generator=generator)
        self.bias = nn.Parameter(counts * 2.0**-6)

    def forward(self, x: Tensor) -> Tensor:
        weight = OPS.dequantize_per_channel(
            self.whole, self.scales, self.zeros, 0, -127, 127, torch.int8
        )
        if weight.dim() == 2:
            return nn.functional.linear(x, weight, self.bias)
        return nn.functional.conv2d(x, weight, self.bias, padding=weight.shape[-1] // 2)


class Residual(nn.Module):
    """A stem, a block with a residual of ResNet-18's, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = Weighted(16, 3, 3, 3), Weighted(16, 16, 3, 3)
        self.second, self.last = Weighted(16, 16, 3, 3), Weighted(10, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = rounded(torch.relu(self.stem(rounded(x, 2.0**-5, 9))), 2.0**-5, -128)
        x = rounded(nn.functional.max_pool2d(x, 2), 2.0**-5, -128)
        y = rounded(torch.relu(self.first(x)), 2.0**-4, -128)
        y = rounded(self.second(y), 2.0**-3, 5)
        x = rounded(torch.relu(x + y), 2.0**-3, -128)
        pooled = rounded(nn.functional.adaptive_avg_pool2d(x, 1), 2.0**-4, -128)
        return rounded(self.last(pooled.flatten(1)), 2.0**-6, 3)


class Encoder(nn.Module):
    """The feed-forward part of a layer of BERT's, with projections before and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.up, self.down = Weighted(64, 64), Weighted(128, 64), Weighted(64, 128)

    def forward(self, x: Tensor) -> Tensor:
        x = rounded(x, 2.0**-5, 3)
        x = rounded(x + rounded(self.project(x), 2.0**-4), 2.0**-4, 2)
        inner = rounded(torch.relu(self.up(x)), 2.0**-3, -128)
        return rounded(x + rounded(self.down(inner), 2.0**-1, 7), 2.0**-1)


@pytest.mark.parametrize(
    ("module", "shape", "products"), [(Residual, (2, 3, 8, 8), 4), (Encoder, (2, 16, 64), 3)]
)
def test_a_quantised_program_equals_eager(
    module: type[nn.Module], shape: tuple[int, ...], products: int, vgpu: Vgpu
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(module().eval(), (x,))
    artifact = boltgen.compile(program, arch="sm_80", fuse=False)
    with all_checks(vgpu):
        (found,) = artifact.run(x.numpy(), device="vgpu").values()
        assert [finding.message for finding in vgpu.findings()] == []
    assert np.array_equal(found, program.module()(x).detach().numpy())
    assert len(np.unique(found)) > 8
    problems = [region.problem for region in artifact.metadata.regions]
    assert sum("in_dtype=int8" in each or "in_dtype=uint8" in each for each in problems) == products
