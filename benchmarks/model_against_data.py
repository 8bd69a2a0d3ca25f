"""Holds the space and the analytical model against what others measured.

    python -m benchmarks.model_against_data [--every N]

Two kinds of tables lie in `benchmarks/data`, with their sources and licences. One has times of
configurations: how much slower is the model's pick than the fastest? The other has the tile that
won a search for each problem: does our space have it, and is it among the first that the models
name? The kernels of that search do not split K, so the figures are for launches with one slice;
figures for all launches stand beside them. On an H100 two families compete, and the models also
have to name the winner's family.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from benchmarks.harness.cross_validation import cross_validated as cross_validated_trees
from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.cost.learned import Example, regrets
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass3.config import Cutlass3Config
from boltgen.families.family import Config
from boltgen.families.mma_sync.legality import violations
from boltgen.families.mma_sync.model import predict
from boltgen.families.registry import candidates, compiled
from boltgen.families.registry import predict as predict_of
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

DATA = Path(__file__).parent / "data"
TIMES = "gemm_rtx2080ti_cutlass_profiler.csv.gz"
WINNERS = "gemm_cuda_l2_winners.csv.gz"
# The number of the model's first candidates that count: a short tuning session measures so many.
FIRST_TIMED, FIRST_TILES = 8, {"a100": 10, "3090": 10, "h100": 8}
# The styles of winners that CUTLASS's collective builder made; the others are of mma.sync.
BUILDERS = frozenset({"builder", "builder_streamk"})

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
H100 = replace(arch_named("sm_90a"), device="H100 SXM", dram_gb_per_s=3350)
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
    """Return, for every problem, the time of the model's pick over the fastest's, and the best of
    its first eight's.
    """
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
    picks, firsts = slowdowns(table, model_constants(RTX_2080_TI), legal=legal)
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
    shipped = model_constants(RTX_2080_TI)
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


def learned_examples(table: Times) -> list[Example]:
    """The times of legal configurations, for cost models to learn from."""
    return [
        Example(workload=Workload.of(problem), config=config, arch=RTX_2080_TI, time_us=time_us)
        for (problem, _), measured in table.items()
        for config, time_us in measured.items()
        if not violations(problem, config, RTX_2080_TI)
    ]


def learned(table: Times) -> dict[str, Any]:
    """Return the pick's time over the fastest's, by models that have not seen the problem.

    Slices of K compete here. `corrected` is what `boltgen db train` makes, `times_alone` trees
    that learn times and not the analytical model's error, and `ranked` trees that learn which of
    two configurations is faster.
    """
    examples = learned_examples(table)
    measured_logs = np.log([each.time_us for each in examples])
    analytical = np.log(
        [predict_of(each.workload, each.config, RTX_2080_TI).time_us for each in examples]
    )
    by_model = {
        "analytical": analytical,
        "corrected": cross_validated_trees(examples),
        "times_alone": cross_validated_trees(examples, corrects=False),
        "ranked": cross_validated_trees(examples, ranks=True),
    }
    return {
        "times": len(examples),
        "problems": len({each.workload for each in examples}),
        **{
            name: {
                "pick": _spread(regrets(examples, logs)),
                "log_error": round(float(np.sqrt(np.mean((logs - measured_logs) ** 2))), 3),
            }
            for name, logs in by_model.items()
        },
    }


def _before(constants: ModelConstants) -> ModelConstants:
    """The constants without the term for threadblocks that drift apart, as estimated."""
    return replace(constants, drift_per_step=_DRIFTS[0] / 1e3, step_clocks=_STEP_CLOCKS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The fastest kernel that a search found for a problem; `tile` is None if it is unknown."""

    problem: Gemm
    tile: Tile | None
    family: str


def winners(gpu: str, accumulate: str, every: int = 1) -> list[Winner]:
    """The winners on a GPU that sum in a type; one in `every`."""
    dtype = {"f32": DType.F32, "f16": DType.F16}[accumulate]
    found = []
    for row in _rows(WINNERS):
        if (row["gpu"], row["accumulate"]) == (gpu, accumulate):
            m, n, k = (int(row[axis]) for axis in "mnk")
            tile = tuple(int(row[f"tile_{axis}"]) for axis in "mnk") if row["tile_m"] else None
            won = Winner(
                problem=Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, acc_dtype=dtype),
                tile=cast(Tile | None, tile),
                family="cutlass3" if row["style"] in BUILDERS else "cutlass2",
            )
            found.append(won)
    return found[::every]


def ranked_tiles(predicted: Mapping[Config, float]) -> list[Tile]:
    """Tiles by the least predicted time of their launches, of whatever family."""
    best: dict[Tile, float] = {}
    for config, time_us in predicted.items():
        m, n, k = (int(extent) for extent in config.tile.split("x"))
        best[m, n, k] = min(time_us, best.get((m, n, k), time_us))
    return sorted(best, key=lambda tile: (best[tile], tile))


def recall(won: Sequence[Winner], arch: Arch, first: int) -> dict[str, Any]:
    """Return how often the winner's tile is in our space, and among the models' `first`; and how
    often the models name its family.
    """
    of_family: dict[str, list[bool]] = defaultdict(list)
    in_space, ranks, ranks_with_slices, kernels = [], [], [], []
    for winner in won:
        workload = Workload.of(winner.problem)
        configs = candidates(workload, arch)
        predicted = {config: predict_of(workload, config, arch).time_us for config in configs}
        whole = {config: us for config, us in predicted.items() if _slices(config) == 1}
        of_family[winner.family].append(
            min(whole, key=lambda config: whole[config]).family == winner.family
        )
        if winner.tile is None:
            continue
        tiles = ranked_tiles(whole)
        in_space.append(winner.tile in tiles)
        ranks.append(_rank(winner.tile, tiles))
        ranks_with_slices.append(_rank(winner.tile, ranked_tiles(predicted)))
        kernels.append(len({compiled(config) for config in configs}))
    return {
        "problems": len(ranks),
        "kernels_a_problem": round(statistics.mean(kernels), 1),
        "in_space": _share(in_space),
        "first": _share([rank == 0 for rank in ranks]),
        f"in_first_{first}": _share([rank < first for rank in ranks]),
        f"in_first_{first}_with_slices": _share([rank < first for rank in ranks_with_slices]),
        **(_family_figures(of_family) if len(of_family) > 1 else {}),
    }


def _family_figures(right: Mapping[str, list[bool]]) -> dict[str, Any]:
    every = [each for of_one in right.values() for each in of_one]
    of_each = {f"right_{name}": _share(right[name]) for name in sorted(right)}
    return {"family": {"problems": len(every), "right": _share(every), **of_each}}


def _slices(config: Config) -> int:
    return config.split_k if isinstance(config, (Cutlass2Config, Cutlass3Config)) else 1


def _rank(tile: Tile, tiles: Sequence[Tile]) -> int:
    return tiles.index(tile) if tile in tiles else sys.maxsize


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
            "learned": learned(table),
        }
    }
    for gpu, accumulate in (("a100", "f32"), ("a100", "f16"), ("3090", "f32"), ("h100", "f32")):
        won = winners(gpu, accumulate, options.every)
        figures[f"{gpu}_{accumulate}_winners"] = recall(won, DEVICES[gpu], FIRST_TILES[gpu])
    write(
        "model_against_data",
        figures,
        target="2080 Ti, legal: pick 1.05, best of the first eight 1.01; A100 with FP32 sums: "
        "winner's tile in the space 0.95, in the first ten 0.80; H100: in the first eight 0.85",
    )


if __name__ == "__main__":
    main()
