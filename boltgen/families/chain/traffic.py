"""Bytes that back-to-back layers move, and their tiles in shared memory."""

from __future__ import annotations

from boltgen.families.roofline import (
    output_bytes_per_element,
    tensor_operand_bytes,
)
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload


def outputs_bytes(workload: Workload) -> int:
    """Return the bytes of the last layer's D, and of every layer's full-tensor operands."""
    last = workload.last
    gemm = last.problem.gemm
    total = gemm.m * gemm.n * output_bytes_per_element(last.problem, last.epilogue)
    for layer in workload.layers[:-1]:
        inner = layer.problem.gemm
        total += inner.m * inner.n * tensor_operand_bytes(layer.epilogue)
    return workload.batch * total


def operands_bytes(workload: Workload) -> int:
    """Return the bytes of A and every B, each once, as threadblocks read B at the same time."""
    return workload.first.problem.a_bytes + sum(layer.problem.b_bytes for layer in workload.layers)


def touched_per_filled(problem: Problem, columns: int) -> int:
    """Return touched sectors divided by filled sectors, for stores of a warp's `columns`.

    Lanes exchange 16-bit results to store vectors of 16 bytes if D is aligned to 16 bytes and
    `columns` are a multiple of 32. Otherwise each store writes 16 bytes in each of eight rows.
    Source: templates/include/boltgen/fragment_store.h, store_fragments.
    """
    if problem.out_dtype.size_bytes == DType.F32.size_bytes:
        return 1
    return (
        1
        if problem.alignment_d * problem.out_dtype.size_bytes >= VECTOR_BYTES and columns % 32 == 0
        else 2
    )


def swizzled_tile_bytes(rows: int, columns: int, dtype: DType) -> int:
    """Return the bytes of a tile in shared memory; rows are padded to blocks of 16-byte vectors.

    Source: templates/include/boltgen/b2b_tile.h, SwizzledTile.
    """
    block = 64 if columns > 32 else (32 if columns > 16 else 16)
    return rows * -(-columns // block) * block * dtype.size_bytes
