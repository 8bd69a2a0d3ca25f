"""RepVGG in deploy form (every layer one 3x3 convolution with bias, and ReLU), and RepVGGAug.

Sources: Ding et al., RepVGG: Making VGG-style ConvNets Great Again, table 2; for RepVGGAug, Bolt
(MLSys 2022), section 4.3: after each 3x3 convolution but the last a 1x1 convolution with as many
channels, which a persistent kernel can take along. Bolt's table 5 gives RepVGGAug's parameters as
13.35 M, 21.7 M and 24.85 M, which its description does not yield; counted here are 8.87 M, 13.79 M
and 15.51 M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder, Tensor
from models.parameters import ParameterSource, RandomParameters

_RELU_GAIN = math.sqrt(2.0)  # makes up for the half of the mean square that ReLU removes


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One RepVGG: width and depth of its five stages; each starts with a stride of 2.

    `augmented` adds the 1x1 convolutions.
    """

    name: str
    widths: tuple[int, int, int, int, int]
    depths: tuple[int, int, int, int, int]
    augmented: bool = False


_A_DEPTHS, _B_DEPTHS = (1, 2, 4, 14, 1), (1, 4, 6, 16, 1)
_A0_WIDTHS, _A1_WIDTHS = (48, 48, 96, 192, 1280), (64, 64, 128, 256, 1280)
REPVGG_A0 = Variant(name="repvgg_a0", widths=_A0_WIDTHS, depths=_A_DEPTHS)
REPVGG_A1 = Variant(name="repvgg_a1", widths=_A1_WIDTHS, depths=_A_DEPTHS)
REPVGG_B0 = Variant(name="repvgg_b0", widths=_A1_WIDTHS, depths=_B_DEPTHS)
REPVGGAUG_A0 = replace(REPVGG_A0, name="repvggaug_a0", augmented=True)
REPVGGAUG_A1 = replace(REPVGG_A1, name="repvggaug_a1", augmented=True)
REPVGGAUG_B0 = replace(REPVGG_B0, name="repvggaug_b0", augmented=True)


def _repvgg(
    variant: Variant,
    *,
    batch: int = 1,
    image_size: int = 224,
    classes: int = 1000,
    seed: int = 0,
    dtype: DType = "float32",
    parameters: ParameterSource | None = None,
) -> ModelProto:
    """input: (batch, 3, image_size, image_size); logits: (batch, classes)."""
    graph = GraphBuilder(variant.name, parameters=parameters or RandomParameters(seed), dtype=dtype)

    def layer(x: Tensor, name: str, *, channels: int, kernel: int, stride: int) -> Tensor:
        y = graph.conv(
            x,
            f"{name}.conv",
            channels=channels,
            kernel=kernel,
            stride=stride,
            padding=kernel // 2,
            gain=_RELU_GAIN,
        )
        return graph.relu(y, f"{name}.relu")

    x = graph.input("input", (batch, 3, image_size, image_size))
    last = f"stage4.{variant.depths[-1] - 1}"
    for stage, (width, depth) in enumerate(zip(variant.widths, variant.depths, strict=True)):
        for index in range(depth):
            place = f"stage{stage}.{index}"
            x = layer(x, place, channels=width, kernel=3, stride=2 if index == 0 else 1)
            if variant.augmented and place != last:
                x = layer(x, f"{place}.pointwise", channels=width, kernel=1, stride=1)
    x = graph.flatten(graph.global_average_pool(x, "gap"), "flatten")
    graph.output(graph.gemm(x, "linear", features=classes), "logits")
    return graph.build()


repvgg_a0 = partial(_repvgg, REPVGG_A0)
repvgg_a1 = partial(_repvgg, REPVGG_A1)
repvgg_b0 = partial(_repvgg, REPVGG_B0)
repvggaug_a0 = partial(_repvgg, REPVGGAUG_A0)
repvggaug_a1 = partial(_repvgg, REPVGGAUG_A1)
repvggaug_b0 = partial(_repvgg, REPVGGAUG_B0)
