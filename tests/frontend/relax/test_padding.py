"""Models of odd channel counts, padded: the same numbers from kernels that read whole vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from boltgen.arch import arch_named
from boltgen.frontend.padding import PADDING
from boltgen.frontend.relax import import_model
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Problem
from boltgen.tune.padding import ModelPaddingCosts
from tests.frontend.modules import operators
from tests.frontend.oracle_kernels import Model
from tests.frontend.relax.test_normalise import Net


@dataclass(frozen=True, slots=True)
class Always:
    """Alignment is worth anything: all that can be padded is."""

    def kernel_us(self, problem: Problem, epilogue: Epilogue) -> float:
        """The fewer elements a vector has, the slower."""
        del epilogue
        widths = (problem.alignment_a, problem.alignment_b, problem.alignment_d)
        return sum(8 / width for width in widths)

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Free."""
        del bytes_moved, launches
        return 0.0


class Never(Always):
    """Moves cost more than anything saves."""

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """More than any kernel."""
        return 1e6 * launches


def _check(net: nn.Module, *shape: int, costs: Always | None = None) -> Model:
    net = net.eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        wanted = net(x).numpy()
    module = import_model(torch.export.export(net, (x,))).module
    model = Model(module, normalise=True, padding=costs or Always())
    (actual,) = model.run(x.numpy())
    scale = max(1.0, float(np.abs(wanted).max()))
    # Some ten values are rounded to FP16 on the way, 2^-11 of themselves each.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=10 * 2.0**-11 * scale)
    return model


def _alignments(model: Model) -> list[tuple[int, int]]:
    return [(r.problem.alignment_a, r.problem.alignment_d) for r in model.regions]


def _said(model: Model) -> list[str]:
    return str(model.annotated.attrs[PADDING]).splitlines()


def test_padded_channels_flow_through_layers_and_residuals() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(s.a(x))
        y = torch.relu(s.c(torch.sigmoid(s.b(y))) + y)
        return s.d(y)

    net = Net(
        forward,
        a=nn.Conv2d(3, 13, 3, padding=1),
        b=nn.Conv2d(13, 13, 3, padding=1),
        c=nn.Conv2d(13, 13, 1),
        d=nn.Conv2d(13, 8, 1),
    )
    model = _check(net, 2, 3, 9, 7)
    assert _alignments(model) == [(8, 8)] * 4
    assert [isinstance(r.problem, Conv2d) and r.problem.k for r in model.regions] == [16, 16, 16, 8]
    first, *rest = model.regions
    assert first.a_stored is not None and first.a_stored.channels == 3
    assert all(region.a_stored is None for region in rest)  # nobody pads or crops in between
    assert operators(model.annotated) == []
    assert len(_said(model)) == 4
    assert _said(model)[1].startswith(
        "conv2d: reads 13 channels as 16, written so by the kernel before; writes 13 channels as 16"
    )


@pytest.mark.parametrize(
    ("function", "padded"),
    [
        (torch.exp, True),
        (torch.sigmoid, True),
        (torch.sqrt, True),
        (torch.log, False),  # of zero: minus infinity, which a zero weight makes NaN
        (lambda y: 1.0 / y, False),
        (lambda y: torch.exp(torch.exp(torch.exp(y) * 3)), False),  # beyond FP16
    ],
)
def test_padding_stays_finite(function: Callable[..., torch.Tensor], padded: bool) -> None:
    net = Net(lambda s, x: s.b(function(s.a(x))), a=nn.Conv2d(8, 5, 1), b=nn.Conv2d(5, 8, 1))
    module = import_model(torch.export.export(net, (torch.zeros(1, 8, 4, 5),))).module
    first, _ = Model(module, normalise=True, padding=Always()).regions
    assert isinstance(first.problem, Conv2d)
    assert (first.problem.k == 8) is padded, first.epilogue.describe()


def test_a_join_and_a_result_have_the_models_channels() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([torch.relu(s.a(x)), torch.relu(s.b(x))], 1)
        return s.c(y)

    net = Net(forward, a=nn.Conv2d(8, 5, 1), b=nn.Conv2d(8, 6, 1), c=nn.Conv2d(11, 3, 3))
    model = _check(net, 1, 8, 6, 5)
    a, b, c = model.regions
    assert (a.problem.alignment_d, b.problem.alignment_d, c.problem.alignment_d) == (1, 2, 1)
    assert c.a_stored is not None and c.a_stored.channels == 11  # padded by a move in its call
    assert c.problem.alignment_a == 8


def test_dense_layers() -> None:
    net = nn.Sequential(nn.Linear(13, 21), nn.GELU(), nn.Linear(21, 7), nn.ReLU(), nn.Linear(7, 10))
    model = _check(net, 5, 13)
    assert [r.problem.alignment_a for r in model.regions] == [8, 8, 8]


def test_where_moves_do_not_pay_alignment_is_lower() -> None:
    net = Net(
        lambda s, x: s.b(functional.max_pool2d(torch.relu(s.a(x)), 2)),
        a=nn.Conv2d(8, 6, 3),
        b=nn.Conv2d(6, 8, 3),
    )
    model = _check(net, 1, 8, 10, 10, costs=Never())
    assert [region.problem.alignment_a for region in model.regions] == [8, 2]
    assert _said(model) == []


def test_the_model_pads_the_channels_of_an_image_to_half_a_vector() -> None:
    net = Net(lambda s, x: torch.relu(s.a(x)), a=nn.Conv2d(3, 64, 7, stride=2, padding=3))
    costs = ModelPaddingCosts(arch_named("sm_80"), DType.F32)
    module = import_model(torch.export.export(net, (torch.zeros(8, 3, 224, 224),))).module
    model = Model(module, normalise=True, padding=costs)
    (region,) = model.regions
    assert isinstance(region.problem, Conv2d)
    assert region.problem.c == 4
    assert _said(model) == ["conv2d: reads 3 channels as 4, moved in the call; 1605632 bytes more"]
