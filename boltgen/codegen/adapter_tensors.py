"""What the adapters of single layers and of chains share: checked pointers, by role and shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph, Load, LoadKind
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.ir.region import Operand

# A tensor's shape, and the enumerator of boltgen::Rank by which it is compared.
ShapeCheck: TypeAlias = tuple[tuple[int, ...], str]
# A field of a kernel's argument struct, and the C++ expression that it is set to.
Field: TypeAlias = tuple[str, str]


def data_call(index: int, role: str, dtype: DType, check: ShapeCheck, tensor: str = "") -> str:
    """The C++ call that checks parameter `index` and returns its pointer."""
    shape, rank = check
    extents = ", ".join(map(str, shape))
    name = tensor or f"p{index}"
    return f'call.data({name}, {index}, "{role}", {dtype.adapter}, {{{extents}}}, Rank::{rank})'


def convolution_sizes(problem: Conv2d) -> list[Field]:
    """Padding, stride and dilation, as the argument structs name them."""
    values = {
        "pad_h": problem.padding[0],
        "pad_w": problem.padding[1],
        "stride_h": problem.stride[0],
        "stride_w": problem.stride[1],
        "dilation_h": problem.dilation[0],
        "dilation_w": problem.dilation[1],
    }
    return [(name, str(value)) for name, value in values.items()]


def tensor_shapes(problem: Problem) -> tuple[ShapeCheck, ShapeCheck, ShapeCheck]:
    """Expected shapes of A, B and D, and how strictly they are compared."""
    match problem:
        case Conv2d(n=n, h=h, w=w, c=c, k=k, r=r, s=s, p=p, q=q):
            return (
                ((n, h, w, c), "kExact"),
                ((k, r, s, c), "kExact"),
                ((n, p, q, k), "kExact"),
            )
        case Gemm(m=m, n=n, k=k):
            b = (k, n) if problem.b_layout is Layout.ROW else (n, k)
            return ((m, k), "kMatrix"), (b, "kMatrix"), ((m, n), "kMatrix")
        case BatchedGemm(m=m, n=n, k=k, batch=batch):
            b = (k, n) if problem.b_layout is Layout.ROW else (n, k)
            return (
                ((batch, m, k) if problem.a_batched else (m, k), "kMatrix"),
                ((batch, *b) if problem.b_batched else b, "kMatrix"),
                ((batch, m, n), "kMatrix"),
            )


def operand_fields(
    problem: Problem, epilogue: ElementwiseGraph, operands: Sequence[Operand], layer: str = ""
) -> Iterator[Field]:
    """The fields of an epilogue's operands; `layer` says in messages whose they are."""
    m, n = _extent(problem)
    seen = dict.fromkeys(LoadKind, 0)
    for index, (load, operand) in enumerate(zip(epilogue.loads, operands, strict=True)):
        role = f"{layer}epilogue operand {load.kind.value}{seen[load.kind]}"
        seen[load.kind] += 1
        slices = (problem.batch,) if operand.batched and isinstance(problem, BatchedGemm) else ()
        shape, rank = _operand_shape(load, m, n)
        pointer = data_call(operand.parameter, role, load.dtype, ((*slices, *shape), rank))
        ld = n if load.kind is LoadKind.TENSOR else 0
        yield f"operands[{index}].pointer", pointer
        yield f"operands[{index}].ld", str(ld)
        yield f"operands[{index}].batch_stride", str(math.prod(shape) if slices else 0)


def _extent(problem: Problem) -> tuple[int, int]:
    """M and N of one product."""
    if isinstance(problem, Conv2d):
        return problem.implicit_gemm.m, problem.implicit_gemm.n
    return problem.m, problem.n


def _operand_shape(load: Load, m: int, n: int) -> ShapeCheck:
    """Shape of one slice of an operand, and how strictly it is compared."""
    match load.kind:
        case LoadKind.TENSOR:
            return (m, n), "kMatrix"
        case LoadKind.ROW:
            return (n,), "kVector"
        case LoadKind.COLUMN:
            return (m,), "kVector"
