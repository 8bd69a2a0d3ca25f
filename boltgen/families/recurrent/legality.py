"""Which configurations are legal for a recurrent layer, and what they take of an SM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.family import Footprint
from boltgen.families.recurrent.code import padded, warps_of
from boltgen.families.recurrent.config import ALL_UNITS, RecurrentConfig
from boltgen.families.recurrent.traits import BLOCK, WHOLE_VECTOR, recurrent_of, units_of
from boltgen.families.rejections import MMA_SYNC, others_rejection, type_rejection
from boltgen.families.resources import BOOKKEEPING_REGISTERS, capacity_violations, value_violations
from boltgen.families.roofline import fitting_threadblocks
from boltgen.families.space import Violation
from boltgen.ir.elementwise import MAX_OPERANDS
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

GROUPS = (1, 2, 4)
# The hidden units of a threadblock if several share them, and the parts of K.
UNITS = (8, 16, 32, 64)
SLICES = (1, 2, 4, 8)
ROWS = 16
# A threadblock that has all hidden units reads all weights of a direction in each step. Beyond so
# many units that takes one SM longer than a launch takes on all SMs.
MOST_ALONE = 512
# Most threads of a threadblock. Source: CUDA C++ Programming Guide, compute capabilities.
_MOST_THREADS = 1024
_WARP = 32
# Registers of a lane's part of the weights of one block and gate, and of A's.
_OF_BLOCK, _OF_A = 4, 8

# A cache line for a count of arrivals.
_COUNT_BYTES = 128

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
    if not layer.prologue.is_identity:
        return f"it reads A as it is, not {layer.prologue.describe()}"
    if any(store.reduction for store in layer.epilogue.results):
        return f"it stores full tensors, not {layer.epilogue.describe()}"
    if (reason := others_rejection(layer.epilogue)) is not None:
        return reason
    if (count := len(layer.loads) + len(layer.further)) > MAX_OPERANDS:
        return f"it has {count} operands and further results; a launch passes {MAX_OPERANDS}"
    return _size_rejection(layer, arch)


def _size_rejection(layer: Layer, arch: Arch) -> str | None:
    """Return that a layer has too many hidden units for every configuration, or None."""
    problem = recurrent_of(layer)
    if problem.hidden <= MOST_ALONE or any(
        not violations(layer, config, arch) for config in configs()
    ):
        return None
    alignment = "" if problem.hidden % WHOLE_VECTOR == 0 else f", no multiple of {WHOLE_VECTOR}"
    return (
        f"it has {problem.hidden} hidden units{alignment}: {arch.name} has too few registers, or "
        "too little shared memory, for their weights and states"
    )


def configs() -> Iterator[RecurrentConfig]:
    """Yield all configurations, legal or not."""
    for groups, units, slices in itertools.product(GROUPS, (ALL_UNITS, *UNITS), SLICES):
        for resident in (True, False):
            yield RecurrentConfig(groups=groups, resident=resident, units=units, slices=slices)


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
        *_team_violations(recurrent_of(layer), config, taken, arch),
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
    hidden = units_of(recurrent_of(layer))
    if config.units not in {ALL_UNITS, *UNITS} or config.slices not in SLICES:
        yield Violation(
            name="values",
            message=f"units: {config.units}, slices: {config.slices} of {config}; there are "
            f"{', '.join(map(str, UNITS))} units and {', '.join(map(str, SLICES))} slices",
            reason=f"threadblocks share whole blocks of hidden units; {_HEADER}",
        )
        return
    if not config.is_shared and (config.slices > 1 or hidden > MOST_ALONE):
        yield Violation(
            name="alone",
            message=f"{hidden} hidden units and {config.slices} slices of {config}; a threadblock "
            f"that has all units has {MOST_ALONE} at most, and 1 slice",
            reason="one SM reads all weights of a direction in each step",
        )
        return
    if config.is_shared and (config.groups > 1 or config.units >= hidden):
        yield Violation(
            name="shared_units",
            message=f"{hidden} hidden units and {config.groups} groups of {config}; a threadblock "
            f"has {config.units} of more units, and its warps have 1 group",
            reason=f"a warp that shares K has one group; {_HEADER}",
        )
        return
    threads = _WARP * warps_of(hidden, config)
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


def _team_violations(
    problem: Recurrent, config: RecurrentConfig, taken: Footprint, arch: Arch
) -> Iterator[Violation]:
    if not config.is_shared:
        return
    parts = most_parts(problem, config)
    on_each = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    # On the least product, not on the reference: the library has no other kernel for it.
    at_once = on_each * arch.least_sm_count
    if parts > at_once:
        yield Violation(
            name="resident_threadblocks",
            message=f"{parts} threadblocks of {config} share {problem.hidden} hidden units; "
            f"the smallest GPU of {arch.name} runs {at_once} at once",
            reason="threadblocks that wait for each other must all run",
            slack=1.0 - parts / at_once,
        )


def parts_of(problem: Recurrent, config: RecurrentConfig) -> int:
    """The threadblocks that share the hidden units."""
    return -(-problem.hidden // config.units) if config.is_shared else 1


def most_parts(problem: Recurrent, config: RecurrentConfig) -> int:
    """The same of any layer that the kernel computes."""
    return padded(units_of(problem), config) // config.units if config.is_shared else 1


def workspace_bytes(problem: Recurrent, config: RecurrentConfig) -> int:
    """Two states and a count of arrivals for each direction of each threadblock's rows.

    `recurrent_workspace` of the header returns the same.
    """
    if not config.is_shared:
        return 0
    items = -(-problem.batch_rows // ROWS) * problem.directions
    state = ROWS * padded(units_of(problem), config) * problem.in_dtype.size_bytes
    return items * (_COUNT_BYTES + 2 * state)


def footprint(layer: Layer, config: RecurrentConfig) -> Footprint:
    """Buffers of states and of sums; registers for weights, for a step's inputs and sums."""
    problem = recurrent_of(layer)
    cell, units = problem.cell, padded(units_of(problem), config)
    is_late = cell is Cell.GRU_RESET_FIRST
    weights = units // BLOCK // config.slices * config.groups if config.resident else 1
    warps = warps_of(units_of(problem), config)
    most_sums = 2 if is_late else cell.gates
    sums = warps * most_sums * _WARP * 16 if config.slices > 1 else 16
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
        shared_memory_bytes=_buffers(cell, is_shared=config.is_shared)
        * ROWS
        * units
        * problem.in_dtype.size_bytes
        + (0 if is_late else 16)
        + sums,
        warps=warps,
    )


def _buffers(cell: Cell, *, is_shared: bool) -> int:
    """States in shared memory: two that take turns or one, and one behind a late reset gate."""
    return (1 if is_shared else 2) + (cell is Cell.GRU_RESET_FIRST)
