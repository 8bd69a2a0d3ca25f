"""RepVGG in deploy form: every layer is one 3x3 convolution with bias, and ReLU.

Source: Ding et al., RepVGG: Making VGG-style ConvNets Great Again, table 2. A further variant is
one more row here and one more entry in the registry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder, RandomParameters

_RELU_GAIN = math.sqrt(2.0)  # makes up for the half of the mean square that ReLU removes


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One RepVGG: width and depth of its five stages; each starts with a stride of 2."""

    name: str
    widths: tuple[int, int, int, int, int]
    depths: tuple[int, int, int, int, int]


REPVGG_A0 = Variant(name="repvgg_a0", widths=(48, 48, 96, 192, 1280), depths=(1, 2, 4, 14, 1))


def repvgg_a0(
    *,
    batch: int = 1,
    image_size: int = 224,
    classes: int = 1000,
    seed: int = 0,
    dtype: DType = "float32",
) -> ModelProto:
    """input: (batch, 3, image_size, image_size); logits: (batch, classes)."""
    return _repvgg(
        REPVGG_A0, batch=batch, image_size=image_size, classes=classes, seed=seed, dtype=dtype
    )


def _repvgg(
    variant: Variant, *, batch: int, image_size: int, classes: int, seed: int, dtype: DType
) -> ModelProto:
    graph = GraphBuilder(variant.name, parameters=RandomParameters(seed), dtype=dtype)
    x = graph.input("input", (batch, 3, image_size, image_size))
    for stage, (width, depth) in enumerate(zip(variant.widths, variant.depths, strict=True)):
        for index in range(depth):
            name = f"stage{stage}.{index}"
            stride = 2 if index == 0 else 1
            x = graph.conv(
                x,
                f"{name}.conv",
                channels=width,
                kernel=3,
                stride=stride,
                padding=1,
                gain=_RELU_GAIN,
            )
            x = graph.relu(x, f"{name}.relu")
    x = graph.flatten(graph.global_average_pool(x, "gap"), "flatten")
    graph.output(graph.gemm(x, "linear", features=classes), "logits")
    return graph.build()
