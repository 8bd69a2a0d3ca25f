"""VGG-16: thirteen 3x3 convolutions and three dense layers.

Source: Simonyan and Zisserman, Very Deep Convolutional Networks, table 1, column D.
"""

from __future__ import annotations

import math

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder
from models.parameters import ParameterSource, RandomParameters

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_DENSE_FEATURES = (4096, 4096)
_AFTER_RELU = math.sqrt(2.0)  # makes up for the half of the mean square that ReLU removes
_AFTER_POOL = 1.0  # the maximum of four values has about twice their mean square


def vgg16(
    *,
    batch: int = 1,
    image_size: int = 224,
    classes: int = 1000,
    seed: int = 0,
    dtype: DType = "float32",
    parameters: ParameterSource | None = None,
) -> ModelProto:
    """input: (batch, 3, image_size, image_size); logits: (batch, classes).

    The first dense layer takes 512 * (image_size / 32)**2 features: 25088 at 224.
    """
    if image_size % 32:
        raise ValueError(f"vgg16 halves the image five times: {image_size} is no multiple of 32")
    graph = GraphBuilder("vgg16", parameters=parameters or RandomParameters(seed), dtype=dtype)
    x = graph.input("input", (batch, 3, image_size, image_size))
    gain = 1.0
    for stage, widths in enumerate(_STAGES, start=1):
        for layer, channels in enumerate(widths, start=1):
            name = f"{stage}_{layer}"
            x = graph.conv(x, f"conv{name}", channels=channels, kernel=3, padding=1, gain=gain)
            x = graph.relu(x, f"relu{name}")
            gain = _AFTER_RELU
        x = graph.max_pool(x, f"pool{stage}", kernel=2, stride=2)
        gain = _AFTER_POOL
    x = graph.flatten(x, "flatten")
    for number, features in enumerate(_DENSE_FEATURES, start=6):
        x = graph.gemm(x, f"fc{number}", features=features, gain=gain)
        x = graph.relu(x, f"relu{number}")
        gain = _AFTER_RELU
    graph.output(graph.gemm(x, "fc8", features=classes), "logits")
    return graph.build()
