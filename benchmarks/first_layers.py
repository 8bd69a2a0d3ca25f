"""First layers of models in NCHW and FP32, 224x224, batch 1: passes over the image, counted.

Each is a model of its own, compiled as users do and run on the virtual GPU, whose counters say what
each launch reads and writes: sectors are those of 32 bytes that really move. The image is cast,
transposed and padded to four channels by the first launch, which the region's call makes itself;
the convolution reads the launch's result, each pixel for many filter positions and mostly from
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


LAYERS = {"ResNet, 7x7, stride 2": Resnet, "RepVGG-A0, 3x3, stride 2": Repvgg}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The launches of one inference in order, and the distance of the result from FP32's."""

    moves: tuple[str, ...]
    kernels: tuple[str, ...]
    launches: tuple[dict[str, Any], ...]
    error: float

    @property
    def image_sector_bytes(self) -> int:
        """The bytes of the image that the layout transform reads."""
        return int(self.launches[0]["global_load"]["sectors"]) * _SECTOR_BYTES

    @property
    def moved_sector_bytes(self) -> int:
        """The bytes that the layout transform writes for the convolution."""
        return int(self.launches[0]["global_store"]["sectors"]) * _SECTOR_BYTES


def count(layer: type[nn.Module]) -> Counted:
    """Compile a layer for sm_80 and run it under the counters."""
    torch.manual_seed(0)
    net, x = layer().eval(), torch.randn(SHAPE)
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
        moves=artifact.metadata.regions[0].moves,
        kernels=tuple(launch.kernel for launch in vgpu.launches()),
        launches=tuple(vgpu.counters()),
        error=error,
    )


def figures(counted: Counted) -> dict[str, Any]:
    """Return the figures to record of a layer."""
    image_bytes = int(np.prod(SHAPE)) * 4
    move, convolution = counted.launches[:2]
    return {
        "launches of the region's call": sum("boltgen" in kernel for kernel in counted.kernels),
        "bytes of the image": image_bytes,
        "sector bytes that the move reads": counted.image_sector_bytes,
        "passes over the image": counted.image_sector_bytes / image_bytes,
        "sector bytes that the move writes": counted.moved_sector_bytes,
        "bank conflicts of the move": move["shared"]["bank_conflicts"],
        "sector bytes that the convolution reads": convolution["global_load"]["sectors"]
        * _SECTOR_BYTES,
        "sector bytes that the convolution writes": convolution["global_store"]["sectors"]
        * _SECTOR_BYTES,
        "moves": list(counted.moves),
    }


def main() -> None:
    """Count both, and record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {name: figures(count(layer)) for name, layer in LAYERS.items()}
    write("first_layers", found, "one pass over the image, in the layer's own call")


if __name__ == "__main__":
    main()
