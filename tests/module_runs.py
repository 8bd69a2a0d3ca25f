"""Runs of compiled PyTorch modules on the virtual GPU, judged by the modules themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from boltgen.runtime.artifact import Artifact
from boltgen.runtime.vgpu import Vgpu
from tests.test_end_to_end import fp16_tolerance


def judged(
    artifact: Artifact, module: nn.Module, given: tuple[Tensor, ...], layers: int, checking: Vgpu
) -> list[str]:
    """The artifact computes what the module of so many `layers` does, and no check finds anything.

    Returns the kernels that were launched.
    """
    with torch.no_grad():
        expected: np.ndarray[Any, Any] = module(*given).numpy()
    checking.clear_launches()
    names = (each.name for each in artifact.metadata.inputs)
    named = dict(zip(names, (each.numpy() for each in given), strict=True))
    (output,) = artifact.run(named, device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= fp16_tolerance(expected, layers)
    return kernels
