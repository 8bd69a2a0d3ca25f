"""From Relax modules to regions and their numbers, kernels played by the oracle."""

# ruff: noqa: N805 - TVMScript modules are no classes
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from benchmarks.cases.relax_modules import build, operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import annotate
from boltgen.ir.dtypes import Layout
from boltgen.ir.extent import Symbol
from boltgen.passes.run import Passes
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm

op = relax.op
Expr = relax.Expr
# y is the product; b a vector, r and q tensors of the output's shape, x the activation.
Tail = Callable[..., Expr]


def _half(value: float) -> Expr:
    return relax.const(value, "float16")


TAILS: dict[str, tuple[str, Tail, Callable[..., torch.Tensor]]] = {
    "bias": ("add(acc, row0)", lambda y, b, r, q, x: op.add(y, b), lambda y, b, r, q, x: y + b),
    "bias_first": (
        "add(row0, acc)",
        lambda y, b, r, q, x: op.add(b, y),
        lambda y, b, r, q, x: y + b,
    ),
    "residual_before_relu": (
        "relu(add(add(acc, row0), tensor0))",
        lambda y, b, r, q, x: op.nn.relu(op.add(op.add(y, b), r)),
        lambda y, b, r, q, x: torch.relu(y + b + r),
    ),
    "residual_after_relu": (
        "add(tensor0, relu(add(acc, row0)))",
        lambda y, b, r, q, x: op.add(r, op.nn.relu(op.add(y, b))),
        lambda y, b, r, q, x: torch.relu(y + b) + r,
    ),
    "residual_is_the_activation": (
        "relu(add(acc, tensor0))",
        lambda y, b, r, q, x: op.nn.relu(op.add(y, x)),
        lambda y, b, r, q, x: torch.relu(y + x),
    ),
    "two_residuals": (
        "multiply(subtract(tensor0, acc), tensor1)",
        lambda y, b, r, q, x: op.multiply(op.subtract(r, y), q),
        lambda y, b, r, q, x: (r - y) * q,
    ),
    "one_residual_twice": (
        "multiply(add(acc, tensor0), tensor0)",
        lambda y, b, r, q, x: op.multiply(op.add(y, r), r),
        lambda y, b, r, q, x: (y + r) * r,
    ),
    "per_channel_scale": (
        "add(multiply(acc, row0), row0)",
        lambda y, b, r, q, x: op.add(op.multiply(y, b), b),
        lambda y, b, r, q, x: y * b + b,
    ),
    "leaky_relu": (
        "leaky_relu(add(acc, row0), 0.125)",
        lambda y, b, r, q, x: op.nn.leakyrelu(op.add(y, b), 0.125),
        lambda y, b, r, q, x: functional.leaky_relu(y + b, 0.125),
    ),
    "clip": (
        "clip(acc, -0.5, 0.75)",
        lambda y, b, r, q, x: op.clip(y, -0.5, 0.75),
        lambda y, b, r, q, x: torch.clip(y, -0.5, 0.75),
    ),
    "gelu": (
        "gelu_erf(add(acc, row0))",
        lambda y, b, r, q, x: op.nn.gelu(op.add(y, b)),
        lambda y, b, r, q, x: functional.gelu(y + b),
    ),
    "gelu_tanh": (
        "gelu_tanh(acc)",
        lambda y, b, r, q, x: op.nn.gelu_tanh(y),
        lambda y, b, r, q, x: functional.gelu(y, approximate="tanh"),
    ),
    "silu_composed": (
        "add(silu(add(acc, row0)), tensor0)",
        lambda y, b, r, q, x: op.add(op.multiply(op.add(y, b), op.sigmoid(op.add(y, b))), r),
        lambda y, b, r, q, x: functional.silu(y + b) + r,
    ),
    "softplus": (
        "softplus(acc)",
        lambda y, b, r, q, x: op.nn.softplus(y, 1.0, 20.0),
        lambda y, b, r, q, x: functional.softplus(y),
    ),
    "prelu": (
        "add(relu(acc), multiply(row0, clip(acc, -inf, 0)))",
        lambda y, b, r, q, x: op.nn.prelu(y, b, -1),
        lambda y, b, r, q, x: torch.where(y > 0, y, b * y),
    ),
    "scalars": (
        "multiply(add(acc, 0.5), 2)",
        lambda y, b, r, q, x: op.multiply(op.add(y, _half(0.5)), _half(2)),
        lambda y, b, r, q, x: (y + 0.5) * 2,
    ),
    "minimum_maximum": (
        "maximum(minimum(acc, tensor0), tensor1)",
        lambda y, b, r, q, x: op.maximum(op.minimum(y, r), q),
        lambda y, b, r, q, x: torch.maximum(torch.minimum(y, r), q),
    ),
    "exp_of_square": (
        "exp(negate(multiply(acc, acc)))",
        lambda y, b, r, q, x: op.exp(op.negative(op.square(y))),
        lambda y, b, r, q, x: torch.exp(-(y * y)),
    ),
}

