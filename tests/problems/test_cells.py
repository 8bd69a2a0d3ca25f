"""Cells of symbolic workloads: they cover every size once, and are aligned as their kernels are."""

from __future__ import annotations

import itertools
import math

import pytest

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.cells import cells, joined, localised, representative, steps
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

B, S = symbolic(Symbol("batch", 1, 64)), symbolic(Symbol("length", 16, 512))


def _local(problem: Problem) -> Workload:
    return localised(Workload.of(problem))[0]


def test_a_workload_gets_symbols_of_its_own() -> None:
    workload, made = localised(Workload.of(Gemm(m=B * S, n=768, k=64)))
    assert workload.symbols == (Symbol("m", 16, 64 * 512),)
    assert made == {B * S: workload.first.problem.gemm.m}


def test_extents_that_are_the_same_stay_the_same() -> None:
    scores = Gemm(batch=12 * B, m=S, n=S, k=64, out_dtype=DType.F32)
    context = Gemm(batch=12 * B, m=S, n=64, k=S)
    attention = Workload(layers=(Layer(problem=scores), Layer(problem=context, prologue=SOFTMAX)))
    workload, _ = localised(attention)
    assert workload.symbols == (Symbol("batch", 12, 768), Symbol("m", 16, 512))
    first, last = (layer.problem.gemm for layer in workload.layers)
    assert first.m == first.n == last.m == last.k


@pytest.mark.parametrize("high", [1, 2, 15, 16, 17, 100, 512, 40000])
def test_cells_of_one_symbol_cover_its_range_once(high: int) -> None:
    found = cells(_local(Gemm(m=symbolic(Symbol("rows", 1, high)), n=64, k=64)))
    if high == 1:
        assert [each.symbols for each in found] == [()]
        return
    parts = [cell.symbols[0] for cell in found]
    assert (parts[0].low, parts[-1].high) == (1, high)
    assert all(left.high + 1 == right.low for left, right in itertools.pairwise(parts))
    assert len(parts) <= 25


def test_cells_of_two_symbols_are_all_pairs_of_parts() -> None:
    found = cells(_local(Gemm(batch=12 * B, m=S, n=64, k=64)))
    pairs = [cell.symbols for cell in found]
    assert len(pairs) == len(set(pairs)) <= 25
    sizes = sum((b.high - b.low + 1) * (m.high - m.low + 1) for b, m in pairs)
    assert sizes == (768 - 12 + 1) * (512 - 16 + 1)


@pytest.mark.parametrize("high", [2, 17, 5000])
def test_steps_cover_the_range_and_end_with_tiles(high: int) -> None:
    workload = _local(Gemm(m=symbolic(Symbol("rows", 1, high)), n=64, k=64))
    parts = [cell.symbols[0] for cell in steps(workload)]
    assert (parts[0].low, parts[-1].high) == (1, high)
    assert all(left.high + 1 == right.low for left, right in itertools.pairwise(parts))
    assert all(part.high - part.low < max(16, part.low / 16) for part in parts)
    # But for the ends of cells, a step ends with a tile that is at least a 32nd of it.
    cell_ends = {cell.symbols[0].high for cell in cells(workload)}
    for part in parts:
        tile = max(16, 1 << (max(part.low // 32, 1).bit_length() - 1))
        assert part.high in cell_ends or part.high % tile == 0


def test_steps_of_two_symbols_lie_in_one_cell_each() -> None:
    workload = _local(Gemm(batch=12 * B, m=S, n=64, k=64))
    whole = [cell.symbols for cell in cells(workload)]
    found = [step.symbols for step in steps(workload)]
    assert sum(math.prod(each.high - each.low + 1 for each in step) for step in found) == (
        768 - 12 + 1
    ) * (512 - 16 + 1)
    for step in found:
        inside = [
            cell
            for cell in whole
            if all(
                outer.low <= inner.low <= inner.high <= outer.high
                for outer, inner in zip(cell, step, strict=True)
            )
        ]
        assert len(inside) == 1


def test_steps_of_many_symbols_are_their_cells() -> None:
    open_in_three = Gemm(batch=12 * B, m=S, n=symbolic(Symbol("columns", 8, 64)), k=64)
    workload = _local(open_in_three)
    assert list(steps(workload)) == list(cells(workload))


def test_neighbours_are_joined_along_their_last_symbol() -> None:
    found = cells(_local(Gemm(batch=12 * B, m=S, n=64, k=64)))
    whole = joined(found[0], found[1])
    assert whole is not None
    (batch, rows), (_, following) = found[0].symbols, found[1].symbols
    assert whole.symbols == (batch, Symbol("m", rows.low, following.high))
    of_other_batches = next(cell for cell in found if cell.symbols[0] != batch)
    assert joined(found[0], of_other_batches) is None
    assert joined(found[0], found[2]) is None


def test_few_images_have_cells_of_their_own() -> None:
    images = symbolic(Symbol("images", 1, 8))
    found = cells(_local(Conv2d(n=images, h=8, w=8, c=8, k=8, r=3, s=3)))
    assert [cell.symbols[0].high for cell in found] == [1, 2, 3, 4, 6, 8]


def test_a_kernel_is_chosen_for_the_greatest_sizes_of_its_cell() -> None:
    *_, last = cells(_local(Gemm(m=B * S, n=768, k=64)))
    assert representative(last).first.problem.gemm.m == 64 * 512


def test_sizes_that_decide_the_alignment_are_aligned_as_all_of_the_cell() -> None:
    *_, last = cells(_local(Gemm(batch=12 * B, m=64, n=S, k=64)))
    chosen = representative(last).first.problem
    assert (chosen.gemm.n, chosen.alignment_b, chosen.alignment_d) == (511, 1, 1)
    multiple = _local(Gemm(batch=12 * B, m=64, n=8 * S, k=64))
    assert multiple.first.problem.alignment_d == 1  # its own symbol may have any value


def test_a_workload_of_known_sizes_is_one_cell() -> None:
    workload = Workload.of(Gemm(m=8, n=8, k=8))
    assert cells(workload) == (workload,)
    assert representative(workload) == workload


def test_a_problem_out_of_range_anywhere_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="batch, from 1 to 2147483648"):
        Gemm(m=symbolic(Symbol("batch", 1, 2**31)), n=8, k=8)
