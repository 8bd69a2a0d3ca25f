"""Embeddings before norms, compiled and run on the virtual GPU, their batch open."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.embeddings import expected, exported, tokens
from tests.test_end_to_end import fp16_tolerance

# Of places TVM takes the rows, by integers that it casts.
LAUNCHES = {"decoder": 2, "places": 4}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_norms_kernel_reads_the_table(name: str, arch: str, checking: Vgpu) -> None:
    artifact = boltgen.compile(exported(name), arch=arch)
    check = artifact.metadata.check
    assert check is not None
    assert check.passed
    names = [info.name for info in artifact.metadata.inputs]
    for batch in (1, 3, 8):
        given = tokens(name, batch)
        checking.clear_launches()
        arrays = dict(zip(names, (each.numpy() for each in given), strict=True))
        (actual,) = artifact.run(arrays).values()
        exact = expected(name, given)
        error = float(np.sqrt(np.mean(np.square(actual - exact))))
        assert error <= fp16_tolerance(exact, layers=2)
        kernels = [launch.kernel for launch in checking.launches()]
        assert sum("gathered" in kernel for kernel in kernels) == 1, kernels
        assert len(kernels) == LAUNCHES[name], kernels
    assert not checking.findings()
