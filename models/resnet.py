"""ResNet-18 and ResNet-50, with separate batch normalisation, as exporters write them.

Source: He et al., Deep Residual Learning for Image Recognition, table 1; the strides of ResNet-50
are on the 3x3 convolutions, as in torchvision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder, Tensor
from models.parameters import ParameterSource, RandomParameters, Uniform

# Batch-norm scales by position, chosen so that the mean square stays near 1: sqrt(2) makes up for
# the half that ReLU removes; residual branches are small so that 16 blocks do not add up.
_BEFORE_RELU = Uniform(low=1.2, high=1.6)
_RESIDUAL_BRANCH = Uniform(low=0.2, high=0.5)
_SHORTCUT = Uniform(low=0.9, high=1.1)

_STAGE_WIDTHS = (64, 128, 256, 512)


class Block(Enum):
    """The two residual blocks: 3x3-3x3, and 1x1-3x3-1x1 with four times as many outputs."""

    BASIC = auto()
    BOTTLENECK = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One ResNet: its block, and how many of them each of the four stages has."""

    name: str
    block: Block
    depths: tuple[int, int, int, int]


RESNET18 = Variant(name="resnet18", block=Block.BASIC, depths=(2, 2, 2, 2))
RESNET50 = Variant(name="resnet50", block=Block.BOTTLENECK, depths=(3, 4, 6, 3))


def _resnet(
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
    x = graph.input("input", (batch, 3, image_size, image_size))
    x = graph.conv(x, "conv1", channels=64, kernel=7, stride=2, padding=3, bias=False)
    x = graph.relu(graph.batch_norm(x, "bn1", scale=_BEFORE_RELU), "relu")
    x = graph.max_pool(x, "maxpool", kernel=3, stride=2, padding=1)
    for stage, (width, depth) in enumerate(zip(_STAGE_WIDTHS, variant.depths, strict=True)):
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            name = f"layer{stage + 1}.{index}"
            x = _residual_block(graph, x, name, variant.block, width=width, stride=stride)
    x = graph.flatten(graph.global_average_pool(x, "avgpool"), "flatten")
    graph.output(graph.gemm(x, "fc", features=classes), "logits")
    return graph.build()


def _residual_block(
    graph: GraphBuilder, x: Tensor, name: str, block: Block, *, width: int, stride: int
) -> Tensor:
    layers: tuple[tuple[int, int, int], ...]  # each row: output channels, kernel, stride
    match block:
        case Block.BASIC:
            layers = ((width, 3, stride), (width, 3, 1))
        case Block.BOTTLENECK:
            layers = ((width, 1, 1), (width, 3, stride), (4 * width, 1, 1))

    y = x
    for number, (channels, kernel, layer_stride) in enumerate(layers, start=1):
        y = graph.conv(
            y,
            f"{name}.conv{number}",
            channels=channels,
            kernel=kernel,
            stride=layer_stride,
            padding=kernel // 2,
            bias=False,
        )
        last = number == len(layers)
        y = graph.batch_norm(
            y, f"{name}.bn{number}", scale=_RESIDUAL_BRANCH if last else _BEFORE_RELU
        )
        if not last:
            y = graph.relu(y, f"{name}.relu{number}")

    shortcut = x
    if x.shape != y.shape:
        shortcut = graph.conv(
            x,
            f"{name}.downsample.0",
            channels=y.shape[1],
            kernel=1,
            stride=stride,
            bias=False,
        )
        shortcut = graph.batch_norm(shortcut, f"{name}.downsample.1", scale=_SHORTCUT)
    return graph.relu(graph.add(y, shortcut, f"{name}.add"), f"{name}.relu")


resnet18 = partial(_resnet, RESNET18)
resnet50 = partial(_resnet, RESNET50)
