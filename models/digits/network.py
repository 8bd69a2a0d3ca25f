"""The digits network in deploy form, as an ONNX graph.

Per stage: a 3x3 convolution + ReLU, a 1x1 convolution + hardswish that mixes channels, and a
residual 3x3 convolution + Add + ReLU. Then global average pooling and a dense head of two layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder
from models.parameters import ParameterSource

IMAGE_SIZE = 16
CLASSES = 10
HEAD_FEATURES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Channels of a stage, and the stride of its first convolution."""

    width: int
    stride: int


STAGES = (Stage(width=32, stride=1), Stage(width=64, stride=2), Stage(width=128, stride=2))


def deploy_graph(
    parameters: ParameterSource, *, batch: int, doc: str = "", dtype: DType = "float32"
) -> ModelProto:
    """input: (batch, 1, 16, 16), normalised; logits: (batch, 10)."""
    graph = GraphBuilder("digits", parameters=parameters, dtype=dtype)
    x = graph.input("input", (batch, 1, IMAGE_SIZE, IMAGE_SIZE))
    for index, stage in enumerate(STAGES):
        name, width = f"stages.{index}", stage.width
        x = graph.conv(x, f"{name}.entry", channels=width, kernel=3, stride=stage.stride, padding=1)
        x = graph.relu(x, f"{name}.entry.relu")
        x = graph.conv(x, f"{name}.mix", channels=width, kernel=1)
        x = graph.hard_swish(x, f"{name}.mix.hardswish")
        y = graph.conv(x, f"{name}.residual", channels=width, kernel=3, padding=1)
        x = graph.relu(graph.add(y, x, f"{name}.add"), f"{name}.relu")
    x = graph.flatten(graph.global_average_pool(x, "pool"), "flatten")
    x = graph.relu(graph.gemm(x, "head.hidden", features=HEAD_FEATURES), "head.relu")
    graph.output(graph.gemm(x, "head.logits", features=CLASSES), "logits")
    return graph.build(doc)
