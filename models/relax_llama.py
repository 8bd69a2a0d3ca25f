"""A small Llama-like decoder in TVM's own `relax.frontend.nn`, as MLC's models are written.

Its weights are inputs of the exported function until `with_weights` gives them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import Tensor, op

Array = npt.NDArray[np.float32]
WIDTH, HEADS, GROUPS, HEAD, FEED, TOKENS = 64, 4, 2, 16, 128, 40
_EPSILON = 1e-5


class _Attention(nn.Module):
    """Rotary positions, and two queries for each head of keys and values."""

    def __init__(self) -> None:
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.v_proj = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def split(y: Tensor, heads: int) -> Tensor:
            y = op.reshape(y, (batch, length, heads, HEAD))
            return op.permute_dims(y, axes=[0, 2, 1, 3])

        def rotated(y: Tensor) -> Tensor:
            low, high = op.split(y, 2, axis=-1)
            turned = op.concat([op.negative(high), low], dim=-1)
            return y * cosine + turned * sine

        q = rotated(split(self.q_proj(x), HEADS))
        k = rotated(split(self.k_proj(x), GROUPS))
        v = split(self.v_proj(x), GROUPS)
        k, v = (op.repeat(each, HEADS // GROUPS, axis=1) for each in (k, v))
        scores = op.matmul(q, op.permute_dims(k, axes=[0, 1, 3, 2])) / HEAD**0.5
        weights = op.softmax(op.maximum(scores, _lowest()) + mask, axis=-1)
        mixed = op.permute_dims(op.matmul(weights, v), axes=[0, 2, 1, 3])
        return self.o_proj(op.reshape(mixed, (batch, length, HEADS * HEAD)))


def _lowest() -> Tensor:
    return nn.Tensor.from_const(np.array(np.finfo(np.float32).min))


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.input_layernorm = nn.RMSNorm(WIDTH, -1, _EPSILON, bias=False)
        self.post_attention_layernorm = nn.RMSNorm(WIDTH, -1, _EPSILON, bias=False)
        self.self_attn = _Attention()
        self.gate_up_proj = nn.Linear(WIDTH, 2 * FEED, bias=False)
        self.down_proj = nn.Linear(FEED, WIDTH, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine, mask)
        gate, up = op.split(self.gate_up_proj(self.post_attention_layernorm(x)), 2, axis=-1)
        return x + self.down_proj(op.silu(gate) * up)


class Decoder(nn.Module):
    """x: (B, S, WIDTH), embedded tokens, to logits: (B, S, TOKENS).

    cosine and sine: (S, HEAD), of the positions; mask: (S, S), added to scores.
    """

    def __init__(self, layers: int = 1) -> None:
        self.layers = nn.ModuleList([_Layer() for _ in range(layers)])
        self.norm = nn.RMSNorm(WIDTH, -1, _EPSILON, bias=False)
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, cosine, sine, mask)
        return self.lm_head(self.norm(x))


def decoder(seed: int = 0) -> tuple[tvm.IRModule, dict[str, Array]]:
    """The decoder with open batch and sequence, its weights bound; and these by their names."""
    spec = {
        "forward": {
            "x": nn.spec.Tensor(("batch", "seq", WIDTH), "float32"),
            "cosine": nn.spec.Tensor(("seq", HEAD), "float32"),
            "sine": nn.spec.Tensor(("seq", HEAD), "float32"),
            "mask": nn.spec.Tensor(("seq", "seq"), "float32"),
        }
    }
    module, parameters = Decoder().export_tvm(spec)
    rng = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    for name, parameter in parameters:
        shape = tuple(int(extent) for extent in parameter.shape)
        array: Any = rng.standard_normal(shape).astype(np.float32)
        weights[name] = array * shape[-1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * array
    bound = relax.transform.BindParams("forward", weights)(module)
    return tvm.IRModule({"main": bound["forward"].with_attr("global_symbol", "main")}), weights


def reference(weights: dict[str, Array], x: Array, cosine: Array, sine: Array) -> Array:
    """The logits of the decoder of one layer in FP64, causal."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    layer, attention = "layers.0.", "layers.0.self_attn."

    def norm(y: Any, name: str) -> Any:
        return y / np.sqrt(np.square(y).mean(-1, keepdims=True) + _EPSILON) * w[f"{name}.weight"]

    def linear(y: Any, name: str) -> Any:
        return y @ w[f"{name}.weight"].T

    def split(y: Any, heads: int) -> Any:
        return y.reshape(*y.shape[:2], heads, HEAD).transpose(0, 2, 1, 3)

    def rotated(y: Any) -> Any:
        low, high = np.split(y, 2, -1)
        return y * cosine + np.concatenate((-high, low), -1) * sine

    y = norm(x, f"{layer}input_layernorm")
    q = rotated(split(linear(y, f"{attention}q_proj"), HEADS))
    k = rotated(split(linear(y, f"{attention}k_proj"), GROUPS)).repeat(HEADS // GROUPS, 1)
    v = split(linear(y, f"{attention}v_proj"), GROUPS).repeat(HEADS // GROUPS, 1)
    scores = q @ k.swapaxes(-1, -2) / HEAD**0.5
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    mixed = mixed.transpose(0, 2, 1, 3).reshape(*x.shape)
    h = x + linear(mixed, f"{attention}o_proj")
    y = linear(norm(h, f"{layer}post_attention_layernorm"), f"{layer}gate_up_proj")
    gate, up = np.split(y, 2, -1)
    h = h + linear(gate / (1 + np.exp(-gate)) * up, f"{layer}down_proj")
    return linear(norm(h, "norm"), "lm_head").astype(np.float32)