SIZE = 24
GENERATOR = np.random.default_rng(7)


def _random(*shape: int) -> np.ndarray:
    return (GENERATOR.standard_normal(shape) / 2).astype(np.float16)


def _exact(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array.astype(np.float64)) for array in arrays]


def _assert_one_rounding(actual: np.ndarray, expected: torch.Tensor) -> None:
    # The oracle is exact to FP64 and rounds once to FP16, half an ulp: 2^-11 relative, or half of
    # the smallest subnormal. Activations' constants, exact here, are not the question.
    np.testing.assert_allclose(actual, expected.numpy(), rtol=2**-11 * 1.001, atol=2**-24)


@pytest.mark.parametrize("name", TAILS)
def test_gemm_tail(name: str) -> None:
    text, tail, expected = TAILS[name]
    x, w = _random(SIZE, SIZE), _random(SIZE, SIZE)
    b, r, q = _random(SIZE), _random(SIZE, SIZE), _random(SIZE, SIZE)
    square = ((SIZE, SIZE), "float16")
    module = build(
        {"b": ((SIZE,), "float16"), "r": square, "q": square, "x": square, "w": square},
        lambda b, r, q, x, w: _bind(op.matmul(x, w), lambda y: tail(y, b, r, q, x)),
    )
    model = Model(module)
    (region,) = model.regions
    assert region.workload.first.problem == Gemm(m=SIZE, n=SIZE, k=SIZE)
    assert region.workload.last.epilogue.describe() == text
    assert operators(model.annotated) == []
    (actual,) = model.run(b, r, q, x, w)
    xd, wd, bd, rd, qd = _exact(x, w, b, r, q)
    _assert_one_rounding(actual, expected(xd @ wd, bd, rd, qd, xd))


@pytest.mark.parametrize("name", TAILS)
def test_conv2d_tail(name: str) -> None:
    text, tail, expected = TAILS[name]
    shape = (2, 5, 6, 8)
    x, w = _random(*shape), _random(8, 3, 3, 8)
    b, r, q = _random(8), _random(*shape), _random(*shape)
    full = (shape, "float16")
    module = build(
        {"w": (w.shape, "float16"), "x": full, "q": full, "r": full, "b": ((8,), "float16")},
        lambda w, x, q, r, b: _bind(
            op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI"),
            lambda y: tail(y, b, r, q, x),
        ),
    )
    model = Model(module)
    (region,) = model.regions
    assert isinstance(region.workload.first.problem, Conv2d)
    assert region.workload.last.epilogue.describe() == text
    assert operators(model.annotated) == []
    (actual,) = model.run(w, x, q, r, b)
    xd, wd, bd, rd, qd = _exact(x, w, b, r, q)
    product = functional.conv2d(xd.permute(0, 3, 1, 2), wd.permute(0, 3, 1, 2), padding=1)
    _assert_one_rounding(actual, expected(product.permute(0, 2, 3, 1), bd, rd, qd, xd))


def _bind(value: Expr, use: Callable[[Expr], Expr]) -> Expr:
    """`use(value)`, with `value` bound once however often it is used."""
    return use(relax.BlockBuilder.current().emit(value))


def _batched(a: tuple[int, ...], b: tuple[int, ...], r: tuple[int, ...]) -> tvm.IRModule:
    return build(
        {"a": (a, "float16"), "b": (b, "float16"), "r": (r, "float16")},
        lambda a, b, r: op.add(op.matmul(a, op.permute_dims(b, _swapped(b))), r),
    )


def _swapped(expr: Expr) -> list[int]:
    rank = len(expr.ty.shape.values)
    return [*range(rank - 2), rank - 1, rank - 2]


