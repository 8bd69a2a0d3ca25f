"""The times of image models that others measured are read as they are meant."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import timm_table
from boltgen.arch import arch_named
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload


def test_the_table_has_nine_models_on_three_gpus():
    rows = timm_table.measured()
    assert Counter(row.gpu for row in rows) == {"rtx3090": 9, "rtx4090": 9, "rtx5090": 9}
    (row,) = (each for each in rows if (each.gpu, each.model) == ("rtx4090", "resnet50"))
    assert (row.mode, row.batch, row.step_us, row.gmacs) == ("compile", 1024, 127355.0, 4.11)


def test_every_gpu_of_the_table_has_a_row_of_its_own():
    assert {row.gpu for row in timm_table.measured()} == set(timm_table.DEVICES)
    assert {gpu: arch.device for gpu, arch in timm_table.DEVICES.items()} == {
        "rtx3090": "RTX 3090",
        "rtx4090": "RTX 4090",
        "rtx5090": "RTX 5090",
    }


def test_the_roofline_is_that_of_operations_or_of_bytes():
    arch = arch_named("sm_80")  # 312 TFLOP/s, 1555 GB/s
    large = Workload.of(Gemm(m=8192, n=8192, k=8192))
    assert timm_table.roofline_us(large, arch) == pytest.approx(2 * 8192**3 / 312e6)
    narrow = Workload.of(Gemm(m=8, n=4096, k=4096))
    moved = 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    assert timm_table.roofline_us(narrow, arch) == pytest.approx(moved / (arch.dram_gb_per_s * 1e3))


def test_a_model_that_the_table_lacks_is_named(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["timm_table", "resnet51"])
    with pytest.raises(SystemExit):
        timm_table.main()
    assert "no model 'resnet51'; it has convnext_tiny" in capsys.readouterr().err
