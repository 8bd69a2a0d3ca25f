"""Operators of PyTorch with small inputs: the core of ATen, by the names that people use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  as PyTorch's users write it

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
_random = torch.Generator().manual_seed(0)


def _t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_random)


def _names(text: str) -> list[str]:
    return text.split()


def _i(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=_random)


X, Y, ROW = _t(4, 6), _t(4, 6), _t(6)
P = X.abs() + 0.1  # positive
U = X.tanh() * 0.9  # between -1 and 1
IMAGE = _t(2, 4, 8, 8)
N = _i(9, 4, 6)
M = _i(5, 4, 6) + 1
MASK = X > 0

_UNARY = {
    **dict.fromkeys(
        _names(
            "abs atan asinh ceil cos erf exp expm1 floor frac isfinite isinf isnan neg relu round "
            "sigmoid sign sin sinh square tan tanh trunc logical_not positive sgn cosh exp2 erfc "
            "deg2rad rad2deg"
        ),
        X,
    ),
    **dict.fromkeys(_names("log log1p log2 log10 sqrt rsqrt reciprocal lgamma digamma"), P),
    **dict.fromkeys(_names("acos asin atanh erfinv"), U),
    "acosh": P + 1,
    "bitwise_not": N,
}
_BINARY = {
    **dict.fromkeys(
        _names(
            "add sub mul div maximum minimum atan2 eq ne lt le gt ge fmax fmin hypot copysign "
            "logical_and logical_or logical_xor heaviside nextafter"
        ),
        (X, Y),
    ),
    **dict.fromkeys(_names("pow fmod remainder floor_divide"), (P, Y.abs() + 0.5)),
    **dict.fromkeys(_names("bitwise_and bitwise_or bitwise_xor gcd"), (N, M)),
    **dict.fromkeys(_names("bitwise_left_shift bitwise_right_shift"), (N, M)),
    **dict.fromkeys(_names("matmul mm"), (_t(16, 32), _t(32, 8))),
    "bmm": (_t(2, 16, 32), _t(2, 32, 8)),
    "mv": (_t(8, 16), _t(16)),
    "dot": (_t(16), _t(16)),
    "outer": (_t(4), _t(6)),
    "kron": (_t(2, 3), _t(3, 2)),
    "lerp": (X, Y),
}
_REDUCTIONS = _names(
    "sum mean amax amin prod all any argmax argmin logsumexp var std median cumsum cumprod softmax "
    "log_softmax sort argsort cummax cummin count_nonzero nansum norm logcumsumexp"
)
_ACTIVATIONS = _names(
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 "
    "rrelu selu silu softplus softshrink softsign tanhshrink threshold"
)


def _reduction(name: str) -> Case:
    function = getattr(torch, name)
    inputs = MASK if name in {"all", "any"} else X

    def reduce(x: torch.Tensor) -> Any:
        result = function(x, 1) if name != "norm" else function(x, dim=1)
        return tuple(result) if isinstance(result, tuple) else result

    return reduce, (inputs,)


def _activation(name: str) -> Case:
    function = getattr(F, name)
    more = (0.1, 20.0) if name == "threshold" else ()
    return lambda x: function(x, *more), (X,)


CASES: dict[str, Case] = {
    **{name: (getattr(torch, name), (x,)) for name, x in _UNARY.items()},
    **{
        name: (
            (lambda x, y: torch.lerp(x, y, 0.25)) if name == "lerp" else getattr(torch, name),
            pair,
        )
        for name, pair in _BINARY.items()
    },
    **{name: _reduction(name) for name in _REDUCTIONS},
    **{name: _activation(name) for name in _ACTIVATIONS},
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGE,)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), (IMAGE,)),
    "addmm": (torch.addmm, (_t(8), _t(16, 32), _t(32, 8))),
    "arange": (lambda x: torch.arange(6) + x, (X,)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (_t(2, 4, 8),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (_t(1, 2, 4, 4, 4),)),
    "batch_norm": (
        lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), torch.ones(4) * 2, torch.ones(4)),
        (IMAGE,),
    ),
    "bincount": (torch.bincount, (_i(5, 12),)),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (X,)),
    "cat": (lambda x, y: torch.cat([x, y], 1), (X, Y)),
    "cdist": (torch.cdist, (X, Y)),
    "chunk": (lambda x: x.chunk(3, 1), (X,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "clone": (torch.clone, (X,)),
    "constant_pad_nd": (lambda x: F.pad(x, (1, 2), value=3.0), (X,)),
    "conv1d": (F.conv1d, (_t(2, 4, 16), _t(8, 4, 3))),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (_t(2, 8, 8, 8), _t(16, 8, 3, 3))),
    "conv3d": (F.conv3d, (_t(1, 4, 6, 6, 6), _t(8, 4, 3, 3, 3))),
    "conv_transpose2d": (F.conv_transpose2d, (_t(2, 8, 6, 6), _t(8, 8, 3, 3))),
    "cosine_similarity": (F.cosine_similarity, (X, Y)),
    "cross_entropy": (F.cross_entropy, (X, _i(6, 4))),
    "diag": (torch.diag, (ROW,)),
    "diagonal": (torch.diagonal, (_t(5, 5),)),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False), (X,)),
    "einsum": (lambda x, y: torch.einsum("ik,jk->ij", x, y), (_t(16, 32), _t(8, 32))),
    "embedding": (F.embedding, (_i(8, 5), _t(8, 16))),
    "expand": (lambda x: x.expand(4, 6), (ROW,)),
    "eye": (lambda x: torch.eye(6) @ x, (_t(6, 6),)),
    "flip": (lambda x: x.flip(1), (X,)),
    "fold": (lambda x: F.fold(x, 4, 2, stride=2), (_t(1, 8, 4),)),
    "full_like": (lambda x: torch.full_like(x, 2.0) + x, (X,)),
    "gather": (lambda x, i: x.gather(1, i), (X, _i(6, 4, 3))),
    "glu": (F.glu, (X,)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (IMAGE, _t(2, 3, 3, 2).tanh()),
    ),
    "group_norm": (lambda x: F.group_norm(x, 2), (IMAGE,)),
    "histc": (lambda x: torch.histc(x, 4, -2, 2), (ROW,)),
    "index": (lambda x, i: x[i], (X, _i(4, 3))),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (X, torch.tensor([0, 2]), _t(2, 6))),
    "index_put": (lambda x, i, y: x.index_put((i,), y), (X, torch.tensor([0, 2]), _t(2, 6))),
    "index_select": (lambda x, i: x.index_select(1, i), (X, _i(6, 3))),
    "instance_norm": (F.instance_norm, (IMAGE,)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0), (IMAGE,)),
    "interpolate bilinear": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        (IMAGE,),
    ),
    "isin": (torch.isin, (N, torch.tensor([1, 3]))),
    "kthvalue": (lambda x: tuple(torch.kthvalue(x, 2)), (X,)),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), (X,)),
    "linear": (F.linear, (_t(16, 32), _t(8, 32), _t(8))),
    "masked_fill": (lambda x, m: x.masked_fill(m, 1.5), (X, MASK)),
    "masked_scatter": (lambda x, m, y: x.masked_scatter(m, y), (X, MASK, Y)),
    "masked_select": (torch.masked_select, (X, MASK)),
    "max.dim": (lambda x: tuple(x.max(1)), (X,)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (_t(2, 4, 8),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "max_pool2d indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (IMAGE,)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (_t(1, 2, 4, 4, 4),)),
    "median of all": (torch.median, (X,)),
    "min.dim": (lambda x: tuple(x.min(1)), (X,)),
    "mode": (lambda x: tuple(torch.mode(x)), (N,)),
    "multinomial": (lambda x: torch.multinomial(x, 1, replacement=True) * 0, (P,)),
    "narrow": (lambda x: x.narrow(1, 1, 3), (X,)),
    "nonzero": (torch.nonzero, (MASK,)),
    "normalize": (F.normalize, (X,)),
    "one_hot": (lambda i: F.one_hot(i, 6), (_i(6, 4),)),
    "permute": (lambda x: x.permute(0, 2, 3, 1), (IMAGE,)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (IMAGE,)),
    "prelu": (F.prelu, (X, torch.tensor([0.25]))),
    "reflection_pad2d": (lambda x: F.pad(x, (1, 1, 2, 2), "reflect"), (IMAGE,)),
    "repeat": (lambda x: x.repeat(2, 3), (X,)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), (X,)),
    "replication_pad2d": (lambda x: F.pad(x, (1, 1, 2, 2), "replicate"), (IMAGE,)),
    "reshape": (lambda x: x.reshape(3, 8), (X,)),
    "rms_norm": (lambda x: F.rms_norm(x, (6,)), (X,)),
    "roll": (lambda x: x.roll(2, 1), (X,)),
    "rot90": (torch.rot90, (X,)),
    "scaled_dot_product_attention": (
        F.scaled_dot_product_attention,
        (_t(1, 2, 16, 32), _t(1, 2, 16, 32), _t(1, 2, 16, 32)),
    ),
    "scatter": (lambda x, i, y: x.scatter(1, i, y), (X, torch.arange(6).expand(4, 6), Y)),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), (X, _i(6, 4, 6), Y)),
    "scatter_reduce amax": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"),
        (X, _i(6, 4, 6), Y),
    ),
    "searchsorted": (lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x), (X,)),
    "select": (lambda x: x.select(1, 2), (X,)),
    "slice": (lambda x: x[:, 1:5:2], (X,)),
    "split": (lambda x: x.split([1, 2, 3], 1), (X,)),
    "squeeze": (lambda x: x.squeeze(1), (_t(4, 1, 6),)),
    "stack": (lambda x, y: torch.stack([x, y]), (X, Y)),
    "std of all": (torch.std, (X,)),
    "take": (torch.take, (X, _i(24, 5))),
    "tile": (lambda x: x.tile(2, 2), (X,)),
    "topk": (lambda x: tuple(x.topk(3)), (X,)),
    "trace": (torch.trace, (_t(5, 5),)),
    "transpose": (lambda x: x.transpose(0, 1), (X,)),
    "tril": (torch.tril, (X,)),
    "triu": (torch.triu, (X,)),
    "unbind": (lambda x: x.unbind(0), (X,)),
    "unfold": (lambda x: F.unfold(x, 2), (IMAGE,)),
    "unique": (torch.unique, (N,)),
    "unsqueeze": (lambda x: x.unsqueeze(1), (X,)),
    "where": (torch.where, (MASK, X, Y)),
    "zeros_like": (lambda x: torch.zeros_like(x) + x, (X,)),
}
