"""What families say that a launch issues, where paper and pencil say it too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.attention import attention
from benchmarks.cases.chains import gemm_chain
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import arch_named
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.traits import Residence
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.family import Config
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.instructions import columns_launched
from boltgen.families.registry import FAMILIES
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.space import Shape
from boltgen.ir.dtypes import Layout
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

CONFIG = Cutlass2Config(
    threadblock=Shape(128, 64, 32), warp=Shape(64, 32, 32), instruction=Shape(16, 8, 16), stages=3
)
PRODUCT = Gemm(m=256, n=448, k=96)


def issued(workload: Workload, config: Config, arch: str = "sm_80") -> Instructions:
    return FAMILIES.of(config).instructions(workload, config, arch_named(arch))


def test_a_warp_of_a_product() -> None:
    found = issued(Workload.of(PRODUCT), CONFIG)
    assert (found.threadblocks, found.idle, found.steps) == (14, 0.0, 3)
    # 4 x 4 instructions for each 16 of K; 96 rows of 64 bytes are 12 ldmatrix of 512.
    assert found.products == 3 * 4 * 4 * 2
    assert found.shared_loads == 3 * 12
    # 192 rows of 64 bytes by 128 threads of 16 bytes.
    assert (found.copies, found.copy_bytes) == (3 * 6, 16)
    assert found.outputs == 64
    # The sum of each output is taken over.
    assert found.arithmetic == 64
    assert found.issued == found.products + found.shared_loads + found.copies + 64 + 64


def test_narrow_rows_take_more_copies_and_an_epilogue_its_instructions() -> None:
    narrow = issued(Workload.of(replace(PRODUCT, n=446), EPILOGUES["bias_relu"]), CONFIG)
    whole = issued(Workload.of(PRODUCT), CONFIG)
    assert (narrow.copies, narrow.copy_bytes) == (4 * whole.copies, 4)
    assert narrow.arithmetic > whole.outputs


def test_slices_of_k_have_fewer_steps_in_more_threadblocks() -> None:
    found = issued(Workload.of(PRODUCT), replace(CONFIG, split_k=3))
    assert (found.threadblocks, found.steps, found.products) == (42, 1, 32)


@pytest.mark.parametrize(
    ("swizzle", "columns", "launched"),
    [(1, 7, 7), (2, 7, 8), (4, 7, 8), (8, 7, 8), (8, 5, 8), (4, 5, 8), (8, 3, 4), (8, 2, 2)],
)
def test_whole_groups_of_columns_are_launched(swizzle: int, columns: int, launched: int) -> None:
    assert columns_launched(swizzle, columns) == launched
    found = issued(Workload.of(replace(PRODUCT, n=64 * columns)), replace(CONFIG, swizzle=swizzle))
    assert found.threadblocks == 2 * launched
    assert found.idle == pytest.approx(1 - columns / launched)


def test_a_warpgroup_has_half_of_a_tile_and_clusters_bring_parts() -> None:
    config = Cutlass3Config(
        threadblock=Shape(128, 128, 64), schedule=Schedule.COOPERATIVE, cluster_m=2
    )
    problem = Gemm(m=300, n=128, k=640, b_layout=Layout.COLUMN)
    found = issued(Workload.of(problem), config, "sm_90a")
    # Three tiles of rows, and one that fills a cluster of two.
    assert (found.threadblocks, found.idle, found.steps) == (4, 0.25, 10)
    assert found.products == 10 * 4
    # All of A, and half of B.
    assert (found.copies, found.copy_bytes) == (20, (128 + 64) * 64 * 2 / 2)
    assert found.outputs == 64


def test_a_chain_has_the_steps_of_all_layers() -> None:
    config = B2bSm90Config(threadblock_m=128, columns=(64, 64), residence=Residence.REGISTERS)
    found = issued(gemm_chain(256, 128, (64, 64), ("identity", "identity")), config, "sm_90a")
    # Two steps and one; TMA brings A in the first two.
    assert (found.threadblocks, found.steps, found.products, found.copies) == (2, 3, 12, 5)
    assert found.copy_bytes == (2 * (128 + 64) + 64) * 64 * 2 / 5


def test_attention_multiplies_twice_for_each_key() -> None:
    config = AttentionConfig(rows=64, keys=64, depth=64, columns=64, warps=4, stages=2)
    workload = attention(128, 256, 64, 64, batch=2)
    found = issued(workload, config)
    assert (found.threadblocks, found.steps) == (4, 4)
    # Sixteen rows by 64 keys by 64 of the head, and as many for the values.
    assert found.products == 4 * 2 * (8 * 4)
    assert found.arithmetic > 4 * 64 * 64 / 128  # one at least for each score
    assert issued(workload, config, "sm_75").products == 2 * found.products


def test_warps_of_few_rows_divide_k() -> None:
    config = SkinnyConfig(rows=8, columns=32, warps=4, steps=2)
    found = issued(Workload.of(Gemm(m=4, n=320, k=512, b_layout=Layout.COLUMN)), config)
    # Sixteen steps of 32, four for each warp.
    assert (found.threadblocks, found.steps) == (10, 4)
    # Two of sixteen columns, by 32 of K.
    assert found.products == 4 * 2 * 2
    assert found.outputs == 8 * 32 / 128
    shallow = issued(Workload.of(Gemm(m=4, n=320, k=40, b_layout=Layout.COLUMN)), config)
    assert shallow.steps == 1.0, "two warps have a step, and do two"