@pytest.mark.parametrize(
    ("a", "b", "r", "batched"),
    [
        ((2, 3, 8, 16), (2, 3, 24, 16), (2, 3, 8, 24), (True, True)),
        ((6, 8, 16), (6, 24, 16), (8, 24), (True, False)),
        ((6, 8, 16), (6, 24, 16), (24,), (True, False)),
        ((6, 8, 16), (6, 24, 16), (8, 1), (True, False)),
        ((8, 16), (6, 24, 16), (1, 8, 24), (False, False)),
    ],
)
def test_batched_gemm(
    a: tuple[int, ...], b: tuple[int, ...], r: tuple[int, ...], batched: tuple[bool, bool]
) -> None:
    model = Model(_batched(a, b, r))
    (region,) = model.regions
    problem = region.workload.first.problem
    assert isinstance(problem, Gemm)
    assert (problem.batch, problem.m, problem.n, problem.k) == (6, 8, 24, 16)
    assert problem.b_layout is Layout.COLUMN
    assert (problem.a_batched, region.layers[0].operands[0].batched) == batched
    assert operators(model.annotated) == []
    arrays = [_random(*shape) for shape in (a, b, r)]
    ad, bd, rd = _exact(*arrays)
    (actual,) = model.run(*arrays)
    _assert_one_rounding(actual, ad @ bd.transpose(-1, -2) + rd)


def test_a_row_per_sample_stays_outside() -> None:
    module = _batched((6, 8, 16), (6, 24, 16), (6, 1, 24))
    annotated = annotate(module, passes=Passes(normalise=False))
    assert annotated.regions[0].workload.last.epilogue.is_identity
    assert operators(annotated) == ["add"]


def test_leading_dimensions_are_rows() -> None:
    module = build(
        {"x": ((2, 3, 4, 8), "float16"), "w": ((8, 16), "float16"), "b": ((1, 1, 16), "float16")},
        lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)),
    )
    model = Model(module)
    assert model.regions[0].workload.first.problem == Gemm(m=24, n=16, k=8)
    x, w, b = _random(2, 3, 4, 8), _random(8, 16), _random(1, 1, 16)
    xd, wd, bd = _exact(x, w, b)
    _assert_one_rounding(model.run(x, w, b)[0], torch.relu(xd @ wd + bd))


def test_fp32_results_by_attribute_and_by_cast() -> None:
    module = build(
        {"x": ((8, 16), "float16"), "w": ((16, 24), "float16"), "v": ((16, 24), "float16")},
        lambda x, w, v: (
            op.matmul(x, w, out_dtype="float32"),
            op.astype(op.matmul(x, v), "float32"),
        ),
    )
    model = Model(module)
    assert [region.workload.first.problem.out_dtype.value for region in model.regions] == [
        "float32"
    ] * 2
    assert operators(model.annotated) == []
    x, w, v = _random(8, 16), _random(16, 24), _random(16, 24)
    xd, wd, vd = _exact(x, w, v)
    first, second = model.run(x, w, v)
    np.testing.assert_allclose(first, (xd @ wd).numpy(), rtol=2**-23)
    np.testing.assert_allclose(second, (xd @ vd).numpy(), rtol=2**-23)


def test_a_cast_in_the_middle_rounds_as_its_author_wrote() -> None:
    module = build(
        {"x": ((8, 16), "float16"), "w": ((16, 24), "float16")},
        lambda x, w: op.astype(
            op.exp(op.astype(op.matmul(x, w, out_dtype="float32"), "float16")), "float32"
        ),
    )
    (region,) = annotate(module, passes=Passes(normalise=False)).regions
    assert region.workload.last.epilogue.describe() == "exp(float16(acc))"
    assert region.workload.first.problem.out_dtype.value == "float32"


