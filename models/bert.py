"""The encoder of BERT-base, in the nodes that PyTorch's exporter writes for it.

Source: Devlin et al., BERT, section 3: 12 layers, hidden size 768, 12 heads, FFN 3072.
"""

from __future__ import annotations

import math

from onnx import ModelProto

from models.onnx_graph import DType, GraphBuilder, Tensor
from models.parameters import ParameterSource, RandomParameters

HIDDEN = 768
HEADS = 12
FFN = 3072
_EPSILON = 1e-12


def bert_base(
    *,
    batch: int = 1,
    seq_len: int = 128,
    layers: int = 12,
    mask: bool = False,
    seed: int = 0,
    dtype: DType = "float32",
    parameters: ParameterSource | None = None,
) -> ModelProto:
    """hidden_states and last_hidden_state: (batch, seq_len, 768); the embeddings are left out.

    With `mask` there is a second input, attention_mask: (batch, 1, 1, seq_len), which is added to
    the scores: 0 keeps a position, -10000 hides it.
    """
    if layers < 1:
        raise ValueError(f"bert_base needs at least 1 layer, got {layers}")
    graph = GraphBuilder("bert_base", parameters=parameters or RandomParameters(seed), dtype=dtype)
    x = graph.input("hidden_states", (batch, seq_len, HIDDEN))
    attention_mask = graph.input("attention_mask", (batch, 1, 1, seq_len)) if mask else None
    for index in range(layers):
        name = f"encoder.layer.{index}"
        x = _feed_forward(graph, _attention(graph, x, attention_mask, f"{name}.attention"), name)
    graph.output(x, "last_hidden_state")
    return graph.build()


def _attention(graph: GraphBuilder, x: Tensor, mask: Tensor | None, name: str) -> Tensor:
    batch, seq_len, hidden = x.shape
    head_size = hidden // HEADS

    def project(role: str, order: tuple[int, ...]) -> Tensor:
        y = graph.linear(x, f"{name}.self.{role}", features=hidden)
        y = graph.reshape(y, f"{name}.self.{role}.reshape", (batch, seq_len, HEADS, head_size))
        return graph.transpose(y, f"{name}.self.{role}.transpose", order)

    query = project("query", (0, 2, 1, 3))
    key = project("key", (0, 2, 3, 1))  # transposed for the product of scores
    value = project("value", (0, 2, 1, 3))

    scores = graph.matmul(query, key, f"{name}.self.scores")
    scores = graph.divide(scores, math.sqrt(head_size), f"{name}.self.scale")
    if mask is not None:
        scores = graph.add(scores, mask, f"{name}.self.mask")
    weights = graph.softmax(scores, f"{name}.self.softmax")
    context = graph.matmul(weights, value, f"{name}.self.context")
    context = graph.transpose(context, f"{name}.self.context.transpose", (0, 2, 1, 3))
    context = graph.reshape(context, f"{name}.self.context.reshape", (batch, seq_len, hidden))

    y = graph.linear(context, f"{name}.output.dense", features=hidden)
    y = graph.add(y, x, f"{name}.output.residual")
    return graph.layer_norm(y, f"{name}.output.LayerNorm", epsilon=_EPSILON)


def _feed_forward(graph: GraphBuilder, x: Tensor, name: str) -> Tensor:
    y = graph.linear(x, f"{name}.intermediate.dense", features=FFN)
    y = graph.gelu(y, f"{name}.intermediate.gelu")
    y = graph.linear(y, f"{name}.output.dense", features=x.shape[-1])
    y = graph.add(y, x, f"{name}.output.residual")
    return graph.layer_norm(y, f"{name}.output.LayerNorm", epsilon=_EPSILON)
