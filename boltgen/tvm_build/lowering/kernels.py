"""Kernels in TIR: positions of nonzero elements, equal rows, and non-maximum suppression.

Each Python function returns a TIR function, which reads its sizes from its tensors. The order of
results does not depend on the order of threads.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

_THREADS = 256


def places() -> tirx.PrimFunc:
    """Return the kernel for positions (m,) of set elements, from flags (n,) and prefix sums."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(var_flags: T.handle, var_sums: T.handle, var_out: T.handle):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        n, m = T.int64(), T.int64()
        flags = T.match_buffer(var_flags, (n,), "bool")
        sums = T.match_buffer(var_sums, (n,), "int64")
        out = T.match_buffer(var_out, (m,), "int64")
        for i in range(n):
            with T.sblock("places"):
                vi = T.axis.spatial(n, i)
                T.reads(flags[vi], sums[vi])
                T.writes(out[0:m])
                if flags[vi]:
                    out[sums[vi] - 1] = vi

    return kernel


def firsts(dtype: str) -> tirx.PrimFunc:
    """Return the kernel that finds, per row of (n, d), the first equal row and their number."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(var_rows: T.handle, var_first: T.handle, var_count: T.handle):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        n, d = T.int64(), T.int64()
        rows = T.match_buffer(var_rows, (n, d), dtype)
        first = T.match_buffer(var_first, (n,), "int64")
        count = T.match_buffer(var_count, (n,), "int64")
        for i in range(n):
            with T.sblock("firsts"):
                vi = T.axis.spatial(n, i)
                T.reads(rows[0:n, 0:d])
                T.writes(first[vi], count[vi])
                same = T.sblock_alloc_buffer((1,), "int64", scope="local")
                first[vi] = n
                count[vi] = T.int64(0)
                for j in range(n):
                    same[0] = T.int64(0)
                    for k in range(d):
                        if rows[vi, k] == rows[j, k]:
                            same[0] = same[0] + T.int64(1)
                    if same[0] == d:
                        count[vi] = count[vi] + T.int64(1)
                        first[vi] = T.min(first[vi], j)

    return kernel


def ranks(dtype: str, *, is_sorted: bool) -> tirx.PrimFunc:
    """Return the kernel for the rank of each row of (n, d) among the distinct rows.

    Distinct rows are in lexicographic order if `is_sorted`, else in the order of their first
    occurrence.
    """

    @T.prim_func(private=True, s_tir=True)
    def by_value(var_rows: T.handle, var_first: T.handle, var_rank: T.handle):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        n, d = T.int64(), T.int64()
        rows = T.match_buffer(var_rows, (n, d), dtype)
        first = T.match_buffer(var_first, (n,), "int64")
        rank = T.match_buffer(var_rank, (n,), "int64")
        for i in range(n):
            with T.sblock("ranks"):
                vi = T.axis.spatial(n, i)
                T.reads(rows[0:n, 0:d], first[0:n])
                T.writes(rank[vi])
                order = T.sblock_alloc_buffer((1,), "int64", scope="local")
                rank[vi] = T.int64(0)
                for j in range(n):
                    if first[j] == j:
                        order[0] = T.int64(0)  # the sign of the first difference
                        for k in range(d):
                            if order[0] == T.int64(0):
                                if rows[j, k] < rows[vi, k]:
                                    order[0] = T.int64(-1)
                                if rows[vi, k] < rows[j, k]:
                                    order[0] = T.int64(1)
                        if order[0] < T.int64(0):
                            rank[vi] = rank[vi] + T.int64(1)

    @T.prim_func(private=True, s_tir=True)
    def by_place(var_rows: T.handle, var_first: T.handle, var_rank: T.handle):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        n, d = T.int64(), T.int64()
        rows = T.match_buffer(var_rows, (n, d), dtype)  # noqa: F841
        first = T.match_buffer(var_first, (n,), "int64")
        rank = T.match_buffer(var_rank, (n,), "int64")
        for i in range(n):
            with T.sblock("ranks"):
                vi = T.axis.spatial(n, i)
                T.reads(first[0:n])
                T.writes(rank[vi])
                rank[vi] = T.int64(0)
                for j in range(n):
                    if first[j] == j and j < first[vi]:
                        rank[vi] = rank[vi] + T.int64(1)

    return by_value if is_sorted else by_place


def distinct(dtype: str) -> tirx.PrimFunc:
    """Return the kernel for the distinct rows (m, d), their first rows and their counts (m,)."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        var_rows: T.handle,
        var_first: T.handle,
        var_rank: T.handle,
        var_count: T.handle,
        var_out: T.handle,
        var_index: T.handle,
        var_counts: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        n, d, m = T.int64(), T.int64(), T.int64()
        rows = T.match_buffer(var_rows, (n, d), dtype)
        first = T.match_buffer(var_first, (n,), "int64")
        rank = T.match_buffer(var_rank, (n,), "int64")
        count = T.match_buffer(var_count, (n,), "int64")
        out = T.match_buffer(var_out, (m, d), dtype)
        index = T.match_buffer(var_index, (m,), "int64")
        counts = T.match_buffer(var_counts, (m,), "int64")
        for i in range(n):
            with T.sblock("distinct"):
                vi = T.axis.spatial(n, i)
                T.reads(rows[vi, 0:d], first[vi], rank[vi], count[vi])
                T.writes(out[0:m, 0:d], index[0:m], counts[0:m])
                if first[vi] == vi:
                    index[rank[vi]] = vi
                    counts[rank[vi]] = count[vi]
                    for k in range(d):
                        out[rank[vi], k] = rows[vi, k]

    return kernel