@I.ir_module
class SharedAndCyclic:
    """A product used twice; a residual that depends on it; a tuple as result."""

    @R.function
    def main(x: R.Tensor((8, 16), "float16"), w: R.Tensor((16, 16), "float16")) -> R.Tuple(
        R.Tensor((8, 16), "float16"), R.Tensor((8, 16), "float16")
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            a = R.nn.relu(y)
            s = R.nn.softmax(a, axis=-1)
            z = R.add(a, s)
            v = R.matmul(z, w)
            first = R.nn.relu(v)
            second = R.tanh(v)
            R.output(first, second)
        return (first, second)


def test_shared_values_and_cycles_end_regions() -> None:
    model = Model(SharedAndCyclic)
    assert [region.label for region in model.regions] == [
        "matmul + relu",
        "softmax + add",
        "matmul + relu + tanh",
    ]
    assert operators(model.annotated) == []
    x, w = _random(8, 16), _random(16, 16)
    first, second = model.run(x, w)
    xd, wd = _exact(x, w)
    a = torch.relu(xd @ wd)
    v = (a + torch.softmax(a, -1)) @ wd
    # Four roundings to FP16 on the way, each carried through a product of 16 terms.
    np.testing.assert_allclose(first, torch.relu(v).numpy(), atol=0.02)
    np.testing.assert_allclose(second, torch.tanh(v).numpy(), atol=0.02)


def test_one_add_joins_one_of_two_products() -> None:
    module = build(
        {"x": ((8, 16), "float16"), "w": ((16, 16), "float16"), "v": ((16, 16), "float16")},
        lambda x, w, v: op.nn.relu(op.add(op.matmul(x, w), op.matmul(x, v))),
    )
    model = Model(module)
    assert sorted(region.label for region in model.regions) == ["matmul", "matmul + add + relu"]
    x, w, v = _random(8, 16), _random(16, 16), _random(16, 16)
    xd, wd, vd = _exact(x, w, v)
    expected = torch.relu(xd @ wd + xd @ vd).numpy()
    # The second product is rounded to FP16 before it is added: half an ulp of at most 8.
    np.testing.assert_allclose(model.run(x, w, v)[0], expected, rtol=2**-11, atol=2**-9)


def test_a_product_with_itself_has_one_parameter_in_two_roles() -> None:
    module = build({"x": ((16, 16), "float16")}, lambda x: op.add(op.matmul(x, x), x))
    model = Model(module)
    (region,) = model.regions
    assert (region.parameter_count, region.a, region.layers[0].b) == (1, 0, 0)
    assert region.layers[0].operands[0].parameter == 0
    x = _random(16, 16)
    (xd,) = _exact(x)
    _assert_one_rounding(model.run(x)[0], xd @ xd + xd)


def test_placements_name_every_operator_and_its_reason() -> None:
    module = build(
        {
            "x": ((1, 8, 8, 16), "float16"),
            "w": ((3, 3, 4, 16), "float16"),
            "v": ((16, 8), "float32"),
        },
        lambda x, w, v: op.matmul(
            op.astype(
                op.nn.relu(op.nn.conv2d(x, w, groups=4, data_layout="NHWC", kernel_layout="HWIO")),
                "float32",
            ),
            v,
        ),
    )
    placed = annotate(module, passes=Passes(normalise=False)).placements
    assert [(p.operator, p.region) for p in placed] == [
        ("conv2d", None),
        ("relu", None),
        ("astype", None),
        ("matmul", None),
    ]
    assert placed[0].reason == (
        "its layouts are NHWC, HWIO and NHWC; kernels take NHWC activations and OHWI weights "
        "(normalisation converts them)"
    )
    assert placed[0].shape == (1, 6, 6, 16)
    assert placed[1].reason == "no kernel begins with relu, and none before it reaches it"
    assert placed[3].reason == "an operand is float32; tensor-core kernels take float16 or bfloat16"


@I.ir_module
class Symbolic:
    """A product of unknown height."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float16"), w: R.Tensor((16, 16), "float16")) -> R.Tensor(
        ("n", 16), "float16"
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


def test_rows_of_an_open_dimension_have_a_kernel() -> None:
    for normalise in (True, False):
        annotated = annotate(Symbolic, passes=Passes(normalise=normalise))
        (region,) = annotated.regions
        assert region.workload.symbols == (Symbol("m"),)
        (placed,) = [each for each in annotated.placements if each.region]
        assert placed.shape == ("n", 16)


@I.ir_module
class Branching:
    """A product in a branch, and one before it."""

    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor((8, 16), "float16"), w: R.Tensor((16, 16), "float16")
    ) -> R.Tensor((8, 16), "float16"):
        y = R.matmul(x, w)
        if c:  # noqa: SIM108
            z = R.matmul(y, w)
        else:
            z = R.nn.relu(y)
        return z


def test_an_arm_with_a_product_becomes_a_function() -> None:
    model = Model(Branching, normalise=True)
    placed = model.annotated.placements
    assert [(p.operator, p.region is None) for p in placed] == [
        *[("matmul", False), ("if", True)],
        ("matmul", False),
    ]
    x, w = _random(8, 16), _random(16, 16)
    xd, wd = _exact(x, w)
    (actual,) = model.run(np.array(False), x, w)
    _assert_one_rounding(actual, torch.relu(xd @ wd))


def test_symbols_are_ours_and_avoid_names_in_use() -> None:
    module = build({"x": ((8, 16), "float16"), "w": ((16, 16), "float16")}, op.matmul)
    taken = tvm.IRModule({"main": module["main"], "boltgen_0_matmul": Symbolic["main"]})
    symbols = {region.symbol for region in annotate(taken, passes=Passes(normalise=False)).regions}
    assert symbols == {"boltgen_1_matmul", "boltgen_2_matmul"}
