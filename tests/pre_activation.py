"""A residual network whose blocks normalise and activate what they read.

Source: He et al., Identity Mappings in Deep Residual Networks, ECCV 2016, figure 1 (b).
"""

from __future__ import annotations

from onnx import ModelProto

from models.onnx_graph import GraphBuilder, Tensor
from models.parameters import RandomParameters, Uniform

SHAPE = (1, 8, 9, 11)
CHANNELS, BLOCKS = 40, 2
PRODUCTS = 1 + 2 * BLOCKS
# The sum at the end of each block is normalised for the next one, and so is the first convolution.
NORMALISED_SUMS = 1 + BLOCKS
_SCALE, _BRANCH = Uniform(low=1.2, high=1.6), Uniform(low=0.4, high=0.8)


def build() -> ModelProto:
    """x: `SHAPE`; y: the mean over pixels of the last activation."""
    graph = GraphBuilder("pre_activation", parameters=RandomParameters(0))

    def activated(x: Tensor, name: str) -> Tensor:
        return graph.relu(graph.batch_norm(x, f"{name}_norm", scale=_SCALE), f"{name}_relu")

    def conv(x: Tensor, name: str) -> Tensor:
        return graph.conv(x, name, channels=CHANNELS, kernel=3, padding=1, bias=False)

    total = conv(graph.input("x", SHAPE), "stem")
    for block in range(BLOCKS):
        name = f"block{block}"
        hidden = conv(activated(total, f"{name}_a"), f"{name}_a")
        branch = conv(activated(hidden, f"{name}_b"), f"{name}_b")
        scaled = graph.batch_norm(branch, f"{name}_branch", scale=_BRANCH)
        total = graph.add(scaled, total, f"{name}_sum")
    graph.output(graph.global_average_pool(activated(total, "last"), "pool"), "y")
    return graph.build()
