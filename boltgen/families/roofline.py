"""Rates of a multiprocessor and its memory, and an epilogue's load on them.

The analytical models of all families consist of these parts.
"""

from __future__ import annotations

from functools import lru_cache

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError
from boltgen.families.columns import least, most
from boltgen.families.constants import ModelConstants, shared_constants
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    ElementwiseGraph,
    Load,
    LoadKind,
    Scalar,
    Unary,
    operands,
)
from boltgen.ir.functions import UnaryOp
from boltgen.problems.problem import Problem

# Source: CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes per clock.
SHARED_BYTES_PER_CLOCK = 128
# Source: NVIDIA's white papers since Volta: an SM has four partitions with a scheduler each.
SCHEDULERS = 4
_WARP = 32
# The 16-bit elements of a row that a thread holds side by side.
_ROW_VECTOR = VECTOR_BYTES // 2
_SIMPLE_OPS = frozenset(op for op in UnaryOp if not op.function.is_long)


# The bytes that a warp's ldmatrix loads: four matrices of eight rows of 16 bytes. Source: PTX ISA.
LDMATRIX_BYTES = 512


# Each element of the output reads one element of these operands, usually from L2.
_READ_ANEW = frozenset({LoadKind.TENSOR, LoadKind.POSITION_ROW})


def fitting_threadblocks(arch: Arch, *, registers: int, shared_bytes: int, warps: int) -> int:
    """Return the threadblocks that one SM runs at once, at least 1.

    `registers` are per thread, `shared_bytes` and `warps` per threadblock.

    Source: CUDA's occupancy calculation; registers are allocated by warp, in units.
    """
    unit = arch.register_allocation_unit
    warp_registers = -(-registers * _WARP // unit) * unit
    # Before sm_80 nothing is reserved, and some kernels take nothing.
    shared = most(1, shared_bytes + arch.reserved_shared_memory_bytes)
    by_registers = arch.registers_per_sm // (warp_registers * warps)
    by_memory = arch.shared_memory_per_sm_bytes // most(1, shared)  # sm_75 reserves none
    by_warps = least(arch.max_warps_per_sm // warps, arch.max_ctas_per_sm)
    fitting: int = most(1, least(least(by_registers, by_memory), by_warps))
    return fitting


def tensor_tflops(acc_dtype: DType, arch: Arch) -> float:
    """Return the rate of `arch`'s tensor cores if they sum in `acc_dtype`, in TFLOP/s.

    Sums in int32 are of products of 8-bit integers.
    """
    rates = {
        DType.F32: arch.tensor_f32_acc_tflops,
        DType.F16: arch.tensor_f16_acc_tflops,
        DType.I32: arch.narrow_rate * arch.tensor_f16_acc_tflops,
    }
    if acc_dtype not in rates:
        raise InvalidProblemError(f"no tensor-core instruction sums in {acc_dtype.value}")
    return rates[acc_dtype] * arch.mma_sync_fraction


def bytes_per_clock(vector_bytes: int, arch: Arch, c: ModelConstants) -> float:
    """Return the bytes that an SM moves per clock to or from L2 in vectors of this width.

    Narrow vectors take as many instructions as wide ones: Bolt, section 3.2.3.
    """
    l2 = arch.l2_bytes_per_clock / arch.sm_count
    return 1.0 / (1.0 / l2 + c.vector_clocks / (_WARP * vector_bytes))


def arithmetic_clocks(
    epilogue: ElementwiseGraph, elements: int, arch: Arch, c: ModelConstants
) -> float:
    """Return the clocks in which an SM computes the epilogue of `elements` elements."""
    simple, special = operations(epilogue)
    return elements * (simple + c.special_instructions * special) / lanes(arch)


def lanes(arch: Arch) -> float:
    """Return the FP32 instructions of an SM per clock."""
    return arch.fp32_tflops * 1e6 / 2 / arch.boost_mhz / arch.sm_count


@lru_cache(maxsize=1024)
def operations(epilogue: ElementwiseGraph) -> tuple[float, float]:
    """Return the instructions per element: of nodes that take one, and of nodes that take many.

    Constants do not count. Values that depend only on the row are computed once per vector of a
    row's elements.
    """
    of_rows: set[int] = set()
    simple = special = 0.0
    for index, node in enumerate(epilogue.nodes):
        if isinstance(node, Scalar):
            of_rows.add(index)
            continue
        is_column = isinstance(node, Load) and node.kind is LoadKind.COLUMN
        if is_column or (operands(node) and of_rows.issuperset(operands(node))):
            of_rows.add(index)
        share = 1.0 / _ROW_VECTOR if index in of_rows else 1.0
        share *= node.parts if isinstance(node, Load) else 1
        is_division = isinstance(node, Binary) and node.op is BinaryOp.DIVIDE
        if is_division or (isinstance(node, Unary) and node.op not in _SIMPLE_OPS):
            special += share
        else:
            simple += share
    return simple, special


def of_element(graph: ElementwiseGraph) -> float:
    """Return the arithmetic instructions of a graph per element."""
    simple, special = operations(graph)
    return simple + shared_constants().special_instructions * special


@lru_cache(maxsize=1024)
def tensor_operand_bytes(epilogue: ElementwiseGraph) -> int:
    """Return the bytes of full tensors and position rows that an element of the output reads."""
    tensors = (load for load in epilogue.loads if load.kind in _READ_ANEW)
    return sum(load.dtype.size_bytes for load in tensors)


@lru_cache(maxsize=1024)
def further_result_bytes(epilogue: ElementwiseGraph) -> int:
    """Return the bytes of full tensors besides D that the epilogue writes per element."""
    return sum(dtype.size_bytes for store, dtype in epilogue.further if not store.reduction)


def output_bytes_per_element(problem: Problem, epilogue: ElementwiseGraph) -> int:
    """Return the bytes to and from L2 per element of the output: all results and full operands."""
    moved_besides = tensor_operand_bytes(epilogue) + further_result_bytes(epilogue)
    return problem.out_dtype.size_bytes + moved_besides
