"""PyTorch's promotion of types: what meets floats is computed as floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import import_model

X = torch.linspace(-2, 2, 15).reshape(3, 5)
COUNTS = torch.arange(15).reshape(3, 5) % 7

CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "integers times a float": lambda x, i: i * 0.5,
    "integers minus a float": lambda x, i: i - 1.5,
    "a float minus integers": lambda x, i: 1.5 - i,
    "integers over an integer": lambda x, i: i / 2,
    "integers over integers": lambda x, i: i / (i + 1),
    "an integer over integers": lambda x, i: 7 / (i + 1),
    "integers over an integer, down": lambda x, i: i // 2,
    "integers over a float, down": lambda x, i: i // 2.5,
    "integers and floats": lambda x, i: i + x,
    "floats over integers": lambda x, i: x / (i + 1),
    "a power of a float": lambda x, i: 2.5**i,
    "a power of integers": lambda x, i: i**0.5,
    "a whole power of integers": lambda x, i: i**2,
    "angles": lambda x, i: torch.sin(i) + torch.cos(i),
    "an exponential of integers": lambda x, i: torch.exp(i),
    "a logarithm of integers": lambda x, i: torch.log(i + 1),
    "a reciprocal of integers": lambda x, i: torch.reciprocal(i + 1),
    "a sigmoid of integers": lambda x, i: torch.sigmoid(i),
    "a root of integers": lambda x, i: torch.sqrt(i) + torch.rsqrt(i + 1),
    "less than a float": lambda x, i: i < 2.5,
    "equal to a float": lambda x, i: i == 2.5,
    "less than floats": lambda x, i: i < x,
    "truths times a float": lambda x, i: (i > 2) * 0.5,
    "truths times floats": lambda x, i: (i > 2) * x,
    "truths times truths": lambda x, i: (i > 2) * (x > 0),
    "truths and truths": lambda x, i: (i > 2) + (x > 0),
    "the greater of both": lambda x, i: torch.maximum(i, x),
    "integers that are bounded by a float": lambda x, i: i.clamp(min=1.5),
    "integers and floats side by side": lambda x, i: torch.cat([x, i]),
    "integers and floats on each other": lambda x, i: torch.stack([i, x]),
    "half and a number in FP32": lambda x, i: x.half() * torch.tensor(2.0),
    "integers of two widths": lambda x, i: i.int() * i,
    "sums of integers times a float": lambda x, i: i.cumsum(0) * 0.5,
    "ones times a float": lambda x, i: torch.ones_like(i) * 0.25,
    "scaled and added": lambda x, i: torch.add(x, x.exp(), alpha=2),
    "scaled integers and floats": lambda x, i: torch.add(x, i, alpha=2),
    "scaled and subtracted": lambda x, i: torch.sub(x, i, alpha=3),
    "scaled and subtracted from": lambda x, i: torch.rsub(x, x.exp(), alpha=3),
    "a scaled number": lambda x, i: torch.rsub(x, 3.0, alpha=2),
}


def _half(*shape: int, scale: float = 1.0) -> Tensor:
    """Numbers in FP16 from 0 to `scale`, whose sums are above FP16's range where it is large."""
    return (torch.linspace(0, 1, math.prod(shape)).reshape(shape) * scale).half()


# In FP16, sums are computed in FP32 and rounded once.
HALF: dict[str, Callable[[], Tensor]] = {
    "a sum that meets its opposite": lambda: torch.cat(
        [_half(4, 64, scale=6e4), -_half(4, 64, scale=6e4)], 1
    ).sum(1),
    "a mean": lambda: _half(4, 64, scale=6e4).mean(1),
    "a mean of squares": lambda: _half(4, 64, scale=200).pow(2).mean(-1, keepdim=True),
    "a norm": lambda: _half(4, 64, scale=200).norm(dim=1),
    "a norm of small numbers": lambda: _half(4, 64, scale=1e-4).norm(dim=1),
    "a variance": lambda: _half(4, 64, scale=6e2).var(1),
    "a deviation and a mean": lambda: torch.stack(torch.std_mean(_half(4, 64, scale=6e2), 1)),
    "a variance and a mean": lambda: torch.stack(torch.var_mean(_half(4, 64, scale=6e2), 1)),
    "an instance norm": lambda: torch.nn.functional.instance_norm(
        _half(1, 2, 40, 40, scale=6e2) + 400
    ),
    "a running sum": lambda: _half(4, 64).cumsum(1),
    "a logarithm of a softmax": lambda: torch.log_softmax(_half(1, 3000, scale=0.01), 1),
    "a softmax of columns": lambda: torch.softmax(_half(3000, 1, scale=0.01), 0) * 1000,
    "an average of a pool": lambda: torch.nn.functional.avg_pool2d(_half(1, 2, 8, 8, scale=6e4), 8),
    "an average to a size": lambda: torch.nn.functional.adaptive_avg_pool2d(
        _half(1, 2, 8, 8, scale=6e4), 1
    ),
    "a batch norm": lambda: torch.nn.functional.batch_norm(
        _half(2, 4, 3), _half(4), _half(4) + 1, _half(4), _half(4)
    ),
    "a batch norm by statistics in FP32": lambda: torch.nn.functional.batch_norm(
        _half(2, 4, 3), torch.zeros(4), torch.ones(4)
    ),
}


class Computed(nn.Module):
    """What `function` makes of floats and of integers."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return self.function(x, counts)


@pytest.mark.parametrize("name", CASES)
def test_a_type_is_pytorchs(name: str) -> None:
    module = Computed(CASES[name])
    model = Model(import_model(torch.export.export(module, (X, COUNTS))).module)
    (actual,) = model.run(X.numpy(), COUNTS.numpy())
    expected = module(X, COUNTS).numpy()
    assert actual.dtype == expected.dtype
    # Of two ulp are the functions of both libraries.
    unit = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
    np.testing.assert_allclose(actual, expected, rtol=2 * unit, atol=2 * unit)


@pytest.mark.parametrize("name", HALF)
def test_sums_in_fp16_are_computed_in_fp32(name: str) -> None:
    module = Computed(lambda x, i: HALF[name]() + (x.sum() * 0).half())
    model = Model(import_model(torch.export.export(module, (X, COUNTS))).module)
    (actual,) = model.run(X.numpy(), COUNTS.numpy())
    expected = module(X, COUNTS).numpy()
    assert actual.dtype == expected.dtype == np.float16
    assert np.isfinite(expected).all()
    # Each result is rounded once, and a square root's argument before.
    unit = np.finfo(np.float16).eps
    np.testing.assert_allclose(actual, expected, rtol=2 * unit, atol=2 * unit)
