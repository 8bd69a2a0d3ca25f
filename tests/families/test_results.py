"""What results besides D cost by the models of the families that write them."""

from __future__ import annotations

import pytest

from boltgen.arch import arch_named
from boltgen.families.constants import model_constants
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import candidates, predict
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Accumulator, ElementwiseGraph, LoadKind, Reduction, Store, Unary
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

# Little to multiply and much to write.
PROBLEM = Gemm(m=16384, n=4096, k=64)
NODES = (Accumulator(), Unary(UnaryOp.RELU, 0))


def test_sums_to_which_threadblocks_add_cost_a_launch_and_sums_of_some_columns_none() -> None:
    chip, problem = arch_named("sm_80"), Gemm(m=128, n=768, k=768)
    constants = model_constants(chip)
    config = Cutlass2Config(
        threadblock=Shape(64, 64, 64),
        warp=Shape(32, 32, 64),
        instruction=Shape(16, 8, 16),
        stages=3,
    )

    def time_us(*further: Store) -> float:
        workload = Workload.of(problem, ElementwiseGraph(NODES, (Store(1), *further)))
        return predict(workload, config, chip, constants).time_us

    whole, some = (
        Store(1, LoadKind.COLUMN, DType.F32, Reduction.SUM, columns) for columns in (0, 64)
    )
    assert time_us(some) == time_us()
    assert time_us(whole) == pytest.approx(time_us() + constants.launch_us)


@pytest.mark.parametrize(("arch", "family"), [("sm_80", "cutlass2"), ("sm_90a", "cutlass3")])
def test_a_further_result_costs_its_bytes(arch: str, family: str) -> None:
    chip = arch_named(arch)
    constants = model_constants(chip)

    def best_us(*further: Store) -> float:
        graph = ElementwiseGraph(NODES, (Store(1), *further))
        workload = Workload.of(PROBLEM, graph)
        found = [each for each in candidates(workload, chip) if each.family == family]
        return min(predict(workload, config, chip, constants).time_us for config in found)

    narrow, wide = (Store(0, dtype=dtype) for dtype in (DType.F16, DType.F32))
    times = [best_us(), best_us(narrow), best_us(wide), best_us(narrow, wide)]
    assert times == sorted(set(times))
    # Twice the bytes, all of which were as slow as DRAM is at best.
    least = PROBLEM.m * PROBLEM.n * wide.dtype.size_bytes / (chip.dram_gb_per_s * 1e3)
    assert times[3] - times[1] >= least
