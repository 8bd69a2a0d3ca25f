"""What the vendor's columns compute, on the CPU: all of it but what only CUDA has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu import shapes
from benchmarks.gpu.items import Attend, Convolution, Product
from benchmarks.gpu.vendor import Vendor
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.recurrence import Cell
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload

VENDOR = Vendor("cpu")
CONV = Conv2d(
    n=2, h=9, w=7, c=16, k=24, r=3, s=3, padding=(1, 1, 1, 1), stride=(2, 1), dilation=(1, 2)
)
# As a first layer in pairs of pixels.
UNEVEN = Conv2d(n=2, h=10, w=6, c=8, k=16, r=7, s=4, stride=(2, 1), padding=(3, 2, 3, 1))
PRODUCTS = {
    "column": Gemm(m=17, n=24, k=40, b_layout=Layout.COLUMN),
    "row": Gemm(m=17, n=24, k=40, b_layout=Layout.ROW),
    "conv": CONV,
    "uneven padding": UNEVEN,
    "groups": replace(CONV, groups=8),
    "depthwise": Depthwise(n=2, h=9, w=7, c=16, r=3, s=3, padding=(1, 1, 1, 1), multiplier=2),
}


def as_ours(problem: Gemm | Convolution, x: Any, w: Any) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's operands as boltgen's kernels lie in memory, without a copy of any of them."""
    if isinstance(problem, Depthwise):
        return x.permute(0, 2, 3, 1).numpy(), w.permute(2, 3, 0, 1).contiguous().numpy()
    if isinstance(problem, Conv2d):
        return x.permute(0, 2, 3, 1).numpy(), w.permute(0, 2, 3, 1).numpy()
    return x.numpy(), (w if problem.b_layout is Layout.COLUMN else w.t()).numpy()


def from_theirs(problem: Gemm | Convolution, output: Any) -> np.ndarray:
    assert output.dtype is torch.float16
    if not isinstance(problem, Gemm):
        assert output.is_contiguous(memory_format=torch.channels_last)
        output = output.permute(0, 2, 3, 1)
    return output.float().numpy()


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    """Within a rounding to FP16 of the product, of the sum with a bias and of the activation."""
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= 3 * 2.0**-11 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_vendors_product_is_ours(name: str):
    problem = PRODUCTS[name]
    sets = VENDOR.products(problem, launches=3)
    assert len(sets) == 3
    for x, w in sets:
        a, b = as_ours(problem, x, w)
        if problem is UNEVEN:  # PyTorch's images are padded beforehand
            assert a.shape == (2, 10 + 3 + 3, 6 + 2 + 1, 8)
            a = a[:, 3:-3, 2:-1]
            assert np.count_nonzero(x.numpy()) == np.count_nonzero(a)
        # NHWC and rows behind one another: what our kernels read, the vendor's read.
        assert a.flags.c_contiguous or problem is UNEVEN
        assert b.flags.c_contiguous
        found = VENDOR.product(problem)(x, w)
        assert_near(
            from_theirs(problem, found), reference.run(problem, ElementwiseGraph(), a, b, [])
        )
    assert not np.array_equal(sets[0][0].numpy(), sets[1][0].numpy())


