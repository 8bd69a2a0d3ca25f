"""Products of one tensor become one where that is faster, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.cases.relax_modules import operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import annotate, import_model
from boltgen.graph.attributes import Slice
from boltgen.ir.dtypes import DType
from boltgen.passes.run import Passes
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.frontend.relax.test_normalise import Net

SHAPE = (2, 6, 16)
HEADS = 2


@dataclass(frozen=True, slots=True)
class Launches:
    """A kernel takes as long as any other, or a joined one much longer."""

    joined_us: float = 1.0
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """The joined one is asked for first."""
        times_us = (self.joined_us, *(1.0 for _ in workloads[1:]))
        return KernelTimes(times_us=times_us, origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Free."""
        del bytes_moved, launches
        return 0.0


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(*x.shape[:2], HEADS, -1).permute(0, 2, 1, 3)


def _attention(s: Net, x: torch.Tensor) -> torch.Tensor:
    weights = torch.softmax(heads(s.q(x)) @ heads(s.k(x)).mT, dim=-1)
    return (weights @ heads(s.v(x))).permute(0, 2, 1, 3).reshape(x.shape)


def _model(net: nn.Module, costs: Launches, precision: DType = DType.F16) -> Model:
    """`net` with its products joined by `costs`; its numbers are those of PyTorch in FP32."""
    torch.manual_seed(0)
    net, x = net.eval(), torch.randn(SHAPE)
    with torch.no_grad():
        wanted = net(x)
    module = import_model(torch.export.export(net, (x,))).module
    model = Model.of_annotated(annotate(module, passes=Passes(joining=costs, precision=precision)))
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    for actual, right in zip(model.run(x.numpy()), expected, strict=True):
        # At most four values in a row are rounded, none larger than twice the output.
        scale = max(1.0, 2 * float(right.abs().max()))
        atol = 4 * precision.unit_roundoff * scale
        np.testing.assert_allclose(actual, right.numpy(), rtol=0, atol=atol)
    return model


def _columns(model: Model) -> list[int]:
    return [region.workload.first.problem.gemm.n for region in model.regions]


@pytest.mark.parametrize("biased", [(), ("q", "v"), ("q", "k", "v")])
def test_projections_of_attention_are_one_product(biased: tuple[str, ...]) -> None:
    layers = {name: nn.Linear(16, 16, bias=name in biased) for name in "qkv"}
    model = _model(Net(_attention, **layers), Launches())
    projections, scores = model.regions
    assert _columns(model) == [48, 6]
    assert len(projections.workload.first.epilogue.loads) == (1 if biased else 0)
    assert scores.workload.batch == SHAPE[0] * HEADS
    # Nobody cuts them out: attention reads them there.
    assert [view.offset for view in scores.views] == [0, 16, 32, 0]
    assert {"strided_slice", "permute_dims"}.isdisjoint(operators(model.annotated))
    (note,) = model.annotated.notes
    assert "3 products" in note and "12x48x16" in note and "1.0 us" in note and "3.0" in note


def test_bfloat16_is_joined_too() -> None:
    layers = {name: nn.Linear(16, 16, bias=name != "k") for name in "qkv"}
    model = _model(Net(_attention, **layers), Launches(), DType.BF16)
    assert _columns(model)[0] == 48


def test_results_of_different_widths_lie_side_by_side() -> None:
    def forward(s: Net, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(heads(layer(x)).contiguous() for layer in (s.a, s.b))

    net = Net(forward, a=nn.Linear(16, 24), b=nn.Linear(16, 8, bias=False))
    assert _columns(_model(net, Launches())) == [32]


def test_products_stay_apart_where_that_is_as_fast() -> None:
    layers = {name: nn.Linear(16, 16) for name in "qkv"}
    model = _model(Net(_attention, **layers), Launches(joined_us=3.0))
    assert sorted(_columns(model)) == [6, 16, 16, 16]
    assert model.annotated.notes == ()


@pytest.mark.parametrize(
    "forward",
    [
        # Nothing transposes the results, so that cutting them out would be a pass of its own.
        lambda s, x: (s.a(x), heads(s.b(x)).contiguous()),
        lambda s, x: heads(s.a(x)) + s.b(x).mean(),
        # The kernel of each does more than a bias.
        lambda s, x: heads(torch.relu(s.a(x))) + heads(torch.relu(s.b(x))),
        # They multiply different tensors.
        lambda s, x: heads(s.a(x)) + heads(s.b(-x)),
    ],
)
def test_what_is_no_plain_product_of_the_same_tensor_stays(
    forward: Callable[..., object],
) -> None:
    net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 16))
    assert _columns(_model(net, Launches())) == [16, 16]


def test_weights_are_concatenated_when_the_model_is_compiled() -> None:
    layers = {name: nn.Linear(16, 16) for name in "qkv"}
    model = _model(Net(_attention, **layers), Launches())
    assert "concat" not in operators(model.annotated)
    ranges = [
        (expr.attrs.begin, expr.attrs.end)
        for expr in model.annotated.graphs["main"].exprs
        if isinstance(expr.attrs, Slice)
    ]
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
