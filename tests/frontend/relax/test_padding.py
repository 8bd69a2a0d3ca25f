"""Models of odd channel counts, padded: the same numbers from kernels that read whole vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases.relax_modules import operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.arch import arch_named
from boltgen.frontend.relax import import_model
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.region import Region
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.graph_costs import GraphTimes
from tests.frontend.relax.test_normalise import Net


@dataclass(frozen=True, slots=True)
class Always:
    """Alignment is worth anything: all that can be padded is."""

    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """The fewer elements a vector has, the slower."""
        times_us = tuple(
            sum(8 / width for width in (p.alignment_a, p.alignment_b, p.alignment_d))
            for p in (workload.single.problem for workload in workloads)
        )
        return KernelTimes(times_us=times_us, origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Free."""
        del bytes_moved, launches
        return 0.0


class DearBytes(Always):
    """What TVM has to move more costs more than anything saves."""

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """A microsecond for each byte."""
        del launches
        return float(bytes_moved)


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
    return [
        (r.workload.first.problem.alignment_a, r.workload.first.problem.alignment_d)
        for r in _products(model)
    ]


def _products(model: Model) -> list[Region]:
    """The regions that are no norms."""
    return [region for region in model.regions if region.workload.first.problem.has_b]


def _said(model: Model) -> list[str]:
    return list(model.annotated.padding)


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
    assert [r.workload.first.problem.d_shape[-1] for r in model.regions] == [16, 16, 16, 8]
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
    assert (first.workload.first.problem.d_shape[-1] == 8) is padded, (
        first.workload.last.epilogue.describe()
    )


@pytest.mark.parametrize("function", [torch.exp, torch.sigmoid, lambda y: 1.0 / (y + 4.0)])
def test_what_is_no_zero_in_padded_channels_changes_no_result(
    function: Callable[..., torch.Tensor],
) -> None:
    """A sum over all channels would see it, did the weights there not make it zero."""
    net = Net(lambda s, x: s.b(function(s.a(x))), a=nn.Conv2d(8, 5, 3), b=nn.Conv2d(5, 8, 1))
    model = _check(net, 1, 8, 6, 5)
    assert _alignments(model) == [(8, 8), (8, 8)]


def test_a_join_and_a_result_have_the_models_channels() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([torch.relu(s.a(x)), torch.relu(s.b(x))], 1)
        return s.c(y)

    net = Net(forward, a=nn.Conv2d(8, 5, 1), b=nn.Conv2d(8, 6, 1), c=nn.Conv2d(11, 3, 3))
    model = _check(net, 1, 8, 6, 5)
    a, b, c = model.regions
    assert (
        a.workload.first.problem.alignment_d,
        b.workload.first.problem.alignment_d,
        c.workload.first.problem.alignment_d,
    ) == (1, 2, 1)
    assert c.a_stored is not None and c.a_stored.channels == 11  # padded by a move in its call
    assert c.workload.first.problem.alignment_a == 8


def test_dense_layers() -> None:
    net = nn.Sequential(nn.Linear(13, 21), nn.GELU(), nn.Linear(21, 7), nn.ReLU(), nn.Linear(7, 10))
    model = _check(net, 5, 13)
    assert [r.workload.first.problem.alignment_a for r in model.regions] == [8, 8, 8]


def test_where_moves_do_not_pay_alignment_is_lower() -> None:
    net = Net(
        lambda s, x: s.b(torch.softmax(torch.relu(s.a(x)), 1)),  # of all channels
        a=nn.Conv2d(8, 6, 3),
        b=nn.Conv2d(6, 8, 3),
    )
    model = _check(net, 1, 8, 10, 10, costs=Never())
    assert [each.workload.first.problem.alignment_a for each in _products(model)] == [8, 2]
    (said,) = _said(model)
    assert said == (
        "conv2d: reads 6 channels and writes 8, as the model says; "
        "9.0 us against 1000003.0 us padded, made up"
    )


def _pooled(
    between: Callable[[torch.Tensor], torch.Tensor], channels: int = 5
) -> tuple[Net, tuple[int, ...]]:
    net = Net(
        lambda s, x: s.b(between(torch.relu(s.a(x)))),
        a=nn.Conv2d(8, 5, 3),
        b=nn.Conv2d(channels, 8, 3),
    )
    return net, (1, 8, 15, 13)


