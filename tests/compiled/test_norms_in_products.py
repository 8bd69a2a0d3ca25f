"""Norms that the products around them compute, in whole models on the virtual GPU."""

from __future__ import annotations

import pytest
import torch

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.conformance.normed import NARROW, SIZES, PostNorm, PreNorm, assert_right, network


@pytest.mark.parametrize(("rows", "wide"), SIZES)
@pytest.mark.parametrize("made", [PostNorm, PreNorm])
def test_no_norm_has_a_kernel_of_its_own(
    made: type[PostNorm | PreNorm], rows: int, wide: int, checking: Vgpu
) -> None:
    net, x = network(made, wide), torch.randn(rows, NARROW)
    artifact = boltgen.compile(torch.export.export(net, (x,)), arch="sm_80")
    assert any("within the products" in note for note in artifact.metadata.notes)
    (name,) = (each.name for each in artifact.metadata.inputs)
    for seed in (1, 2):  # a second run adds to nothing that the first one left
        torch.manual_seed(seed)
        x = torch.randn(rows, NARROW)
        checking.clear_launches()
        (found,) = artifact.run({name: x.numpy()}).values()
        assert_right(found, net, x)
    kernels = [launch.kernel for launch in checking.launches() if "move" not in launch.kernel]
    assert len(kernels) == 4, kernels
    assert [finding.message for finding in checking.findings()] == []


def test_rows_may_be_an_open_number(checking: Vgpu) -> None:
    """One library, whose sizes are in other intervals of its tables."""
    most, (_, wide) = 256, SIZES[1]
    net = network(PostNorm, wide)
    rows = torch.export.Dim("rows", min=1, max=most)
    example = (torch.randn(2, NARROW),)
    program = torch.export.export(net, example, dynamic_shapes=({0: rows},))
    artifact = boltgen.compile(program, arch="sm_80")
    (name,) = (each.name for each in artifact.metadata.inputs)
    for count in (1, 67, most):
        x = torch.randn(count, NARROW)
        checking.clear_launches()
        (found,) = artifact.run({name: x.numpy()}).values()
        assert_right(found, net, x)
        kernels = [launch.kernel for launch in checking.launches() if "move" not in launch.kernel]
        assert len(kernels) == 4, kernels
    assert [finding.message for finding in checking.findings()] == []
