"""Holds the space and the analytical model against what others measured.

    python -m benchmarks.model_against_data [--every N]

Two kinds of tables lie in `benchmarks/data`, with their sources and licences. One has times of
configurations: what does the model's pick cost, over the fastest of all? The other has the tile
that won a search for each problem: does our space have it, and is it among the first that the
model names? Those kernels do not split K, so that the figures are of launches with one slice;
beside them are those of all launches.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.cutlass2.candidates import enumerate_configs
from boltgen.families.cutlass2.config import Cutlass2Config, Shape
from boltgen.families.cutlass2.legality import violations
from boltgen.families.cutlass2.model import predict
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Gemm

DATA = Path(__file__).parent / "data"
TIMES = "gemm_rtx2080ti_cutlass_profiler.csv.gz"
WINNERS = "gemm_cuda_l2_winners.csv.gz"
# How many of the model's first are looked at: what a short tuning session measures.
FIRST_TIMED, FIRST_TILES = 8, 10

# Sources: NVIDIA, Turing GPU Architecture, Table 1 (reference board), and GA102 white paper,
# Table 2: FP32 sums at half rate; L2's width is estimated as in `boltgen.arch`.
RTX_2080_TI = replace(
    arch_named("sm_75"),
    device="RTX 2080 Ti",
    sm_count=68,
    l2_bytes=5632 * 1024,
    l2_bytes_per_clock=20 * 68,
    dram_gb_per_s=616,
    tensor_f32_acc_tflops=53.8,
    tensor_f16_acc_tflops=107.6,
    fp32_tflops=13.4,
    boost_mhz=1545,
)
RTX_3090 = replace(
    arch_named("sm_86"),
    device="RTX 3090",
    sm_count=82,
    l2_bytes_per_clock=20 * 82,
    dram_gb_per_s=936,
    tensor_f32_acc_tflops=71.2,
    tensor_f16_acc_tflops=142.3,
    fp32_tflops=35.6,
)
H100 = replace(arch_named("sm_90"), device="H100 SXM", dram_gb_per_s=3350)
DEVICES: Mapping[str, Arch] = {"a100": arch_named("sm_80"), "3090": RTX_3090, "h100": H100}

# Settings that the cross-validation chooses from.
FOLDS = 5
_DRIFTS = (1.5, 2.0, 2.5)
_STEP_CLOCKS = (20.0, 30.0, 40.0, 60.0)

Tile: TypeAlias = tuple[int, int, int]
Times: TypeAlias = dict[tuple[Gemm, int], dict[Cutlass2Config, float]]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as text:
        yield from csv.DictReader(text)


def times() -> Times:
    """Microseconds of each configuration, for each problem and number of slices of K.

    Their D is column-major: CUTLASS swaps the operands, so that its rows are the product's N.
    """
    found: Times = defaultdict(dict)
    for row in _rows(TIMES):
        if row["status"] != "success":
            continue
        n, m, k = (int(row[axis]) for axis in "mnk")
        problem = Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, out_dtype=DType.F32)
        tile = Shape(*(int(row[f"cta_{axis}"]) for axis in "mnk"))
        config = Cutlass2Config(
            threadblock=tile,
            warp=Shape(tile.m // int(row["warps_m"]), tile.n // int(row["warps_n"]), tile.k),
            instruction=Shape(*(int(row[f"inst_{axis}"]) for axis in "mnk")),
            stages=int(row["stages"]),
            swizzle=8,
            split_k=int(row["split_k_slices"]),
        )
        time_us = float(row["runtime_ms"]) * 1e3
        measured = found[problem, config.split_k]
        measured[config] = min(time_us, measured.get(config, time_us))
    return found


def slowdowns(
    table: Times, constants: ModelConstants, *, legal: bool
) -> tuple[list[float], list[float]]:
    """Of every problem, the time of the model's pick over the fastest's; and its first eight's."""
    picks, firsts = [], []
    for (problem, _), measured in table.items():
        fastest = min(measured.values())
        configs = [
            config
            for config in measured
            if not (legal and violations(problem, config, RTX_2080_TI))
        ]
        ranked = sorted(
            configs,
            key=lambda config: (
                predict(problem, ElementwiseGraph(), config, RTX_2080_TI, constants).time_us,
                config,
            ),
        )
        picks.append(measured[ranked[0]] / fastest)
        firsts.append(min(measured[config] for config in ranked[:FIRST_TIMED]) / fastest)
    return picks, firsts


def _slowdown_figures(table: Times, *, legal: bool) -> dict[str, Any]:
    picks, firsts = slowdowns(table, model_constants(), legal=legal)
    configs = {
        config.kernel
        for (problem, _), measured in table.items()
        for config in measured
        if not (legal and violations(problem, config, RTX_2080_TI))
    }
    return {
        "configurations": len(configs),
        "pick": _spread(picks),
        f"best_of_first_{FIRST_TIMED}": _spread(firsts),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(statistics.mean(values), 4),
        "median": round(statistics.median(values), 4),
        "worst": round(max(values), 4),
    }


