"""Limits of a multiprocessor that are common to several families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from boltgen.arch import Arch
from boltgen.families.space import Violation

# Addresses, predicates, loop counters and the epilogue's vectors: for 2.x matmuls ptxas reports 30
# to 60 registers besides accumulators and fragments. An estimate.
BOOKKEEPING_REGISTERS = 40
# The most registers that an instruction can name. Source: CUDA C++ Programming Guide, technical
# specifications.
MOST_REGISTERS = 255

# Indices of CUTLASS 2.x and of CUDA's grids have 32 bits.
INT32_MAX = 2**31 - 1
# The most blocks along a grid's y or z dimension. Source: CUDA C++ Programming Guide, compute
# capabilities, technical specifications.
MAX_GRID_YZ = 65535


def capacity_violations(
    arch: Arch, *, shared_bytes: int, registers: int, threads: int, spilt: str
) -> Iterator[Violation]:
    """Yield violations if `arch` lacks a threadblock's shared memory or a thread's registers.

    `spilt` names the data that too few registers would spill.
    """
    if shared_bytes > arch.shared_memory_per_cta_bytes:
        yield Violation(
            name="shared_memory",
            message=f"{shared_bytes} bytes of shared memory; a threadblock on {arch.name} has "
            f"{arch.shared_memory_per_cta_bytes}",
            reason="opt-in shared memory per block, CUDA C++ Programming Guide",
            slack=1.0 - shared_bytes / arch.shared_memory_per_cta_bytes,
        )
    most = min(arch.max_registers_per_thread, arch.registers_per_sm // threads)
    if registers > most:
        yield Violation(
            name="registers",
            message=f"about {registers} registers per thread; at most {most} with "
            f"{threads} threads",
            reason=f"{spilt} would spill to local memory",
            slack=1.0 - registers / most,
        )


def value_violations(
    config: object, known: Mapping[str, Sequence[int]], *, name: str, reason: str
) -> Iterator[Violation]:
    """Yield violations for fields of `config` whose value is none of the `known` values."""
    for field, values in known.items():
        value = getattr(config, field)
        if value not in values:
            yield Violation(
                name=name,
                message=f"{field}: {value} of {config}; there are {', '.join(map(str, values))}",
                reason=reason,
            )


def overflow_violations(counted: Mapping[str, tuple[int, int]], reason: str) -> Iterator[Violation]:
    """Yield violations for counts beyond their greatest values, which 32 bits allow."""
    for name, (count, most) in counted.items():
        if count > most:
            yield Violation(
                name="index_overflow",
                message=f"{name}: {count} exceeds {most}",
                reason=reason,
                slack=1.0 - count / most,
            )
