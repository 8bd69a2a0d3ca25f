"""Kernels in Triton's language, written for the race; its compiler needs no GPU.

Pointers come first, then extents, then strides, then constants of the compiler.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """D (m, n) = A (m, k) B, with B column-major. K is a multiple of BK.

    Programs go down GROUP tiles before they go to the next column of tiles. Rows and columns
    beyond the end are read from the beginning again, and not written.
    """
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    program = tl.program_id(0)
    of_group = GROUP * tiles_n
    first = program // of_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % of_group % height
    tile_n = program % of_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % m
    columns = (tile_n * BN + tl.arange(0, BN)) % n
    depth = tl.arange(0, BK)
    a_tile = a + rows[:, None] * k + depth[None, :]
    b_tile = b + columns[None, :] * k + depth[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, k // BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BK
        b_tile += BK
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(d + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)