def cross_validated(table: Times) -> dict[str, Any]:
    """Regret on problems that the choice of the fitted constants has not seen.

    Of each fold's others that setting is taken whose picks are slowest by the least factor.
    """
    shipped = model_constants()
    settings = [
        replace(shipped, drift_per_step=drift, step_clocks=step)
        for drift, step in itertools.product(_DRIFTS, _STEP_CLOCKS)
    ]
    logs = np.log([slowdowns(table, each, legal=True)[0] for each in settings])
    before = np.log(slowdowns(table, _before(shipped), legal=True)[0])
    fold = np.arange(logs.shape[1]) % FOLDS
    held, chosen = [], []
    for index in range(FOLDS):
        best = int(np.argmin(logs[:, fold != index].mean(axis=1)))
        held += np.exp(logs[best, fold == index]).tolist()
        chosen.append({"drift_per_step": settings[best].drift_per_step,
                       "step_clocks": settings[best].step_clocks})  # fmt: skip
    return {
        "folds": FOLDS,
        "chosen": chosen,
        "unseen": _spread(held),
        "without_drift": _spread(np.exp(before).tolist()),
    }


def _before(constants: ModelConstants) -> ModelConstants:
    """The constants without the term for threadblocks that drift apart, as estimated."""
    return replace(constants, drift_per_step=_DRIFTS[0] / 1e3, step_clocks=_STEP_CLOCKS[0])


def winners(gpu: str, accumulate: str, every: int = 1) -> list[tuple[Gemm, Tile]]:
    """Problems and the tiles that won, of kernels whose tile is known; one in `every`."""
    dtype = {"f32": DType.F32, "f16": DType.F16}[accumulate]
    found = []
    for row in _rows(WINNERS):
        if (row["gpu"], row["accumulate"]) == (gpu, accumulate) and row["tile_m"]:
            m, n, k = (int(row[axis]) for axis in "mnk")
            tile = (int(row["tile_m"]), int(row["tile_n"]), int(row["tile_k"]))
            problem = Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, acc_dtype=dtype)
            found.append((problem, tile))
    return found[::every]


def ranked_tiles(predicted: Mapping[Cutlass2Config, float]) -> list[Tile]:
    """Tiles by the least predicted time of their launches."""
    best: dict[Tile, float] = {}
    for config, time_us in predicted.items():
        tile = config.threadblock
        key = (tile.m, tile.n, tile.k)
        best[key] = min(time_us, best.get(key, time_us))
    return sorted(best, key=lambda tile: (best[tile], tile))


def recall(labels: Sequence[tuple[Gemm, Tile]], arch: Arch) -> dict[str, Any]:
    """How often the winner's tile is in our space, and among the model's first."""
    in_space, ranks, ranks_with_slices, kernels = [], [], [], []
    for problem, winner in labels:
        configs = enumerate_configs(problem, arch)
        predicted = {c: predict(problem, ElementwiseGraph(), c, arch).time_us for c in configs}
        whole = {config: us for config, us in predicted.items() if config.split_k == 1}
        tiles = ranked_tiles(whole)
        in_space.append(winner in tiles)
        ranks.append(_rank(winner, tiles))
        ranks_with_slices.append(_rank(winner, ranked_tiles(predicted)))
        kernels.append(len({config.kernel for config in configs}))
    return {
        "problems": len(labels),
        "kernels_a_problem": round(statistics.mean(kernels), 1),
        "in_space": _share(in_space),
        "first": _share([rank == 0 for rank in ranks]),
        f"in_first_{FIRST_TILES}": _share([rank < FIRST_TILES for rank in ranks]),
        f"in_first_{FIRST_TILES}_with_slices": _share(
            [rank < FIRST_TILES for rank in ranks_with_slices]
        ),
    }


def _rank(tile: Tile, tiles: Sequence[Tile]) -> int:
    return tiles.index(tile) if tile in tiles else len(tiles) + FIRST_TILES


def _share(hits: Sequence[bool]) -> float:
    return round(sum(hits) / len(hits), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only one label in so many")
    options = parser.parse_args()
    table = times()
    figures: dict[str, Any] = {
        "rtx_2080_ti_times": {
            "problems": len(table),
            "all": _slowdown_figures(table, legal=False),
            "legal": _slowdown_figures(table, legal=True),
            "cross_validated": cross_validated(table),
        }
    }
    for gpu, accumulate in (("a100", "f32"), ("a100", "f16"), ("3090", "f32"), ("h100", "f32")):
        labels = winners(gpu, accumulate, options.every)
        figures[f"{gpu}_{accumulate}_winners"] = recall(labels, DEVICES[gpu])
    write(
        "model_against_data",
        figures,
        target="2080 Ti, legal: pick 1.05, best of the first eight 1.01; A100 with FP32 sums: "
        "winner's tile in the space 0.95, in the first ten 0.80",
    )


if __name__ == "__main__":
    main()