def _overlap(boxes: Any, batch: Any, left: Any, right: Any) -> Any:
    """Return the intersection of two boxes over their union; corners may be in any order."""

    def corners(box: Any) -> tuple[Any, ...]:
        y, x, v, u = (T.Cast("float32", boxes[batch, box, at]) for at in range(4))
        return T.min(y, v), T.min(x, u), T.max(y, v), T.max(x, u)

    top, begin, bottom, end = corners(left)
    above, before, below, after = corners(right)
    zero = T.float32(0)
    height = T.max(zero, T.min(bottom, below) - T.max(top, above))
    width = T.max(zero, T.min(end, after) - T.max(begin, before))
    areas = (bottom - top) * (end - begin) + (below - above) * (after - before)
    union = areas - height * width
    return T.Select(union <= zero, zero, height * width / union)


def suppression(
    boxes_dtype: str, scores_dtype: str, most: int, overlap: float, least: float
) -> tirx.PrimFunc:
    """Return the kernel of greedy non-maximum suppression: a box is dropped if it overlaps a better
    box of its class by `overlap` or more.

    A threadblock has one class. It reads boxes (b, n, 4), scores (b, c, n) and their order, and
    writes the indices of the kept boxes (b, c, n) and their count (b, c). It keeps at most `most`
    boxes with scores above `least`. The last tensor is scratch memory.
    """
    iou, score = float(overlap), float(least)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        var_boxes: T.handle,
        var_scores: T.handle,
        var_order: T.handle,
        var_kept: T.handle,
        var_count: T.handle,
        var_gone: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8, "tirx.is_scheduled": True})
        b, c, n = T.int64(), T.int64(), T.int64()
        boxes = T.match_buffer(var_boxes, (b, n, 4), boxes_dtype)
        scores = T.match_buffer(var_scores, (b, c, n), scores_dtype)
        order = T.match_buffer(var_order, (b, c, n), "int64")
        kept = T.match_buffer(var_kept, (b, c, n), "int64")
        count = T.match_buffer(var_count, (b, c), "int64")
        gone = T.match_buffer(var_gone, (b, c, n), "int8")
        for i in T.thread_binding(b, thread="blockIdx.y"):
            for j in T.thread_binding(c, thread="blockIdx.x"):
                for k in T.thread_binding(T.int64(_THREADS), thread="threadIdx.x"):
                    with T.sblock("suppression"):
                        vb, vc = T.axis.remap("SS", [i, j])
                        vt = T.axis.spatial(T.int64(_THREADS), k)
                        T.reads(boxes[vb, 0:n, 0:4], scores[vb, vc, 0:n], order[vb, vc, 0:n])
                        T.writes(kept[vb, vc, 0:n], count[vb, vc], gone[vb, vc, 0:n])
                        best = T.sblock_alloc_buffer((1,), "int64", scope="local")
                        made = T.sblock_alloc_buffer((1,), "int64", scope="local")
                        other = T.sblock_alloc_buffer((1,), "int64", scope="local")
                        for step in range((n + _THREADS - 1) // _THREADS):
                            if step * _THREADS + vt < n:
                                gone[vb, vc, step * _THREADS + vt] = T.int8(0)
                        best[0] = T.int64(0)
                        made[0] = T.int64(0)
                        T.evaluate(T.tvm_storage_sync("shared"))
                        while (
                            best[0] < n
                            and made[0] < T.int64(most)
                            and T.Cast("float32", scores[vb, vc, order[vb, vc, best[0]]])
                            > T.float32(score)
                        ):
                            if gone[vb, vc, best[0]] == T.int8(0):
                                if vt == T.int64(0):
                                    kept[vb, vc, made[0]] = order[vb, vc, best[0]]
                                made[0] = made[0] + T.int64(1)
                                other[0] = best[0] + T.int64(1) + vt
                                while other[0] < n:
                                    if _overlap(
                                        boxes,
                                        vb,
                                        order[vb, vc, best[0]],
                                        order[vb, vc, other[0]],
                                    ) >= T.float32(iou):
                                        gone[vb, vc, other[0]] = T.int8(1)
                                    other[0] = other[0] + T.int64(_THREADS)
                            T.evaluate(T.tvm_storage_sync("shared"))
                            best[0] = best[0] + T.int64(1)
                        if vt == T.int64(0):
                            count[vb, vc] = made[0]

    return kernel


def selected() -> tirx.PrimFunc:
    """Return the kernel for rows (m, 3) of batch, class and box, from the ends per class."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(var_kept: T.handle, var_count: T.handle, var_ends: T.handle, var_out: T.handle):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        b, c, n, m = T.int64(), T.int64(), T.int64(), T.int64()
        kept = T.match_buffer(var_kept, (b, c, n), "int64")
        count = T.match_buffer(var_count, (b, c), "int64")
        ends = T.match_buffer(var_ends, (b, c), "int64")
        out = T.match_buffer(var_out, (m, 3), "int64")
        for i, j, k in T.grid(b, c, n):
            with T.sblock("selected"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                T.reads(kept[vi, vj, vk], count[vi, vj], ends[vi, vj])
                T.writes(out[0:m, 0:3])
                if vk < count[vi, vj]:
                    out[ends[vi, vj] - count[vi, vj] + vk, 0] = vi
                    out[ends[vi, vj] - count[vi, vj] + vk, 1] = vj
                    out[ends[vi, vj] - count[vi, vj] + vk, 2] = kept[vi, vj, vk]

    return kernel
