"""PyTorch's activations, in the form that `relay.frontend.from_pytorch` gives them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from boltgen.device.choose import activate

activate("vgpu")

from boltgen.frontend.relay import steps  # noqa: E402
from boltgen.frontend.relay.importer import import_model  # noqa: E402


class Layer(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 24)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.dense(x))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (functional.softplus, "softplus(add(acc, row0))"),
        (
            lambda y: functional.softplus(y, beta=2),
            "divide(softplus(multiply(add(acc, row0), 2)), 2)",
        ),
        (lambda y: y * torch.tanh(functional.softplus(y)), "mish(add(acc, row0))"),
        (functional.silu, "silu(add(acc, row0))"),
        (functional.hardswish, "hardswish(add(acc, row0))"),
        (functional.gelu, "gelu_erf(add(acc, row0))"),
        (functional.relu6, "relu6(add(acc, row0))"),
        (lambda y: functional.leaky_relu(y, 0.2), "leaky_relu(add(acc, row0), 0.2)"),
    ],
)
def test_activations(function: Callable[[torch.Tensor], torch.Tensor], text: str) -> None:
    traced = torch.jit.trace(Layer(function).eval(), torch.zeros(8, 16))
    (region,) = steps.annotate(import_model(traced, shapes={"x": (8, 16)}).module).regions
    assert region.workload.last.epilogue.describe() == text
