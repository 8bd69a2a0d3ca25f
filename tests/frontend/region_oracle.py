"""What a region's kernel computes, by the numpy oracle; the same for both frontends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boltgen.ir import reference
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.move import NHWC_F16, Move, reference_move
from boltgen.ir.region import Operand, Region


def _operand(region: Region, kind: LoadKind, operand: Operand, array: np.ndarray) -> np.ndarray:
    shape = reference.output_shape(region.problem)
    if kind is not LoadKind.TENSOR:
        return array.reshape(-1)
    is_shared = len(shape) == 3 and not operand.batched
    return array.reshape(shape[1:] if is_shared else shape)


def compute(region: Region, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """What the region's kernel computes, rounded to its output type."""
    a_shape, b_shape = reference.input_shapes(region.problem)
    loads = region.epilogue.loads
    operands = [
        _operand(region, load.kind, operand, arrays[operand.parameter])
        for load, operand in zip(loads, region.operands, strict=True)
    ]
    exact = reference.run(
        region.problem,
        region.epilogue,
        _activation(region, arrays[region.a]).reshape(a_shape),
        arrays[region.b].reshape(b_shape),
        operands,
    )
    with np.errstate(over="ignore"):
        rounded = exact.astype(region.problem.out_dtype.value)
    if region.d_stored is None:
        return rounded
    move = Move(source=NHWC_F16, target=region.d_stored.form)
    return reference_move(move, _as_images(rounded), region.d_stored.channels)


def _as_images(array: np.ndarray) -> np.ndarray:
    return array if array.ndim == 4 else array.reshape(1, 1, -1, array.shape[-1])


def _activation(region: Region, array: np.ndarray) -> np.ndarray:
    """A as the kernel takes it."""
    if region.a_stored is None:
        return array
    channels = reference.input_shapes(region.problem)[0][-1]
    move = Move(source=region.a_stored.form, target=NHWC_F16)
    return reference_move(move, _as_images(array), channels)
