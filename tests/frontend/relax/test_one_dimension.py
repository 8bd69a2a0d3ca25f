"""Convolutions of one dimension, which kernels compute as those of images of height one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import boltgen
from benchmarks.harness.oracle_kernels import Model
from boltgen.device.vgpu import Vgpu
from boltgen.frontend.relax.importer import import_model
from tests.test_end_to_end import fp16_tolerance


def _norm() -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(24)
    nn.init.uniform_(norm.running_mean, -1, 1)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


@pytest.mark.parametrize(
    "last",
    [
        lambda: nn.Conv1d(24, 16, 1),
        lambda: nn.Conv1d(24, 16, 4, stride=3, padding=2, dilation=2),
        lambda: nn.Conv1d(24, 16, 2, bias=False),
    ],
    ids=["pointwise", "strided", "even"],
)
def test_two_convolutions(last: Callable[[], nn.Module], checking: Vgpu) -> None:
    torch.manual_seed(0)
    first = nn.Conv1d(8, 24, 3, padding=1)
    module = nn.Sequential(first, _norm(), nn.GELU(), last(), nn.ReLU()).eval()
    x = torch.randn(2, 8, 37)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    operators = [placed.operator for placed in artifact.metadata.placements if not placed.region]
    assert not {"nn.conv1d", "conv1d", "add", "gelu", "nn.gelu", "nn.relu"} & set(operators)
    (name,) = (info.name for info in artifact.metadata.inputs)
    (output,) = artifact.run({name: x.numpy()}).values()
    assert [finding.message for finding in checking.findings()] == []
    expected = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers=2)


class Causal(nn.Module):
    """A dilated convolution that reads no later sample, as of WaveNet."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(8, 16, 3, padding=1, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(nn.functional.pad(x, (3, 0))).tanh()


def test_zeros_before_the_first_sample_are_the_convolutions_padding() -> None:
    torch.manual_seed(0)
    module, x = Causal().eval(), torch.randn(2, 8, 37)
    program = torch.export.export(module, (x,))
    model = Model(import_model(program).module, normalise=True)
    (region,) = model.regions
    assert region.workload.first.problem.padding == (0, 4, 0, 1)
    operators = {op for g in model.annotated.graphs.values() for op in g.operators}
    assert "nn.pad" not in operators
    (output,) = model.run(x.numpy())
    expected = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers=1)


def test_groups_are_computed_by_kernels(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(8, 8, 3, groups=4), nn.Conv1d(8, 16, 1)).eval()
    x = torch.randn(1, 8, 20)
    artifact = boltgen.compile(module, (x,), arch="sm_80")
    # Groups of two channels are multiplied together, and the 1x1 convolution in the same kernel.
    (region,) = artifact.metadata.regions
    assert region.label == "conv2d + add + conv2d + add"
    (name,) = (info.name for info in artifact.metadata.inputs)
    (output,) = artifact.run({name: x.numpy()}).values()
    assert [finding.message for finding in checking.findings()] == []
    expected = module(x).detach().numpy()
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers=2)
