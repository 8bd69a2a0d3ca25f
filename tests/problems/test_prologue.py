"""What is done to A before the product: in the type and in the oracle; families may refuse it."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.arch import arch_named
from boltgen.errors import InputError, NoLegalConfigError
from boltgen.families.registry import candidates
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Layer, Workload

M, N, K = 24, 16, 40


def _workload(**more: int) -> Workload:
    """silu(a * scale of its column + shift of its row), multiplied."""
    builder = ElementwiseBuilder()
    scaled = builder.binary(BinaryOp.MULTIPLY, 0, builder.load(LoadKind.ROW))
    shifted = builder.binary(BinaryOp.ADD, scaled, builder.load(LoadKind.COLUMN, DType.F32))
    builder.unary(UnaryOp.SILU, shifted)
    layer = Layer(problem=Gemm(m=M, n=N, k=K, **more), prologue=builder.build())
    return Workload(layers=(layer,))


def _inputs(batch: tuple[int, ...] = ()) -> tuple[np.ndarray, LayerInputs]:
    rng = np.random.default_rng(1)
    a = rng.uniform(-1, 1, (*batch, M, K)).astype(np.float16)
    b = rng.uniform(-1, 1, (*batch, K, N)).astype(np.float16)
    scale = rng.uniform(-2, 2, K).astype(np.float16)
    shift = rng.uniform(-1, 1, M).astype(np.float32)
    return a, LayerInputs(b=b, prologue=(scale, shift))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_oracle_does_what_the_prologue_says(batch: tuple[int, ...]) -> None:
    a, inputs = _inputs(batch)
    workload = _workload(batch=batch[0]) if batch else _workload()
    found = enclose(workload, a, [inputs])
    scale, shift = inputs.prologue
    # As a kernel would: FP32, then the FP16 that is multiplied.
    before = a.astype(np.float32) * scale + shift[:, None]
    prepared = (before / (1 + np.exp(-before))).astype(np.float16)
    product = prepared.astype(np.float32) @ inputs.b.astype(np.float32)
    assert (np.abs(product.astype(np.float16) - found.exact) <= found.bound).all()
    # The bound is no excuse: without the prologue the product is far outside.
    plain = a.astype(np.float32) @ inputs.b.astype(np.float32)
    assert (np.abs(plain - found.exact) > found.bound).mean() > 0.9


def test_operands_that_do_not_fit_are_refused() -> None:
    a, inputs = _inputs()
    with pytest.raises(InputError, match=f"operand 0 .*{M}.*{K}"):
        enclose(_workload(), a, [LayerInputs(b=inputs.b, prologue=inputs.prologue[::-1])])


def test_families_of_today_refuse_it_with_the_reason() -> None:
    with pytest.raises(NoLegalConfigError, match=r"cutlass2: cp\.async brings A .* as it is"):
        candidates(_workload(), arch_named("sm_80"))
