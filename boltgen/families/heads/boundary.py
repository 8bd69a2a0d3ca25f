"""Resize attention workloads, to reveal a kernel's mistakes at their edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from boltgen.families.boundary import first_beyond, last_below
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

_BATCH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The extents of any family's configuration that decide its boundaries.

    After `steps` of keys every threadblock has reused its pipeline's first stage.
    """

    rows: int
    keys: int
    depth: int
    columns: int
    steps: int


def edges(workload: Workload, tile: Tile, fits: Callable[[Workload], bool]) -> tuple[Workload, ...]:
    """Return a large workload and a small one, if they fit.

    The large one has a full tile of rows and a ragged one, more steps of keys than the pipeline has
    stages, a ragged last step, and the workload's head. The small one has a single row, the fewest
    keys, and a head that is ragged in the kernel's tile.
    """
    rows = tile.rows + tile.rows // 2 + 1
    large = resized(workload, {"m": rows})
    # A causal row without keys is NaN, which checks nothing.
    is_causal, window = workload.last.prologue.is_causal, workload.last.prologue.window
    keys = max(tile.keys * tile.steps, rows if is_causal else 0)
    if window:  # so that even the first row skips the first step
        keys = max(keys, window + rows + tile.keys)
    large = first_beyond(large, keys, _of("n"), fits)
    small = first_beyond(resized(workload, {"m": 1}), 0, _of("n"), fits)
    small = last_below(small, tile.depth, _of("k"), fits)
    small = last_below(small, tile.columns, _of("columns"), fits)
    return tuple(dict.fromkeys(each for each in (large, small) if fits(each)))


def _of(name: str) -> Callable[[Workload, int], Workload]:
    return lambda workload, extent: resized(workload, {name: extent})


def resized(workload: Workload, extents: Mapping[str, int]) -> Workload:
    """Return the attention with other `m` rows, `n` keys, `k` columns of Q, or `columns` of V."""
    before, after = workload.layers
    scores, output = before.problem, after.problem
    assert isinstance(scores, Gemm)
    assert isinstance(output, Gemm)
    batch = _BATCH if scores.batch > 1 else 1
    m, n, k = (extents.get(name, getattr(scores, name)) for name in ("m", "n", "k"))
    scores = replace(scores, batch=batch, m=m, n=n, k=k)
    output = replace(output, batch=batch, m=m, n=extents.get("columns", output.n), k=n)
    return Workload(layers=(replace(before, problem=scores), replace(after, problem=output)))
