"""Runs of compiled PyTorch modules on the virtual GPU, judged by the modules themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
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


@dataclass(frozen=True, slots=True)
class Case:
    """A model, its inputs of a batch, and how many kernels are boltgen's and TVM's."""

    module: Callable[[], nn.Module]
    given: Callable[[int], tuple[Tensor, ...]]
    own: int
    kept: int
    layers: int = 8


def judged_case(case: Case, batch: int, checking: Vgpu) -> Artifact:
    """The model of a case for sm_80, which is right, and launches as many kernels as it says."""
    torch.manual_seed(0)
    module = case.module().eval()
    artifact = boltgen.compile(module, case.given(batch), arch="sm_80")
    kernels = judged(artifact, module, case.given(batch), case.layers, checking)
    kept = [kernel for kernel in kernels if "boltgen" not in kernel]
    assert (len(kernels) - len(kept), len(kept)) == (case.own, case.kept), kernels
    return artifact
