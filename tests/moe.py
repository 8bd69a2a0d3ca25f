"""Products of rows in groups as models have them: PyTorch's, of experts, and TVM's of CUTLASS."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
import tvm
from tvm import relax

from boltgen.ir.dtypes import DType

WIDTH, HIDDEN, EXPERTS, CHOSEN = 32, 48, 4, 2
# Of TVM's function.
GROUPS, ROWS, N, K = 4, 11, 24, 16
Array = np.ndarray[Any, Any]
Wide: TypeAlias = torch.Tensor  # in FP64


class Experts(torch.nn.Module):
    """Each token's two experts of four: gated products, of which the router weighs the results.

    PyTorch exports grouped products of BF16 alone. Inputs and results are FP32.
    """

    def __init__(self) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> torch.nn.Parameter:
            array = torch.randn(shape, generator=made) / shape[-2] ** 0.5
            return torch.nn.Parameter(array.to(torch.bfloat16), requires_grad=False)

        self.router = drawn(WIDTH, EXPERTS)
        self.gate, self.up = drawn(EXPERTS, WIDTH, HIDDEN), drawn(EXPERTS, WIDTH, HIDDEN)
        self.down = drawn(EXPERTS, HIDDEN, WIDTH)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = given.to(torch.bfloat16)
        weights, chosen = torch.topk((x @ self.router).float().softmax(-1), CHOSEN)
        expert = chosen.reshape(-1)
        order = expert.argsort()
        ends = (expert.unsqueeze(1) == torch.arange(EXPERTS)).sum(0).cumsum(0).to(torch.int32)
        rows = x[order // CHOSEN]
        gate = torch._grouped_mm(rows, self.gate, offs=ends)
        hidden = torch.nn.functional.silu(gate) * torch._grouped_mm(rows, self.up, offs=ends)
        made = torch.nn.functional.grouped_mm(hidden, self.down, offs=ends)[order.argsort()]
        shared = made.reshape(-1, CHOSEN, WIDTH) * weights.unsqueeze(-1).to(x.dtype)
        return shared.sum(1).float()


def exported(tokens: tuple[int, int] = (2, 64)) -> Any:
    """The program of `Experts`, whose number of tokens is open within a range."""
    low, high = tokens
    open_ = {"given": {0: torch.export.Dim("tokens", min=low, max=high)}}
    example = torch.zeros(7, WIDTH)
    return torch.export.export(Experts(), (example,), dynamic_shapes=open_)


def drawn_tokens(tokens: int) -> torch.Tensor:
    """BF16 numbers whose experts are clear: of those that are nearly equal either is right."""
    x = torch.randn(4 * tokens, WIDTH, generator=torch.Generator().manual_seed(tokens))
    x = x.to(torch.bfloat16).float()
    scores = (x.double() @ Experts().router.double()).sort(-1, descending=True).values
    is_clear = scores[:, CHOSEN - 1] - scores[:, CHOSEN] > 0.1
    return x[is_clear][:tokens]


def expected(x: torch.Tensor, dtype: DType = DType.F16) -> tuple[Array, Array]:
    """The result in FP64, and how far from it that of kernels in `dtype` may be.

    Inputs and weights are BF16 numbers, which FP16 has too. Of what is computed, each number may be
    rounded twice, as a result and as an operand; sums are in FP32.
    """
    rounded = (1.0 + dtype.unit_roundoff) ** 2 - 1.0

    def product(a: Wide, a_off: Wide, b: Wide) -> tuple[Wide, Wide]:
        """A product whose A may be off, and how far off it is."""
        sums = len(b) * 2.0**-23 * ((a.abs() + a_off) @ b.abs())
        off = a_off @ b.abs() + sums
        return a @ b, off + rounded * ((a @ b).abs() + off)

    own, wide = Experts().double(), x.double()
    none = torch.zeros_like(wide)
    scores, scores_off = product(wide, none, own.router)
    # exp(x + e) is exp(x) exp(e), above and below the line.
    factor = torch.expm1(2 * scores_off.max(-1).values) + rounded
    weights, chosen = torch.topk(scores.softmax(-1), CHOSEN)
    exact, off = torch.zeros_like(wide), torch.zeros_like(wide)
    for token, place in np.ndindex(*chosen.shape):
        expert, weight = chosen[token, place], weights[token, place]
        gate, gate_off = product(wide[token], none[token], own.gate[expert])
        up, up_off = product(wide[token], none[token], own.up[expert])
        silu = torch.nn.functional.silu(gate)
        silu_off = 1.1 * gate_off + rounded * silu.abs()  # no slope of silu is above 1.1
        hidden_off = silu_off * (up.abs() + up_off) + silu.abs() * up_off
        hidden_off += rounded * ((silu * up).abs() + hidden_off)
        made, made_off = product(silu * up, hidden_off, own.down[expert])
        exact[token] += weight * made
        weight_off = weight * factor[token]
        off[token] += (weight + weight_off) * made_off + weight_off * made.abs()
        # The product with the weight, and what is added up so far.
        off[token] += rounded * (weight * made.abs() + exact[token].abs() + off[token])
    return exact.numpy(), off.numpy()


def group_gemm(dtype: str = "float16", ends: str = "int64", *, k: int = K) -> tvm.IRModule:
    """TVM's own runtime function, as MLC-LLM calls it, and an activation."""
    shapes = {"x": (ROWS, K), "weight": (GROUPS, N, k), "indptr": (GROUPS,), "room": (4096,)}
    types = {"x": dtype, "weight": dtype, "indptr": ends, "room": "uint8"}
    builder = relax.BlockBuilder()
    given = [relax.Var(name, relax.TensorType(shapes[name], types[name])) for name in shapes]
    result = relax.TensorType((ROWS, N), dtype)
    with builder.function("main", given):
        with builder.dataflow():
            call = relax.call_dps_packed(
                relax.ExternFunc("cutlass.group_gemm"), tvm.ir.Tuple(given), out_ty=result
            )
            made = builder.emit(relax.op.nn.silu(builder.emit(call)))
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    return builder.get()