@pytest.mark.parametrize(
    "between",
    [
        lambda y: functional.max_pool2d(y, 2),
        lambda y: functional.max_pool2d(y, 3, stride=1, padding=1, ceil_mode=True),
        lambda y: functional.avg_pool2d(y, 3, stride=2, padding=1),
        lambda y: torch.relu(functional.avg_pool2d(functional.max_pool2d(y, 2), 2, stride=1)),
    ],
)
def test_padded_channels_flow_through_tvms_pools(
    between: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    net, shape = _pooled(between)
    model = _check(net, *shape, costs=Never())
    assert _alignments(model) == [(8, 8), (8, 8)]
    first, second = _said(model)
    assert first.startswith("conv2d: writes 5 channels as 8; ")
    assert second.startswith("conv2d: reads 5 channels as 8, written so by the kernel before; ")
    assert all(region.a_stored is None for region in model.regions[1:])


def test_pools_are_not_given_channels_where_their_bytes_cost_more_than_is_saved() -> None:
    net, shape = _pooled(lambda y: functional.max_pool2d(y, 2))
    model = _check(net, *shape, costs=DearBytes())
    assert _alignments(model) == [(8, 1), (1, 8)]
    assert "as the model says" in _said(model)[0]
    # 13 x 11 pixels are read and 6 x 5 are written, of three channels more.
    cheap = _said(_check(net, *shape, costs=Never()))
    written = 13 * 11 * 3 * 2
    assert f"; {written + (13 * 11 + 6 * 5) * 3 * 2} bytes more; " in cheap[0]


def test_what_mixes_channels_or_joins_behind_a_pool_has_the_models() -> None:
    def twice(y: torch.Tensor) -> torch.Tensor:
        return torch.cat([functional.max_pool2d(y, 2)] * 2, 1)

    net, shape = _pooled(twice, channels=10)
    model = _check(net, *shape, costs=Never())
    assert [region.workload.first.problem.alignment_a for region in model.regions] == [8, 2]
    assert model.regions[0].workload.first.problem.alignment_d == 1


def test_each_group_of_layers_is_decided_by_itself() -> None:
    """A pool that is dear does not keep other layers from being padded."""

    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(torch.relu(s.a(x)), 2)
        z = torch.softmax(torch.relu(s.b(y)), 1)
        return s.d(torch.relu(s.c(z)))

    net = Net(
        forward,
        a=nn.Conv2d(8, 5, 3),
        b=nn.Conv2d(5, 8, 3),
        c=nn.Conv2d(8, 7, 1),
        d=nn.Conv2d(7, 8, 1),
    )
    model = _check(net, 1, 8, 15, 13, costs=DearBytes())
    assert _alignments(model) == [(8, 1), (1, 4), (8, 8), (8, 8)]  # softmax reads FP32


def test_layers_are_padded_up_to_where_it_pays() -> None:
    """One tensor of a group may have more channels and another one not."""

    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(s.b(torch.relu(s.a(x))))
        return s.c(functional.max_pool2d(y, 2))

    net = Net(forward, a=nn.Conv2d(8, 5, 3), b=nn.Conv2d(5, 6, 3), c=nn.Conv2d(6, 8, 1))
    model = _check(net, 1, 8, 15, 13, costs=DearBytes())
    assert _alignments(model) == [(8, 8), (8, 2), (2, 8)]


def test_the_model_pads_the_channels_of_an_image_to_half_a_vector() -> None:
    net = Net(lambda s, x: torch.relu(s.a(x)), a=nn.Conv2d(3, 64, 7, stride=2, padding=3))
    costs = GraphTimes(arch_named("sm_80"))
    module = import_model(torch.export.export(net, (torch.zeros(8, 3, 224, 224),))).module
    model = Model(module, normalise=True, padding=costs)
    (region,) = model.regions
    # Half a vector for each pixel, and both pixels of a pair as one.
    assert region.workload.first.problem.a_shape == (8, 224, 112, 8)
    (said,) = _said(model)
    assert said.startswith("conv2d: reads 3 channels as 4, moved in the call; 1605632 bytes more; ")
    assert said.endswith(" unpadded, predicted by the analytical model")
