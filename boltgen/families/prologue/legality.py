"""The legality of configurations with a prologue: the rules of `mma_sync`, and further ones."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError
from boltgen.families.mma_sync.legality import layer_violations
from boltgen.families.mma_sync.resources import least_registers_per_thread
from boltgen.families.prologue.config import PrologueConfig, of_product
from boltgen.families.rejections import (
    MMA_SYNC,
    graph_rejection,
    operand_rejection,
    others_rejection,
)
from boltgen.families.space import Violation
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.elementwise import MAX_OPERANDS, LoadKind
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

STAGES = 2
_HEADER = "templates/include/boltgen/prologue_gemm.h"
_REGISTER_BYTES = 4
_KINDS = frozenset(LoadKind) - {LoadKind.COLUMN}


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one product, not {len(workload.layers)} layers back to back"
    layer = workload.single
    problem, before = layer.problem, layer.prologue
    if not isinstance(problem, Gemm):
        return f"it computes matrix products, not a {type(problem).__name__}"
    if before.is_identity:
        return "it does something to A before the product; others multiply A as it is"
    if before.has_softmax or before.stores:
        return f"it multiplies what is made of each element of A, not {before.describe()}"
    for load in before.loads:
        if load.kind not in _KINDS:
            return f"its prologue loads tensors and rows, not a {load.kind.value}"
    if problem.batch > 1:
        return f"it computes one product, not a batch of {problem.batch}"
    try:
        count = len(layer.loads) + len(layer.further)
    except InvalidProblemError as error:
        return str(error)
    if count > MAX_OPERANDS:
        return f"it has {count} operands and further results; a launch passes {MAX_OPERANDS}"
    if layer.epilogue.stores:
        return f"it stores D alone, not {layer.epilogue.describe()}"
    return (
        operand_rejection(problem, arch, MMA_SYNC)
        or graph_rejection(layer.epilogue)
        or others_rejection(layer.epilogue)
        or others_rejection(before)
    )


def violations(layer: Layer, config: PrologueConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for a layer on `arch`; empty if it is legal."""
    found = layer_violations(of_product(layer), config.gemm, arch)
    return (*found, *_own_violations(layer, config, arch))


def operand_registers(layer: Layer, config: PrologueConfig) -> int:
    """Return the registers of a thread for the prologue's operands during a step of K.

    A full tensor takes as many as A's tile; a row takes one vector, which all rows of A use.
    """
    tile = config.gemm.threadblock
    elements = tile.m * tile.k // max(config.gemm.threads, 1)
    vector = VECTOR_BYTES // layer.problem.in_dtype.size_bytes
    held = {LoadKind.ROW: vector}
    return sum(
        held.get(load.kind, elements) * load.dtype.size_bytes // _REGISTER_BYTES
        for load in layer.prologue.loads
    )


def _own_violations(layer: Layer, config: PrologueConfig, arch: Arch) -> Iterator[Violation]:
    if config.gemm.stages != STAGES:
        yield Violation(
            name="register_staged",
            message=f"{config.gemm.stages} stages of A, which passes a graph",
            reason="cp.async brings it to shared memory as it is; by way of registers there are "
            f"{STAGES} stages; {_HEADER}",
        )
    own = least_registers_per_thread(config.gemm, layer.problem.in_dtype, layer.problem.acc_dtype)
    wanted = own + operand_registers(layer, config)
    if wanted > arch.max_registers_per_thread:
        yield Violation(
            name="registers_of_operands",
            message=f"about {wanted} registers with the prologue's operands; a thread "
            f"has {arch.max_registers_per_thread}",
            reason=f"they wait in registers for A's elements; {_HEADER}",
            slack=1.0 - wanted / arch.max_registers_per_thread,
        )
