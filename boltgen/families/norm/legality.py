"""The rules of legal configurations for norms of rows, and their resources."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError
from boltgen.families.family import Footprint
from boltgen.families.norm.config import NormConfig
from boltgen.families.norm.traits import RowNorm, groups_of_vector, norm_of, rows_of, vector_of
from boltgen.families.rejections import others_rejection
from boltgen.families.resources import BOOKKEEPING_REGISTERS, capacity_violations, value_violations
from boltgen.families.space import Violation
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import MAX_OPERANDS
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Layer, Workload

THREADS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
VECTORS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
ROWS = (1, 2, 4, 8, 16, 32)
# The most threads of a threadblock. Source: CUDA C++ Programming Guide, compute capabilities.
_MOST_THREADS = 1024
_WARP = 32
# The elements that a thread keeps in registers, besides temporaries.
_MOST_VALUES = 64
# The fewest threads of a streamed row, and the elements of each at a time: enough loads are in
# flight, and enough registers are left for other threads.
_STREAMED_THREADS, _STREAMED_VALUES = 256, (16, 32)
# Rows that fit into registers are streamed if one threadblock would take most of an SM's registers.
_MOST_HELD = 1 << 14
# Counts of elements are FP32 numbers, which represent all integers only up to here.
_MOST_COUNTED = 1 << 24
# The least bytes of neighbouring elements of a row, a quarter of a sector: L2 moves about four
# times as much as DRAM, so wasted reads there are hidden by DRAM.
LEAST_RUN_BYTES = 8

_HEADER = "templates/include/boltgen/norm.h"


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    del arch  # the kernels use only features of all architectures
    if workload.is_fused:
        return f"it computes one norm, not {len(workload.layers)} layers back to back"
    layer = workload.single
    if not isinstance(layer.problem, (Norm, GroupNorm)):
        return f"it computes norms of rows, not a {type(layer.problem).__name__}"
    if isinstance(layer.problem, GroupNorm) and (run := run_bytes(layer.problem)) < LEAST_RUN_BYTES:
        return (
            f"its groups have {run} bytes of a pixel where they lie; {LEAST_RUN_BYTES} are read in "
            "place"
        )
    if layer.prologue.has_softmax:
        return "a softmax is a problem of its own here, not a prologue"
    if layer.epilogue.stores:
        return f"its epilogue has one result, D, not {layer.epilogue.describe()}"
    try:
        further = len(layer.further)
    except InvalidProblemError as error:
        return str(error)
    if (reason := others_rejection(layer.prologue) or others_rejection(layer.epilogue)) is not None:
        return reason
    if layer.prologue.reductions:
        return f"its prologue stores full tensors, not {layer.prologue.describe()}"
    if (count := len(layer.loads) + further) > MAX_OPERANDS:
        return f"it has {count} operands and further results; a launch passes {MAX_OPERANDS}"
    return None


def violations(layer: Layer, config: NormConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for a layer on `arch`; empty if it is legal.

    Values for which no kernel exists are reported alone, because other rules need valid ones.
    """
    structural = tuple(_value_violations(config))
    if structural:
        return structural
    problem = norm_of(layer)
    taken = footprint(layer, config)
    return (
        *_extent_violations(problem, config),
        *capacity_violations(
            arch,
            shared_bytes=taken.shared_memory_bytes,
            registers=taken.registers,
            threads=config.block,
            spilt="the row",
        ),
    )


def _value_violations(config: NormConfig) -> Iterator[Violation]:
    known = {"threads": THREADS, "vectors": VECTORS, "rows": ROWS}
    reason = f"a row has a part of a warp or whole warps; {_HEADER}"
    yield from value_violations(config, known, name="values", reason=reason)
    if config.block % _WARP or config.block > _MOST_THREADS:
        yield Violation(
            name="threads",
            message=f"{config.block} threads of {config}",
            reason=f"a threadblock has whole warps, and {_MOST_THREADS} threads at most",
        )


def run_bytes(problem: GroupNorm) -> int:
    """Return the contiguous bytes of a row, in the narrower of A and D."""
    channels = max(problem.channels_per_group, vector_of(problem))
    return channels * min(problem.in_dtype.size_bytes, problem.out_dtype.size_bytes)


def _extent_violations(problem: RowNorm, config: NormConfig) -> Iterator[Violation]:
    vector, (_, columns) = vector_of(problem), rows_of(problem)
    most = config.columns(vector)
    if columns > most and not config.streamed:
        yield Violation(
            name="columns",
            message=f"{columns} columns; {config.threads} threads have {most}",
            reason=f"a row stays in the registers of its threads; {_HEADER}",
            slack=1.0 - columns / most,
        )
    if (counted := problem.row_norm.columns) > _MOST_COUNTED:
        yield Violation(
            name="counted",
            message=f"{counted} elements of a row; means are of {_MOST_COUNTED} at most",
            reason="their number is divided by as an FP32 number",
            slack=1.0 - counted / _MOST_COUNTED,
        )
    if (values := config.vectors * vector) > _MOST_VALUES:
        yield Violation(
            name="values_of_a_thread",
            message=f"{values} elements in the registers of a thread, {_MOST_VALUES} at most",
            reason="its code is unrolled for each of them",
            slack=1.0 - values / _MOST_VALUES,
        )


def footprint(layer: Layer, config: NormConfig) -> Footprint:
    """Return shared memory for parts of each row; registers for a row and a vector per operand."""
    vector = vector_of(norm_of(layer))
    warps_of_row = max(1, config.threads // _WARP)
    at_once = vector * (1 + len(layer.loads) + len(layer.further))
    statistics = max(groups_of_vector(norm_of(layer)), 1)
    own = 2 * statistics if statistics > 1 else 0
    return Footprint(
        registers=config.vectors * vector + at_once + own + BOOKKEEPING_REGISTERS,
        shared_memory_bytes=2 * config.rows * warps_of_row * statistics * DType.F32.size_bytes,
        warps=config.block // _WARP,
    )


def is_sensible(problem: RowNorm, config: NormConfig) -> bool:
    """Return whether over half of a row's threads work, and the threadblock has a usual size."""
    vector, (_, columns) = vector_of(problem), rows_of(problem)
    if config.streamed:
        low, high = _STREAMED_VALUES
        is_even = low <= config.vectors * vector <= high
        is_large = config.threads >= _STREAMED_THREADS and config.rows == 1
        return columns > _MOST_HELD and is_large and is_even
    least = next((v for v in VECTORS if config.threads * v * vector >= columns), None)
    is_least = config.vectors == least
    is_busy = config.threads == THREADS[0] or config.threads * vector < 2 * columns
    # Fewer than four warps leave an SM's schedulers idle; more in a block wait for each other.
    usual = 128 <= config.block <= max(256, config.threads)
    return is_least and is_busy and usual


def reductions(function: NormFunction) -> int:
    """Return how often a row's threads synchronise."""
    return 1 if function is NormFunction.RMS else 2


def reads(problem: RowNorm, config: NormConfig) -> int:
    """Return how often a row is read: if streamed, once per statistic and once for the result."""
    return reductions(problem.row_norm.function) + 1 if config.streamed else 1
