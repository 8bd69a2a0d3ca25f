"""Weights that show mistakes."""

from __future__ import annotations

from typing import Any

import torch

# Below this a constant scales a layer's result to next to nothing, so that training can begin.
_LEAST_SCALE = 0.05


def make_telling(module: Any, seed: int) -> None:
    """Give a fresh model's parameters random values, of about the size of trained ones.

    Fresh parameters hide mistakes: biases and some tables are zero, scales of norms are all one,
    scales of layers are tiny, and the statistics of batch norms are a normal distribution's.
    """
    generator = torch.Generator().manual_seed(seed)
    tables = {id(part.weight) for part in module.modules() if isinstance(part, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                spread = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(spread if id(parameter) in tables else _telling(parameter, spread))
        for part in module.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                _measure_something(part, generator)


def _telling(parameter: Any, spread: Any) -> Any:
    """Return new values of a parameter that is no table; `spread` has its shape, and a normal
    distribution.

    A matrix keeps the size of what it multiplies.
    """
    if parameter.unique().numel() > 1:
        return spread / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else parameter
    value = float(parameter.flatten()[0])
    if value != 0.0:
        return (value if abs(value) > _LEAST_SCALE else 0.5) * (1 + 0.1 * spread)
    return spread / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else 0.1 * spread


def _measure_something(norm: Any, generator: Any) -> None:
    """Give a batch norm a mean and a variance, as if it had seen data."""
    if norm.running_mean is not None:
        norm.running_mean.copy_(0.1 * torch.randn(norm.running_mean.shape, generator=generator))
        variances = torch.rand(norm.running_var.shape, generator=generator)
        norm.running_var.copy_(0.6 + 0.8 * variances)
