"""Norms that the products around them compute, in whole models on the virtual GPU."""

from __future__ import annotations

import pytest
import torch

import boltgen
from boltgen.runtime.vgpu import Vgpu
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
