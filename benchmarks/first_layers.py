"""First layers of models, 224x224, batch 1: passes over the image, counted.

Each is a model of its own, compiled as users do and run on the virtual GPU, whose counters say what
each launch reads and writes, by sectors of 32 bytes that really move. An image in NCHW and
FP32 is cast, transposed and padded to four channels by the first launch, which the region's call
makes itself. A photo of bytes is normalised besides, in FP32, and TVM's kernel is the first launch.
The convolution reads the launch's result, each pixel for many filter positions and mostly from
caches, which are not modelled. Nothing else reads the image. No time is measured.

    python -m benchmarks.first_layers
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import boltgen
from benchmarks.record import write

SHAPE = (1, 3, 224, 224)
_SECTOR_BYTES = 32


class Resnet(nn.Module):
    """ResNet's first layer; what follows only makes the result small."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 7, stride=2, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 64): the means of the layer's channels."""
        return torch.relu(self.first(x)).mean((2, 3))


class Repvgg(Resnet):
    """RepVGG-A0's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 48, 3, stride=2, padding=1)


class Photo(Repvgg):
    """RepVGG-A0's of a photo of bytes in NCHW, normalised as torchvision does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 48): the means of the layer's channels."""
        return super().forward((x.float() / 255.0 - self.mean) / self.std)


class PhotoOfPixels(Photo):
    """The same of a photo in NHWC."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 48): the means of the layer's channels."""
        return super().forward(x.permute(0, 3, 1, 2))


LAYERS = {
    "ResNet, 7x7, stride 2": Resnet,
    "RepVGG-A0, 3x3, stride 2": Repvgg,
    "RepVGG-A0, uint8 NCHW, normalised": Photo,
    "RepVGG-A0, uint8 NHWC, normalised": PhotoOfPixels,
}


def sample(layer: type[nn.Module]) -> torch.Tensor:
    """Return an image that a layer takes."""
    if not issubclass(layer, Photo):
        return torch.randn(SHAPE)
    n, c, h, w = SHAPE
    shape = (n, h, w, c) if layer is PhotoOfPixels else SHAPE
    return torch.randint(0, 256, shape, dtype=torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The launches of one inference in order, and the distance of the result from FP32's.

    `image_bytes` is the size of the image in memory.
    """

    image_bytes: int
    moves: tuple[str, ...]
    kernels: tuple[str, ...]
    launches: tuple[dict[str, Any], ...]
    error: float

    @property
    def before(self) -> int:
        """Launches before the convolution."""
        return next(i for i, name in enumerate(self.kernels) if "boltgen_conv2d" in name)

    @property
    def passes(self) -> float:
        """Times that the first launch brings the image from DRAM: once is each touched sector."""
        dram_bytes = float(self.launches[0]["modelled"]["dram_bytes"])
        return (dram_bytes - self.moved_sector_bytes) / self.image_bytes

    @property
    def image_sector_bytes(self) -> int:
        """The bytes of the image that the first launch reads."""
        return int(self.launches[0]["global_load"]["sectors"]) * _SECTOR_BYTES

    @property
    def moved_sector_bytes(self) -> int:
        """The bytes that the first launch writes for the convolution."""
        return int(self.launches[0]["global_store"]["sectors"]) * _SECTOR_BYTES


def count(layer: type[nn.Module]) -> Counted:
    """Compile a layer for sm_80 and run it under the counters."""
    torch.manual_seed(0)
    net, x = layer().eval(), sample(layer)
    artifact = boltgen.compile(torch.export.export(net, (x,)))
    vgpu = boltgen.activate("vgpu").vgpu
    if vgpu is None:
        raise AssertionError("this process uses the virtual GPU")
    inputs = {artifact.metadata.inputs[0].name: x.numpy()}
    vgpu.clear_launches()
    vgpu.set_option("counters", "on")
    try:
        (found,) = artifact.run(inputs).values()
    finally:
        vgpu.set_option("counters", "off")
    with torch.no_grad():
        error = float(np.abs(found - net(x).numpy()).max())
    return Counted(
        image_bytes=x.numpy().nbytes,
        moves=artifact.metadata.regions[0].moves,
        kernels=tuple(launch.kernel for launch in vgpu.launches()),
        launches=tuple(vgpu.counters()),
        error=error,
    )


def figures(counted: Counted) -> dict[str, Any]:
    """Return the figures to record of a layer."""
    move, convolution = counted.launches[:2]
    return {
        "launches of the region's call": sum("boltgen" in kernel for kernel in counted.kernels),
        "launches before the convolution": counted.before,
        "bytes of the image": counted.image_bytes,
        "sector bytes that the move reads": counted.image_sector_bytes,
        "passes over the image": round(counted.passes, 3),
        "sector bytes that the move writes": counted.moved_sector_bytes,
        "bank conflicts of the move": move["shared"]["bank_conflicts"],
        "sector bytes that the convolution reads": convolution["global_load"]["sectors"]
        * _SECTOR_BYTES,
        "sector bytes that the convolution writes": convolution["global_store"]["sectors"]
        * _SECTOR_BYTES,
        "moves": list(counted.moves),
    }


def main() -> None:
    """Count all, and record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {name: figures(count(layer)) for name, layer in LAYERS.items()}
    write("first_layers", found, "one pass over the image, one launch before the convolution")


if __name__ == "__main__":
    main()
