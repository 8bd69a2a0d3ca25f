"""Blackwell's architectures as targets: a model whose leftovers TVM compiles for them too."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen


@pytest.mark.parametrize("arch", ["sm_100", "sm_121"])
def test_a_convolution_a_product_and_tvms_softmax(arch: str) -> None:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 8 * 8, 24),
        torch.nn.Softmax(0),
    ).eval()
    images = torch.randn(2, 8, 8, 8)
    artifact = boltgen.compile(module, (images,), arch=arch)
    assert [region.family for region in artifact.metadata.regions] == ["cutlass2", "skinny"]
    library = (artifact.folder / "model.so").read_bytes()
    # Of each kernel, and one of all that TVM generated.
    assert library.count(f".target {arch}\n".encode()) == len(artifact.metadata.kernels) + 1
    (name,) = (info.name for info in artifact.metadata.inputs)
    (found,) = artifact.run({name: images.numpy()}, device="vgpu").values()
    wanted = module(images).detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert wanted.max() > 0.05
