"""Mixtures of experts, compiled and run on the virtual GPU, their number of tokens open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.moe import drawn_tokens, expected, exported, group_gemm


def test_experts_compute_all_tokens_in_one_launch_for_each_product(checking: Vgpu) -> None:
    """All that is grouped is a kernel's, and the gate's kernel multiplies with what is up. The rows
    of tokens are taken by both; TVM takes those of the result alone.
    """
    artifact = boltgen.compile(exported(), arch="sm_80")
    grouped = [each for each in artifact.metadata.regions if each.family == "grouped"]
    assert [each.label for each in grouped] == [
        "take + grouped_matmul",
        "take + grouped_matmul + sigmoid + multiply + multiply",
        "grouped_matmul",
    ]
    assert ["a_rows" in each.problem for each in grouped] == [True, True, False]
    check = artifact.metadata.check
    assert check is not None
    assert check.passed
    for tokens in (2, 7, 31):
        x = drawn_tokens(tokens)
        checking.clear_launches()
        (actual,) = artifact.run({"given": x.numpy()}).values()
        exact, bound = expected(x)
        assert (np.abs(actual - exact) <= bound).all()
        kernels = [launch.kernel for launch in checking.launches()]
        assert sum("gathered_grouped" in name for name in kernels) == 2, kernels
        assert sum("take" in name for name in kernels) == 1, kernels
    # In TVM's own cumulative sum one lane may overwrite what another one of its warp reads.
    assert not [each for each in checking.findings() if "cumsum" not in each.message]


def test_rows_in_groups_are_tuned_on_the_virtual_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    report = boltgen.tune(group_gemm(), arch="sm_80", device="vgpu", budget="2trials", rest="off")
    assert (report.measured, report.failed) == (2, 0)
    (result,) = report.results
    assert result.task.workload.short == "grouped gemm 11x24x16 of 4 groups"
