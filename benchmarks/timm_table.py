"""Predicted times of image models beside times of PyTorch that others measured.

    python -m benchmarks.timm_table [MODEL...]

`data/models_timm_inference.csv` has images per second of PyTorch on three GPUs. boltgen partitions
the same models for the same GPUs and batches, and the analytical model predicts their time.
Nothing is compiled or executed here, and no time of boltgen's was measured: a row shows where a
model's time would go, and how much of it is TVM's.

Each region's time is checked against the roofline: it is no shorter than its operations at the
peak of the tensor cores, and than its operands and result at the bandwidth of DRAM.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.libraries.install import make_importable
from benchmarks.model_against_data import DATA, RTX_3090
from benchmarks.record import write
from benchmarks.trials.predicted import predicted as figures_of
from boltgen.arch import Arch, arch_named
from boltgen.artifact.coverage import coverage
from boltgen.pipeline import PipelineOptions, tasks_of
from boltgen.problems.region import Region
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import select
from boltgen.tvm_build.model import import_model, partition

TABLE = DATA / "models_timm_inference.csv"
TARGET = "every region's time on or above the roofline; the ratios show where headroom is"

# Source: NVIDIA, Ada GPU Architecture white paper, Table 2; L2's width is estimated as in
# `boltgen.arch`.
RTX_4090 = replace(
    arch_named("sm_89"),
    device="RTX 4090",
    sm_count=128,
    l2_bytes=72 * 1024 * 1024,
    l2_bytes_per_clock=20 * 128,
    dram_gb_per_s=1008,
    tensor_f32_acc_tflops=165.2,
    tensor_f16_acc_tflops=330.3,
    fp32_tflops=82.6,
)
DEVICES: Mapping[str, Arch] = {
    "rtx3090": RTX_3090,
    "rtx4090": RTX_4090,
    "rtx5090": arch_named("sm_120"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row of the table: a model's time on a GPU by PyTorch, in eager mode or compiled."""

    gpu: str
    mode: str
    model: str
    image: int
    batch: int
    step_us: float
    gmacs: float


def measured() -> tuple[Measured, ...]:
    """Return the rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as text:
        return tuple(
            Measured(
                gpu=row["gpu"],
                mode=row["mode"],
                model=row["model"],
                image=int(row["image"]),
                batch=int(row["batch"]),
                step_us=float(row["step_ms"]) * 1e3,
                gmacs=float(row["gmacs"]),
            )
            for row in csv.DictReader(text)
        )


def exported(name: str, image: int, batch: int) -> Any:
    """Return a model of timm with random weights, traced for `batch` images."""
    make_importable()
    module = importlib.import_module("timm").create_model(name, pretrained=False).eval()
    # The table counts RepVGG's multiply-adds after its branches are merged.
    module = importlib.import_module("timm.utils").reparameterize_model(module)
    with torch.no_grad():
        return torch.export.export(module, (torch.empty(batch, 3, image, image),))


def roofline_us(workload: Workload, arch: Arch) -> float:
    """Return the least time of a workload in microseconds: its operations, or its DRAM traffic."""
    first, last = workload.first.problem, workload.layers[-1].problem
    weights = sum(layer.problem.b_bytes for layer in workload.layers)
    out = math.prod(last.d_shape) * last.out_dtype.size_bytes
    peak = max(arch.tensor_f32_acc_tflops, arch.tensor_f16_acc_tflops)
    moved_us = (first.a_bytes + weights + out) / (arch.dram_gb_per_s * 1e3)
    return max(workload.flops / (peak * 1e6), moved_us)


def predicted(program: Any, arch: Arch) -> dict[str, Any]:
    """Return a model's predicted time on `arch`, and how much of it is TVM's, in microseconds.

    Raises:
        AssertionError: a region is predicted to be faster than the roofline.
    """
    model = import_model(program, PipelineOptions())
    partition(model, arch.name, PipelineOptions())
    regions: Sequence[Region] = model.regions
    decisions = select(list(tasks_of(regions)), arch)
    for decision in decisions:
        least_us = roofline_us(decision.workload, arch)
        assert decision.time_us >= least_us, (decision, least_us)
    figures = figures_of(model, arch)
    return {
        "predicted_us": figures["predicted_us"],
        "gflops": coverage(model.partitioned.placements).total_flops / 1e9,
        "share_of_flops": figures["share_of_flops"],
        "share_of_time_of_tvm": 1.0 - figures["share_of_time"],
        "launches": figures["launches"],
    }


def row_of(row: Measured) -> dict[str, Any]:
    """Return the figures of one model on one GPU."""
    figures = predicted(exported(row.model, row.image, row.batch), DEVICES[row.gpu])
    return {
        "model": row.model,
        "gpu": row.gpu,
        "batch": row.batch,
        "pytorch": row.mode,
        "gmacs_an_image": {
            "table": row.gmacs,
            "here": round(figures.pop("gflops") / 2 / row.batch, 2),
        },
        "measured_us": row.step_us,
        **figures,
        "measured_over_predicted": row.step_us / figures["predicted_us"],
    }


def main() -> int:
    """Predict all rows, or the rows of some models; keep the table if it has all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = sorted({row.model for row in measured()})
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(known))
    chosen = parser.parse_args().models
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"the table has no model {unknown[0]!r}; it has {', '.join(known)}")
    rows = [row_of(row) for row in measured() if not chosen or row.model in chosen]
    for row in rows:
        print(
            f"{row['model']:30} {row['gpu']}  {row['pytorch']:8}"
            f"measured {row['measured_us'] / 1e3:7.1f} ms  "
            f"predicted {row['predicted_us'] / 1e3:7.1f} ms  "
            f"{row['measured_over_predicted']:.2f}x  TVM {row['share_of_time_of_tvm']:.0%}"
        )
    if not chosen:
        median = {
            gpu: statistics.median(r["measured_over_predicted"] for r in rows if r["gpu"] == gpu)
            for gpu in DEVICES
        }
        write("timm_table", {"median_measured_over_predicted": median, "rows": rows}, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