@pytest.mark.parametrize("directions", [1, 2])
def test_the_vendors_recurrent_layer_is_ours(directions: int) -> None:
    """PyTorch's gates are i, f, g, o, and ours i, o, f, g; it multiplies the inputs itself."""
    problem = Recurrent(cell=Cell.LSTM, steps=5, batch_rows=3, hidden=8, directions=directions)
    layers = VENDOR.recurrent(problem, 2)
    assert len(layers) == 2
    for layer, x in layers:
        found = layer(x)[0].float().numpy()
        order = np.concatenate([np.arange(8) + 8 * gate for gate in (0, 3, 1, 2)])
        projected, weights = [], []
        for suffix in ("l0", "l0_reverse")[:directions]:
            of_input, of_state, one, other = (
                getattr(layer, f"{name}_{suffix}").float().numpy()[order]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            projected.append(x.float().numpy() @ of_input.T + one + other)
            weights.append(of_state)
        a = np.concatenate(projected, axis=-1).astype(np.float16)
        inputs = LayerInputs(np.zeros(0), (), further=(np.stack(weights).astype(np.float16),))
        expected = enclose(Workload.of(problem), a, [inputs])
        assert_near(found, (expected.low + expected.high) / 2)


def test_a_cell_that_pytorch_lacks_is_refused() -> None:
    problem = Recurrent(cell=Cell.GRU_RESET_FIRST, steps=2, batch_rows=1, hidden=8)
    with pytest.raises(ValueError, match="no layer like gru_reset_first"):
        VENDOR.recurrent(problem, 1)


@pytest.mark.parametrize("activation", shapes.ACTIVATIONS)
@pytest.mark.parametrize("name", ["column", "conv"])
def test_the_vendors_epilogue_is_ours(name: str, activation: str):
    problem = PRODUCTS[name]
    ((x, w),) = VENDOR.products(problem, launches=1)
    bias = VENDOR.random(24)
    found = VENDOR.with_epilogue(problem, bias, activation)(x, w)
    epilogue = shapes.bias_then(shapes.ACTIVATIONS[activation])
    expected = reference.run(problem, epilogue, *as_ours(problem, x, w), [bias.numpy()])
    assert_near(from_theirs(problem, found), expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_vendors_attention_is_ours(is_causal: bool):
    """The same operands, as they lie in memory: within a rounding of weights and of the output."""
    shape = shapes.AttentionShape(heads=3, rows=24, keys=24, depth=16, is_causal=is_causal)
    item = attend(shape)
    q, k, v = VENDOR.heads(item)
    assert all(one.is_contiguous() for one in (q, k, v))
    found = VENDOR.attend(item, q, k, v).numpy()[0].astype(np.float32)
    inputs = [LayerInputs(k.numpy()[0], ()), LayerInputs(v.numpy()[0], ())]
    expected = enclose(shape.workload, q.numpy()[0], inputs)
    assert_near(found, (expected.low + expected.high) / 2)


def attend(shape: shapes.AttentionShape) -> Attend:
    return Attend(
        section="attention",
        name="a",
        heads=shape.heads,
        rows=shape.rows,
        keys=shape.keys,
        depth=shape.depth,
        is_causal=shape.is_causal,
        product=Product(workload=shape.workload, choices=()),
    )


def test_attention_has_a_column_for_each_backend():
    shape = shapes.AttentionShape(heads=1, rows=8, keys=8, depth=8)
    assert set(VENDOR.attention(attend(shape), 1)) == {"flash", "cudnn", "efficient"}


def test_a_batch_is_refused():
    with pytest.raises(ValueError, match="batch of 3"):
        VENDOR.product(Gemm(batch=3, m=8, n=8, k=8, b_layout=Layout.COLUMN))


def test_modes_of_the_library_are_set_and_restored():
    backend = torch.backends.cuda
    before = backend.preferred_blas_library(), backend.matmul.allow_fp16_reduced_precision_reduction
    with VENDOR.blas("cublas", reduced=False):
        assert not backend.matmul.allow_fp16_reduced_precision_reduction
    with VENDOR.blas("cublas", reduced=True):
        assert backend.matmul.allow_fp16_reduced_precision_reduction
    after = backend.preferred_blas_library(), backend.matmul.allow_fp16_reduced_precision_reduction
    assert after == before


def test_a_gemm_has_four_modes_and_a_convolution_one():
    assert set(VENDOR.replays(PRODUCTS["column"], 1)) == {
        *("cublas_fp16_sums", "cublas_fp32_sums", "cublaslt_fp16_sums", "cublaslt_fp32_sums"),
    }
    assert set(VENDOR.replays(CONV, 1)) == {"cudnn"}
    assert set(VENDOR.replays(UNEVEN, 1)) == {"cudnn_padded_before"}
    assert set(VENDOR.fused(CONV, "relu", 1)) == {"eager", "compiled"}


def test_many_functions_of_one_line_are_compiled():
    """More than PyTorch keeps of one line of code; with its simplest backend, which is quick."""
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    x, count = torch.ones(2), torch._dynamo.config.recompile_limit + 2
    for number in range(count):
        VENDOR.compiled(lambda v, n=number: v + n)  # forgets what was compiled before
        torch.compile(lambda v, n=number: v + n, backend=backend, dynamic=False)(x)
    assert len(compiled) == count


def test_copies_of_operands_are_bounded_by_memory():
    problem = Gemm(m=4096, n=8, k=4096, b_layout=Layout.COLUMN)
    assert len(VENDOR.products(problem, launches=2)) == 2
    assert len(VENDOR.sets(10**6, lambda: (torch.empty(64 << 20, dtype=torch.float16),))) == 4
