"""FP32 NCHW models become FP16 NHWC ones, with nothing left to convert at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from tvm import relax

from benchmarks.cases.relax_modules import build, operators
from benchmarks.harness.oracle_kernels import Model
from benchmarks.harness.region_oracle import assert_stored
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import annotate, import_model
from boltgen.ir.dtypes import DType
from boltgen.passes.run import Passes
from boltgen.problems.layout_transform.problem import Form, ImageLayout

op = relax.op


def _batch_norm(norm: nn.Module) -> nn.Module:
    """Statistics and parameters other than the initial ones and zeros, in a sane range."""
    with torch.no_grad():
        norm.running_mean.uniform_(-0.2, 0.2)
        norm.running_var.uniform_(0.5, 2.0)
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.uniform_(-0.2, 0.2)
    return norm


class Net(nn.Module):
    """Layers by name, and what to do with them."""

    def __init__(self, forward: Callable[..., object], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            is_norm = isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm1d))
            setattr(self, name, _batch_norm(layer) if is_norm else layer)
        self._forward = forward

    def forward(self, x: torch.Tensor) -> object:
        return self._forward(self, x)


def _check(net: Net, *shape: int, tolerance: float = 2e-3) -> Model:
    """Compare with PyTorch in FP32; inputs, weights and each stored value have one FP16 rounding.

    The nets have at most three products in a row, of terms of magnitude 1, so an error of a few
    half-ulps (2^-11) of the largest output is right, and a layout error is far outside.
    """
    torch.manual_seed(0)
    net = net.eval()
    x = torch.randn(*shape)
    with torch.no_grad():
        expected = net(x)
    model = Model(import_model(torch.export.export(net, (x,))).module, normalise=True)
    outputs = expected if isinstance(expected, tuple) else (expected,)
    for actual, wanted in zip(model.run(x.numpy()), outputs, strict=True):
        assert actual.dtype == np.float32
        scale = max(1.0, float(wanted.abs().max()))
        np.testing.assert_allclose(actual, wanted.numpy(), rtol=0, atol=tolerance * scale)
    return model


# How TVM has the images of these models; the first and the last layer move them.
IMAGES = Form(layout=ImageLayout.NCHW, dtype=DType.F32)


def test_conv_bias_batch_norm_is_one_kernel() -> None:
    model = _check(
        Net(
            lambda s, x: torch.relu(s.norm(s.conv(x))),
            conv=nn.Conv2d(8, 16, 3, padding=1),
            norm=nn.BatchNorm2d(16),
        ),
        *(2, 8, 6, 6),
    )
    (region,) = model.regions
    assert region.workload.last.epilogue.describe() == "relu(add(acc, row0))"
    assert operators(model.annotated) == []
    assert_stored(region.a_stored, IMAGES, 8)
    assert_stored(region.d_stored, IMAGES, 16)


def test_conv_batch_norm_without_bias_and_dense_batch_norm() -> None:
    model = _check(
        Net(
            lambda s, x: s.norm1(s.dense(s.norm2(s.conv(x)).mean((2, 3)))),
            conv=nn.Conv2d(8, 16, 3, bias=False),
            norm2=nn.BatchNorm2d(16),
            dense=nn.Linear(16, 24, bias=False),
            norm1=nn.BatchNorm1d(24),
        ),
        *(2, 8, 6, 6),
    )
    assert [region.workload.last.epilogue.describe() for region in model.regions] == [
        "add(acc, row0)"
    ] * 2


def test_a_batch_norm_before_a_convolution_is_scale_and_shift() -> None:
    model = _check(
        Net(
            lambda s, x: s.b(torch.relu(s.norm(s.a(x) + x))),
            a=nn.Conv2d(8, 8, 3, padding=1),
            norm=nn.BatchNorm2d(8),
            b=nn.Conv2d(8, 8, 1),
        ),
        *(2, 8, 6, 6),
    )
    assert model.regions[0].workload.last.epilogue.describe() == (
        "relu(add(multiply(add(add(acc, row0), tensor0), row1), row2))"
    )


def test_a_convolution_used_beside_its_batch_norm_keeps_its_weights() -> None:
    _check(
        Net(
            lambda s, x: s.norm(y := s.conv(x)) + torch.tanh(y),
            conv=nn.Conv2d(8, 16, 3),
            norm=nn.BatchNorm2d(16),
        ),
        *(2, 8, 6, 6),
    )


def _stacked(read: Callable[[relax.Expr], object]) -> tuple[Model, list[np.ndarray]]:
    """A stack of three images, two of them results of products, and what `read` makes of it."""
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((8, 8, 1, 1)) / 3).astype(np.float32)

    def body(x: relax.Expr, y: relax.Expr) -> object:
        a, b = (op.nn.conv2d(each, relax.const(weight)) for each in (x, y))
        return read(op.stack([a, b, op.broadcast_to(y, (2, 8, 6, 6))], 0))

    model = Model(build(dict.fromkeys("xy", ((2, 8, 6, 6), "float32")), body), normalise=True)
    x, y = (rng.standard_normal((2, 8, 6, 6)).astype(np.float32) for _ in range(2))
    a, b = (np.einsum("nchw,kc->nkhw", each, weight[..., 0, 0]) for each in (x, y))
    return model, [np.stack([a, b, y]), *model.run(x, y)]


@pytest.mark.parametrize(
    ("name", "binary"), [("sum", "add"), ("max", "maximum"), ("min", "minimum")]
)
def test_a_reduced_stack_is_in_the_epilogue(name: str, binary: str) -> None:
    model, (stack, reduced) = _stacked(lambda stack: op.nn.relu(getattr(op, name)(stack, [0])))
    assert set(operators(model.annotated)) == {"permute_dims"}  # y is a residual too
    assert sorted(region.workload.last.epilogue.describe() for region in model.regions) == [
        "acc",
        f"relu({binary}({binary}(acc, tensor0), tensor1))",
    ]
    wanted = np.maximum(getattr(stack, name)(0), 0)
    # Two FP16 roundings of operands, three of results.
    np.testing.assert_allclose(reduced, wanted, rtol=0, atol=5 * 2**-11 * np.abs(wanted).max())


def test_a_stack_that_is_read_or_reduced_otherwise_is_made() -> None:
    model, (wanted, stack, deep, kept) = _stacked(
        lambda stack: (stack, op.sum(stack, [0, 2]), op.max(stack, [0], keepdims=True))
    )
    assert "stack" in operators(model.annotated)
    error = 5 * 2**-11 * np.abs(wanted).max()
    np.testing.assert_allclose(stack, wanted, rtol=0, atol=error)
    np.testing.assert_allclose(deep, wanted.sum((0, 2)), rtol=0, atol=24 * error)
    np.testing.assert_allclose(kept, wanted.max(0, keepdims=True), rtol=0, atol=error)


def test_pools_joins_pads_and_reductions_stay_in_nhwc() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(torch.relu(s.a(x)), 3, 2, 1)
        y = torch.cat([s.b(y), functional.avg_pool2d(functional.pad(y, (1, 1, 1, 1)), 3, 1)], 1)
        y = y * torch.sigmoid(s.gate(y.mean((2, 3), keepdim=True)))
        y = functional.softmax(s.c(y), dim=1)
        return functional.adaptive_avg_pool2d(y, 1)

    model = _check(
        Net(
            forward,
            a=nn.Conv2d(8, 16, 3, padding=1),
            b=nn.Conv2d(16, 8, 1),
            gate=nn.Conv2d(24, 24, 1),
            c=nn.Conv2d(24, 16, 3),
        ),
        *(2, 8, 12, 12),
    )
    found = operators(model.annotated)
    assert len(model.regions) == 5  # the softmax of channels too
    assert_stored(model.regions[0].a_stored, IMAGES, 8)
    assert found.count("permute_dims") == 0  # the result's last step moves extents of 1: a reshape


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resizing_stays_in_nhwc(mode: str) -> None:
    model = _check(
        Net(
            lambda s, x: s.b(functional.interpolate(torch.relu(s.a(x)), (12, 10), mode=mode)),
            a=nn.Conv2d(8, 16, 3),
            b=nn.Conv2d(16, 8, 3),
        ),
        *(2, 8, 8, 7),
    )
    assert operators(model.annotated) == ["astype", "image.resize2d", "astype"]


def test_flattening_before_a_dense_layer_permutes_its_weight() -> None:
    model = _check(
        Net(
            lambda s, x: s.dense(functional.dropout(torch.relu(s.conv(x)).flatten(1), 0.5, False)),
            conv=nn.Conv2d(8, 16, 3),
            dense=nn.Linear(16 * 4 * 5, 8),
        ),
        *(2, 8, 6, 7),
    )
    assert operators(model.annotated) == ["reshape"]


def test_flattening_without_a_dense_layer_gives_the_order_of_its_author() -> None:
    _check(
        Net(lambda s, x: (torch.relu(s.conv(x).flatten(1)), x.flatten(1)), conv=nn.Conv2d(8, 4, 3)),
        *(2, 8, 6, 7),
    )


def test_a_convolution_in_groups_has_a_kernel() -> None:
    model = _check(
        Net(
            lambda s, x: s.b(torch.relu(s.norm(s.a(x)))),
            a=nn.Conv2d(8, 16, 3, groups=4),
            norm=nn.BatchNorm2d(16),
            b=nn.Conv2d(16, 8, 1),
        ),
        *(2, 8, 6, 6),
    )
    first, second = (region.workload.first.problem for region in model.regions)
    # Four groups of two channels are multiplied as one of eight.
    assert (first.a_shape[-1], first.b_shape, first.groups) == (8, (16, 3, 3, 8), 1)
    assert second.has_b


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (functional.silu, "silu(add(acc, row0))"),
        (functional.mish, "mish(add(acc, row0))"),
        (functional.softplus, "softplus(add(acc, row0))"),
        (functional.hardswish, "hardswish(add(acc, row0))"),
        (functional.hardsigmoid, "hardsigmoid(add(acc, row0), 0.166667, 0.5)"),
        (functional.relu6, "relu6(add(acc, row0))"),
        (functional.selu, "selu(add(acc, row0))"),
        (lambda y: functional.elu(y, 0.5), "elu(add(acc, row0), 0.5)"),
        (lambda y: y * torch.sigmoid(1.702 * y), "quick_gelu(add(acc, row0))"),
        (functional.gelu, "gelu_erf(add(acc, row0))"),
        (lambda y: functional.gelu(y, approximate="tanh"), "gelu_tanh(add(acc, row0))"),
        (lambda y: functional.leaky_relu(y, 0.2), "leaky_relu(add(acc, row0), 0.2)"),
    ],
)
def test_activations_of_pytorch(function: Callable[..., torch.Tensor], text: str) -> None:
    model = _check(Net(lambda s, x: function(s.dense(x)), dense=nn.Linear(16, 24)), 8, 16)
    (region,) = model.regions
    assert region.workload.last.epilogue.describe() == text
    assert region.workload.first.problem.out_dtype.value == "float32"
    assert_stored(region.a_stored, replace(IMAGES, layout=ImageLayout.NHWC), 16)
    assert operators(model.annotated) == []


def test_attention_needs_no_permutation() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(2, 12, 4, 8).permute(0, 2, 1, 3)

        q, k, v = heads(s.q(x)), heads(s.k(x)), heads(s.v(x))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        mask = torch.triu(torch.full((12, 12), -1e9), 1)
        mixed = (scores + mask).softmax(-1) @ v
        return s.out(mixed.permute(0, 2, 1, 3).reshape(2, 12, 32)) + x

    model = _check(
        Net(forward, **{name: nn.Linear(32, 32) for name in ("q", "k", "v", "out")}), 2, 12, 32
    )
    assert len(model.regions) == 5  # scores, softmax and values are one
    assert "permute_dims" not in operators(model.annotated)  # each operand is a view


def test_a_mask_beyond_fp16_does_not_become_infinite() -> None:
    def forward(s: Net, x: torch.Tensor) -> torch.Tensor:
        keep = (x[:, :16] > 0).float()
        return (s.dense(x) + (1.0 - keep) * -1e30).softmax(-1)

    _check(Net(forward, dense=nn.Linear(24, 16)), 8, 24)


def test_reductions_are_in_fp32() -> None:
    # 4096 numbers near 20 sum to more than FP16 can hold.
    _check(
        Net(
            lambda s, x: s.dense((x * x + 20).sum(1, keepdim=True) / 4096 - 20 + x[:, :16]),
            dense=nn.Linear(16, 8),
        ),
        4,
        4096,
    )


def test_weights_are_constants_in_their_final_form() -> None:
    model = _check(
        Net(
            lambda s, x: s.wide(torch.relu(s.narrow(x))),
            narrow=nn.Linear(16, 10),
            wide=nn.Linear(10, 16),
        ),
        4,
        16,
    )
    narrow, wide = model.regions
    # Ten columns allow 4-byte loads along N, sixteen rows allow 16-byte loads along K; and back.
    assert (narrow.workload.first.problem.alignment_b, wide.workload.first.problem.alignment_b) == (
        8,
        8,
    )
    assert operators(model.annotated) == []


def test_an_fp16_nhwc_module_keeps_its_form() -> None:
    module = build(
        {"x": ((2, 6, 6, 8), "float16"), "w": ((16, 3, 3, 8), "float16")},
        lambda x, w: op.nn.relu(op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI")),
    )
    model = Model(module, normalise=True)
    assert len(model.regions) == 1
    assert operators(model.annotated) == []


def test_an_nchw_weight_that_is_an_input_is_permuted_at_run_time() -> None:
    module = build({"x": ((2, 8, 6, 6), "float32"), "w": ((16, 8, 3, 3), "float32")}, op.nn.conv2d)
    model = Model(module, normalise=True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 8, 6, 6), np.float32)
    w = rng.standard_normal((16, 8, 3, 3), np.float32)
    expected = functional.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy()
    # 72 products of two numbers that were each rounded to FP16, and the sum again.
    np.testing.assert_allclose(model.run(x, w)[0], expected, atol=72 * 2**-10)


def test_a_model_without_products_still_runs() -> None:
    model = Model(
        build({"x": ((4, 8), "float32")}, lambda x: op.nn.softmax(op.nn.relu(x), 1)),
        normalise=True,
    )
    assert [region.label for region in model.regions] == ["softmax"]
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    expected = torch.softmax(torch.relu(torch.from_numpy(x)), 1).numpy()
    np.testing.assert_allclose(model.run(x)[0], expected, atol=2**-11)


def test_a_weight_that_leaves_fp16_keeps_its_product_in_fp32() -> None:
    weight = relax.const(np.full((8, 8), 7e4, np.float32))
    other = relax.const(np.eye(8, dtype=np.float32))
    module = build({"x": ((4, 8), "float32")}, lambda x: op.matmul(op.matmul(x, weight), other))
    model = Model(module, normalise=True)
    wide, narrow = (p for p in model.annotated.placements if p.operator.startswith("matmul"))
    assert (wide.region, len(model.regions)) == (None, 1)
    assert "70000" in wide.reason and "65504" in wide.reason
    x = np.full((4, 8), 1e-3, np.float32)
    # 560 in FP32; its FP16 form and that of the result are half an ulp off each.
    np.testing.assert_allclose(model.run(x)[0], np.full((4, 8), 560.0), rtol=2 * 2**-11)
    assert narrow.region is not None


def test_a_weight_that_is_nan_or_infinite_is_refused() -> None:
    for wrong in (np.inf, np.nan):
        weight = relax.const(np.full((8, 8), wrong, np.float32))
        module = build({"x": ((4, 8), "float32")}, lambda x, w=weight: op.matmul(x, w))
        with pytest.raises(ModelImportError, match=rf"matmul.*\(8, 8\).*{wrong}"):
            annotate(module)
        assert operators(annotate(module, passes=Passes(allow_nonfinite=True))) is not None


def test_names_of_inputs_and_attributes_of_functions_stay() -> None:
    module = build({"image": ((4, 8), "float32")}, op.nn.relu)
    module = relax.transform.AttachAttrLayoutFreeBuffers()(module)
    function = annotate(module).module()["main"]
    assert [param.name for param in function.params] == ["image"]
    assert function.attrs["global_symbol"] == "main"


def test_results_that_nothing_computes() -> None:
    constant = relax.const(np.arange(3, dtype=np.float32))
    module = build(
        {"x": ((1, 8, 4, 4), "float32")},
        lambda x: (x, constant, op.permute_dims(x, [0, 2, 3, 1]), op.add(constant, constant)),
    )
    model = Model(module, normalise=True)
    x = np.arange(128, dtype=np.float32).reshape(1, 8, 4, 4)
    same, three, moved, doubled = model.run(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(three, np.arange(3))
    np.testing.assert_array_equal(moved, x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(doubled, 2 * np.arange(3))


def test_integers_and_booleans_pass_unharmed() -> None:
    table = relax.const(np.arange(40, dtype=np.float32).reshape(10, 4))
    module = build(
        {"i": ((5,), "int64"), "x": ((5, 4), "float32")},
        lambda i, x: op.where(
            op.greater(x, relax.const(0.0)),
            op.take(table, op.add(i, relax.const(1, "int64")), axis=0),
            op.negative(x),
        ),
    )
    model = Model(module, normalise=True)
    i = np.array([0, 2, 4, 6, 8])
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    rows = np.arange(40).reshape(10, 4)[i + 1]
    np.testing.assert_allclose(model.run(i, x)[0], np.where(x > 0, rows, -x), rtol=2**-11)
