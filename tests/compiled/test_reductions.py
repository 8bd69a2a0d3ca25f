"""Sums that kernels write beside D, in a whole model on the virtual GPU under all its checks."""

from __future__ import annotations

import pytest
import torch

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.conformance.pooled import assert_right, network, sample


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_a_model_pools_and_sums_within_its_products(arch: str, checking: Vgpu) -> None:
    net = network()
    artifact = boltgen.compile(torch.export.export(net, (sample(0),)), arch=arch)
    stored = [region.epilogue for region in artifact.metadata.regions]
    assert sum("row float32: sum(" in each for each in stored) == 1
    assert sum("column float32: sum(" in each for each in stored) == 1
    (name,) = (each.name for each in artifact.metadata.inputs)
    for seed in (1, 2):  # a second run adds to nothing that the first one left
        checking.clear_launches()
        x = sample(seed)
        assert_right(list(artifact.run({name: x.numpy()}).values()), net, x)
    kernels = [launch.kernel for launch in checking.launches()]
    assert not [kernel for kernel in kernels if "mean" in kernel or "sum" in kernel], kernels
    assert [finding.message for finding in checking.findings()] == []
