"""Which configurations are legal for a recurrent layer, and what they take of an SM."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.family import Footprint
from boltgen.families.recurrent.code import warps_of
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.recurrent.traits import BLOCK, WHOLE_VECTOR, recurrent_of, units_of
from boltgen.families.rejections import MMA_SYNC, others_rejection, type_rejection
from boltgen.families.resources import BOOKKEEPING_REGISTERS, capacity_violations, value_violations
from boltgen.families.space import Violation
from boltgen.ir.elementwise import MAX_OPERANDS
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

GROUPS = (1, 2, 4)
ROWS = 16
# A threadblock reads all weights of a direction in each step. Beyond so many hidden units one SM
# takes longer for that than a launch takes on all SMs.
MOST_HIDDEN = 512
# Most threads of a threadblock. Source: CUDA C++ Programming Guide, compute capabilities.
_MOST_THREADS = 1024
_WARP = 32
# Registers of a lane's part of the weights of one block and gate, and of A's.
_OF_BLOCK, _OF_A = 4, 8

_HEADER = "templates/include/boltgen/recurrent.h"


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one recurrent layer, not {len(workload.layers)} layers back to back"
    layer = workload.single
    problem = layer.problem
    if not isinstance(problem, Recurrent):
        return f"it computes recurrent layers, not a {type(problem).__name__}"
    if (reason := type_rejection(problem, arch, MMA_SYNC)) is not None:
        return reason
    if problem.hidden > MOST_HIDDEN:
        return (
            f"it has {problem.hidden} hidden units; a threadblock computes all of them, "
            f"{MOST_HIDDEN} at most"
        )
    if not layer.prologue.is_identity:
        return f"it reads A as it is, not {layer.prologue.describe()}"
    if any(store.reduction for store in layer.epilogue.results):
        return f"it stores full tensors, not {layer.epilogue.describe()}"
    if (reason := others_rejection(layer.epilogue)) is not None:
        return reason
    if (count := len(layer.loads) + len(layer.further)) > MAX_OPERANDS:
        return f"it has {count} operands and further results; a launch passes {MAX_OPERANDS}"
    return None


def violations(layer: Layer, config: RecurrentConfig, arch: Arch) -> tuple[Violation, ...]:
    """Every rule that `config` breaks for a layer on `arch`; empty if it is legal.

    Values that no kernel is made with are reported alone: nothing else can be said then.
    """
    structural = tuple(_value_violations(layer, config))
    if structural:
        return structural
    taken = footprint(layer, config)
    return (
        *_weight_violations(recurrent_of(layer), config),
        *capacity_violations(
            arch,
            shared_bytes=taken.shared_memory_bytes,
            registers=taken.registers,
            threads=_WARP * taken.warps,
            spilt="weights and inputs",
        ),
    )


def _value_violations(layer: Layer, config: RecurrentConfig) -> Iterator[Violation]:
    if config.groups not in GROUPS:
        reason = f"the warps share whole blocks of hidden units; {_HEADER}"
        yield from value_violations(config, {"groups": GROUPS}, name="values", reason=reason)
        return
    threads = _WARP * warps_of(units_of(recurrent_of(layer)), config)
    if threads > _MOST_THREADS:
        yield Violation(
            name="threads",
            message=f"{threads} threads of {config}",
            reason=f"a threadblock has {_MOST_THREADS} threads at most",
            slack=1.0 - threads / _MOST_THREADS,
        )


def _weight_violations(problem: Recurrent, config: RecurrentConfig) -> Iterator[Violation]:
    if not config.resident and problem.hidden % WHOLE_VECTOR:
        yield Violation(
            name="weight_vectors",
            message=f"{problem.hidden} hidden units, no multiple of {WHOLE_VECTOR}",
            reason=f"weights that each step reads are read by vectors of 16 bytes; {_HEADER}",
        )


def footprint(layer: Layer, config: RecurrentConfig) -> Footprint:
    """Two buffers of states; registers for weights, for a step's inputs, and for sums."""
    problem = recurrent_of(layer)
    cell, units = problem.cell, units_of(problem)
    is_late = cell is Cell.GRU_RESET_FIRST
    buffers = 3 if is_late else 2
    weights = units // BLOCK * config.groups if config.resident else 1
    inputs = 2 * config.groups * cell.gates
    kept = 4 * config.groups if is_late or cell is Cell.LSTM else 0
    operands = 2 * (len(layer.loads) + len(layer.further))
    return Footprint(
        registers=_OF_BLOCK * cell.gates * weights
        + inputs
        + kept
        + 4 * cell.gates
        + max(_OF_A, operands)
        + BOOKKEEPING_REGISTERS,
        shared_memory_bytes=buffers * ROWS * units * problem.in_dtype.size_bytes
        + (0 if is_late else 16),
        warps=warps_of(units, config),
    )
