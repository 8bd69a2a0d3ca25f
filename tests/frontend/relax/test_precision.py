"""Precision follows what a value is: FP16 where products are, FP32 where FP16 cannot hold it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax

from benchmarks.cases.relax_modules import build, operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.ir.dtypes import DType

op = relax.op
HALF_ULP = 2.0**-11  # of FP16, relative

RNG = np.random.default_rng(3)


def _weight(k: int, n: int) -> np.ndarray:
    return (RNG.standard_normal((k, n)) / k**0.5).astype(np.float32)


def _bind(value: relax.Expr) -> relax.Expr:
    return relax.BlockBuilder.current().emit(value)


def _rotated(x: relax.Expr, cos: relax.Expr, sin: relax.Expr, half: int) -> relax.Expr:
    first = op.strided_slice(x, [2], [0], [half])
    second = op.strided_slice(x, [2], [half], [2 * half])
    turned = op.concat([op.negative(second), first], axis=2)
    return op.add(op.multiply(x, cos), op.multiply(turned, sin))


FREQUENCIES = (1.0 / 10000 ** (np.arange(8) / 8)).astype(np.float32)


def _angles_by_product(positions: relax.Expr) -> relax.Expr:
    column = op.reshape(relax.const(FREQUENCIES), (1, 8, 1))
    row = op.reshape(positions, (1, 1, 1024))
    return op.permute_dims(op.matmul(column, row), [0, 2, 1])


def _angles_by_broadcast(positions: relax.Expr) -> relax.Expr:
    return op.multiply(op.reshape(positions, (1, 1024, 1)), relax.const(FREQUENCIES))


def _angles_by_table(positions: relax.Expr) -> relax.Expr:
    table = np.outer(np.arange(1024, dtype=np.float32), FREQUENCIES)
    rows = op.take(relax.const(table), op.astype(positions, "int32"), axis=0)
    return op.reshape(rows, (1, 1024, 8))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("angles", [_angles_by_product, _angles_by_broadcast, _angles_by_table])
def test_positions_and_angles_are_in_fp32(
    angles: Callable[[relax.Expr], relax.Expr], dtype: str
) -> None:
    """Rotary embeddings, as Llama writes them, of positions to 1023."""
    weight = _weight(16, 16)

    def body(x: relax.Expr, positions: relax.Expr) -> relax.Expr:
        floats = positions if dtype == "float32" else op.astype(positions, "float32")
        angle = _bind(angles(_bind(floats)))
        both = _bind(op.concat([angle, angle], axis=2))
        product = _bind(op.matmul(x, relax.const(weight)))
        return _rotated(product, op.cos(both), op.sin(both), 8)

    model = Model(
        build({"x": ((1, 1024, 16), "float32"), "positions": ((1024,), dtype)}, body),
        normalise=True,
    )
    assert [region.label for region in model.regions] == ["matmul"]
    x = RNG.standard_normal((1, 1024, 16)).astype(np.float32)
    (actual,) = model.run(x, np.arange(1024).astype(dtype))
    product = x.astype(np.float64) @ weight
    angle = np.outer(np.arange(1024), FREQUENCIES.astype(np.float64))
    both = np.concatenate([angle, angle], 1)
    turned = np.concatenate([-product[..., 8:], product[..., :8]], 2)
    wanted = product * np.cos(both) + turned * np.sin(both)
    # x, the weight, the product and what is made of it are off by half an ulp each.
    scale = np.abs(x).max() * np.abs(weight).sum(0).max()
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=5 * HALF_ULP * scale)


@pytest.mark.parametrize("square", ["multiply", "power", "square"])
def test_a_norm_of_large_activations_does_not_overflow(square: str) -> None:
    """Squares of 300 are 90,000; FP16 ends at 65,504."""
    first, second = _weight(16, 32), _weight(32, 8)

    def body(x: relax.Expr) -> relax.Expr:
        y = _bind(op.matmul(x, relax.const(first)))
        squares = {
            "multiply": lambda: op.multiply(y, y),
            "power": lambda: op.power(y, relax.const(2.0)),
            "square": lambda: op.square(y),
        }[square]()
        mean = op.mean(squares, [-1], keepdims=True)
        normed = op.multiply(y, op.rsqrt(op.add(mean, relax.const(1e-6))))
        return op.matmul(normed, relax.const(second))

    model = Model(build({"x": ((4, 16), "float32")}, body), normalise=True)
    assert len(model.regions) == 3
    x = (RNG.standard_normal((4, 16)) * 300).astype(np.float32)
    (actual,) = model.run(x)
    y = x.astype(np.float64) @ first
    wanted = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6) @ second
    assert np.abs(y).max() ** 2 > 65504
    scale = np.abs(second).sum(0).max() * 32**0.5
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=8 * HALF_ULP * scale)


@pytest.mark.parametrize(
    "squares",
    [
        lambda x: op.matmul(x, op.permute_dims(x)),
        lambda x: op.matmul(op.reshape(x, (8, 1, 64)), op.reshape(x, (8, 64, 1))),
        lambda x: op.matmul(
            op.reshape(x, (8, 1, 64)), op.permute_dims(op.reshape(x, (8, 1, 64)), [0, 2, 1])
        ),
    ],
)
def test_a_product_of_a_matrix_with_itself_is_a_sum_of_squares(
    squares: Callable[[relax.Expr], relax.Expr],
) -> None:
    """Squared lengths of 64 numbers of 300 are 5.8 million."""
    module = build({"x": ((8, 64), "float32")}, lambda x: op.sqrt(squares(x)))
    model = Model(module, normalise=True)
    (region,) = model.regions
    assert region.workload.first.problem.out_dtype.value == "float32"
    (lengths,) = model.run(np.full((8, 64), 300, np.float32))
    np.testing.assert_allclose(lengths, np.full_like(lengths, 2400.0), rtol=2 * HALF_ULP)


def test_a_mean_may_be_a_sum_and_a_factor_in_any_order() -> None:
    weight = relax.const(_weight(1, 16))

    def body(x: relax.Expr) -> relax.Expr:
        total = op.sum(x, [1], keepdims=True)
        return op.matmul(op.multiply(relax.const(1 / 64), total), weight)

    model = Model(build({"x": ((8, 64), "float32")}, body), normalise=True)
    assert len(model.regions) == 1


def test_what_the_author_made_fp32_stays_so() -> None:
    """Logits of an FP16 product with FP32 results, beyond FP16, read twice and reduced."""

    def body(x: relax.Expr, w: relax.Expr) -> tuple[relax.Expr, ...]:
        logits = _bind(op.matmul(x, w, out_dtype="float32"))
        top = _bind(op.max(logits, [-1], keepdims=True))
        total = op.sum(op.exp(op.subtract(logits, top)), [-1], keepdims=True)
        return logits, op.add(op.log(total), top)

    model = Model(
        build({"x": ((4, 64), "float16"), "w": ((64, 32), "float16")}, body), normalise=True
    )
    (region,) = model.regions
    assert region.workload.first.problem.out_dtype.value == "float32"
    x = np.full((4, 64), 60, np.float16)
    w = np.full((64, 32), 30, np.float16)
    logits, total = model.run(x, w)
    # Sums of integers below 2^24 are exact in FP32.
    np.testing.assert_array_equal(logits, np.full((4, 32), 60.0 * 30 * 64, np.float32))
    np.testing.assert_allclose(total, logits[:, :1] + np.log(32), rtol=2**-22)


def test_a_fp32_norm_in_a_fp16_model_keeps_its_dtype() -> None:
    def body(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        wide = _bind(op.astype(op.matmul(x, w), "float32"))
        scale = op.rsqrt(op.mean(op.multiply(wide, wide), [-1], keepdims=True))
        return op.matmul(op.astype(op.multiply(wide, scale), "float16"), w)

    module = build({"x": ((4, 16), "float16"), "w": ((16, 16), "float16")}, body)
    model = Model(module, normalise=True)
    assert len(model.regions) == 2
    x = np.full((4, 16), 300, np.float16)
    (actual,) = model.run(x, np.eye(16, dtype=np.float16))
    np.testing.assert_allclose(actual, np.ones((4, 16)), rtol=4 * HALF_ULP)


def test_products_of_what_fp16_may_not_hold_stay_with_tvm_and_say_so() -> None:
    weight = relax.const(_weight(16, 8))
    module = build(
        {"x": ((4, 16), "float32"), "i": ((4, 16), "int32")},
        lambda x, i: (
            op.matmul(op.multiply(x, x), weight),
            op.matmul(op.astype(i, "float32"), weight),
        ),
    )
    model = Model(module, normalise=True)
    reasons = [p.reason for p in model.annotated.placements if p.operator == "matmul"]
    assert len(reasons) == 2 and all("squares" in reason for reason in reasons)
    x = np.full((4, 16), 1000, np.float32)
    i = np.full((4, 16), 4097, np.int32)
    squares, integers = model.run(x, i)
    exact = weight.value.numpy().astype(np.float64).sum(0)
    # FP32 throughout: 16 products and sums.
    np.testing.assert_allclose(squares[0], exact * 1e6, rtol=0, atol=16 * 2**-24 * 16e6)
    np.testing.assert_allclose(integers[0], exact * 4097, rtol=0, atol=16 * 2**-24 * 16 * 4097)


@pytest.mark.parametrize("lowest", [-1e9, -np.inf, float(np.finfo(np.float32).min)])
def test_a_mask_beyond_fp16_joins_the_product_as_its_lowest_number(lowest: float) -> None:
    mask = np.triu(np.full((8, 8), lowest, np.float32), 1)
    mask[0] = lowest  # a row with nothing to attend to

    def body(q: relax.Expr, k: relax.Expr) -> relax.Expr:
        scores = op.matmul(q, op.permute_dims(k, [0, 2, 1]))
        return op.nn.softmax(op.add(scores, relax.const(mask)), axis=-1)

    shape = ((3, 8, 16), "float32")
    model = Model(build({"q": shape, "k": shape}, body), normalise=True)
    region, _ = model.regions
    assert [load.dtype.value for load in region.workload.last.epilogue.loads] == ["float16"]
    # FP16 has -inf, which nothing bounds.
    is_bounded = np.isfinite(lowest)
    assert ("clip" in region.workload.last.epilogue.describe()) == is_bounded
    assert any("65504" in note for note in model.annotated.notes) == is_bounded
    q, k = (RNG.standard_normal((3, 8, 16)).astype(np.float32) for _ in range(2))
    (actual,) = model.run(q, k)
    scores = torch.from_numpy(q).double() @ torch.from_numpy(k).double().mT
    wanted = torch.softmax(scores + torch.from_numpy(mask), -1).numpy()
    if np.isfinite(lowest):
        # Scores vanish beside -1e9 in FP32, and beside -65504 in FP16.
        wanted[:, 0] = actual[:, 0]
        assert np.isfinite(actual[:, 0]).all()
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=16 * HALF_ULP)


@pytest.mark.parametrize("lowest", [-1e9, -np.inf])
def test_a_mask_keeps_its_numbers_in_bf16(lowest: float) -> None:
    mask = np.triu(np.full((8, 8), lowest, np.float32), 1)

    def body(q: relax.Expr, k: relax.Expr) -> relax.Expr:
        scores = op.matmul(q, op.permute_dims(k, [0, 2, 1]))
        return op.nn.softmax(op.add(scores, relax.const(mask)), axis=-1)

    shape = ((3, 8, 16), "float32")
    module = build({"q": shape, "k": shape}, body)
    model = Model(module, normalise=True, precision=DType.BF16)
    region, _ = model.regions
    problem = region.workload.last.problem
    assert (problem.in_dtype, problem.out_dtype) == (DType.BF16, DType.F32)
    assert [load.dtype for load in region.workload.last.epilogue.loads] == [DType.F32]
    assert model.annotated.notes == ()
    q, k = (RNG.standard_normal((3, 8, 16)).astype(np.float32) for _ in range(2))
    (actual,) = model.run(q, k)
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1)
    # Two operands are rounded; a softmax changes by no more than twice what its scores do.
    most = np.abs(q).astype(np.float64) @ np.abs(k).transpose(0, 2, 1)
    bound = 2 * (2 * DType.BF16.unit_roundoff + 2**-16) * most.max()
    wanted = torch.softmax(torch.from_numpy(scores + mask), -1).numpy()
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=bound)


def test_squares_are_multiplied_in_bf16_which_holds_them() -> None:
    weight = _weight(16, 8)
    body = lambda x: op.matmul(op.multiply(x, x), relax.const(weight))  # noqa: E731
    module = build({"x": ((4, 16), "float32")}, body)
    model = Model(module, normalise=True, precision=DType.BF16)
    assert [region.workload.last.problem.in_dtype for region in model.regions] == [DType.BF16]
    x = (1000 * RNG.standard_normal((4, 16))).astype(np.float32)
    (actual,) = model.run(x)
    wide = x.astype(np.float64)
    # x, its square, the weight and the result are rounded, x twice over in its square.
    bound = 6 * DType.BF16.unit_roundoff * (wide**2 @ np.abs(weight))
    assert (np.abs(actual - wide**2 @ weight) <= bound).all()


def test_a_mask_made_of_integers_joins_the_product() -> None:
    def body(q: relax.Expr, k: relax.Expr, keep: relax.Expr) -> relax.Expr:
        scores = op.matmul(q, op.permute_dims(k, [0, 2, 1]))
        floats = op.astype(op.reshape(keep, (1, 1, 8)), "float32")
        mask = op.multiply(op.subtract(relax.const(1.0), floats), relax.const(-1e30))
        full = op.broadcast_to(mask, (3, 8, 8))
        return op.nn.softmax(op.add(scores, full), axis=-1)

    shape = ((3, 8, 16), "float32")
    model = Model(build({"q": shape, "k": shape, "keep": ((8,), "int64")}, body), normalise=True)
    region, _ = model.regions
    assert [load.dtype.value for load in region.workload.last.epilogue.loads] == ["float16"]
    q, k = (RNG.standard_normal((3, 8, 16)).astype(np.float32) for _ in range(2))
    keep = np.array([1, 1, 1, 0, 1, 1, 0, 0])
    (actual,) = model.run(q, k, keep)
    scores = np.where(keep, q.astype(np.float64) @ k.transpose(0, 2, 1), -np.inf)
    wanted = torch.softmax(torch.from_numpy(scores), -1).numpy()
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=16 * HALF_ULP)


def test_an_elu_and_a_softmax_spelled_out_end_in_products_all_the_same() -> None:
    weight = relax.const(_weight(16, 16))

    def body(x: relax.Expr) -> relax.Expr:
        y = _bind(op.matmul(x, weight))
        below = op.negative(op.nn.relu(op.subtract(relax.const(1.0), op.exp(y))))
        z = _bind(op.matmul(op.add(below, op.nn.relu(y)), weight))
        power = _bind(op.exp(op.subtract(z, op.max(z, [-1], keepdims=True))))
        return op.matmul(op.divide(power, op.sum(power, [-1], keepdims=True)), weight)

    model = Model(build({"x": ((4, 16), "float32")}, body), normalise=True)
    assert len(model.regions) == 2  # the latter two are one, with the softmax between them
    x = RNG.standard_normal((4, 16)).astype(np.float32)
    w = torch.from_numpy(weight.value.numpy()).double()
    y = functional.elu(torch.from_numpy(x).double() @ w) @ w
    wanted = (torch.softmax(y, -1) @ w).numpy()
    np.testing.assert_allclose(model.run(x)[0], wanted, rtol=0, atol=16 * HALF_ULP)


def test_an_unknown_operator_is_an_island() -> None:
    """Its neighbours are kernels, FP16 and NHWC, and casts stand at its shore."""
    weight = (RNG.standard_normal((8, 8, 3, 3)) / 9).astype(np.float32)

    def body(x: relax.Expr) -> relax.Expr:
        y = op.nn.relu(op.nn.conv2d(x, relax.const(weight), padding=1))
        z = op.nn.instance_norm(
            y, relax.const(np.ones(8, np.float32)), relax.const(np.zeros(8, np.float32)), 1, [2, 3]
        )
        return op.nn.conv2d(z, relax.const(weight), padding=1)

    model = Model(build({"x": ((1, 8, 6, 6), "float32")}, body), normalise=True)
    assert [region.label for region in model.regions] == ["conv2d + relu", "conv2d"]
    assert "nn.instance_norm" in {
        name if name.startswith("nn.") else f"nn.{name}" for name in operators(model.annotated)
    }
    x = RNG.standard_normal((1, 8, 6, 6)).astype(np.float32)
    w = torch.from_numpy(weight).double()
    y = torch.relu(functional.conv2d(torch.from_numpy(x).double(), w, padding=1))
    wanted = functional.conv2d(functional.instance_norm(y), w, padding=1).numpy()
    np.testing.assert_allclose(
        model.run(x)[0], wanted, rtol=0, atol=16 * HALF_ULP * np.abs(wanted).max()
    )


def test_gathers_pads_tiles_and_clips_keep_their_neighbours_in_kernels() -> None:
    table, weight = _weight(10, 16), _weight(16, 16)

    def body(i: relax.Expr) -> relax.Expr:
        x = op.take(relax.const(table), i, axis=0)
        y = op.clip(op.matmul(x, relax.const(weight)), 0, 6)
        tiled = op.tile(y, [2, 1])
        return op.matmul(op.nn.pad(tiled, [0, 2, 0, 0]), relax.const(weight))

    model = Model(build({"i": ((5,), "int64")}, body), normalise=True)
    assert len(model.regions) == 2
    i = np.array([0, 2, 4, 6, 9])
    y = np.clip(table[i].astype(np.float64) @ weight, 0, 6)
    wanted = np.pad(np.tile(y, (2, 1)), ((0, 2), (0, 0))) @ weight
    np.testing.assert_allclose(model.run(i)[0], wanted, rtol=0, atol=16 * HALF_ULP)


def test_zeros_around_an_image_are_the_convolutions_own_padding() -> None:
    weight = (RNG.standard_normal((8, 8, 3, 3)) / 9).astype(np.float32)

    def body(x: relax.Expr) -> relax.Expr:
        y = op.nn.relu(op.nn.conv2d(x, relax.const(weight)))
        return op.nn.conv2d(op.nn.pad(y, [0, 0, 0, 0, 1, 2, 0, 1]), relax.const(weight))

    model = Model(build({"x": ((1, 8, 6, 6), "float32")}, body), normalise=True)
    assert operators(model.annotated) == []
    assert model.regions[1].workload.first.problem.padding == (1, 0, 2, 1)
    x = RNG.standard_normal((1, 8, 6, 6)).astype(np.float32)
    w = torch.from_numpy(weight).double()
    y = torch.relu(functional.conv2d(torch.from_numpy(x).double(), w))
    wanted = functional.conv2d(functional.pad(y, (0, 1, 1, 2)), w).numpy()
    np.testing.assert_allclose(
        model.run(x)[0], wanted, rtol=0, atol=16 * HALF_ULP * np.abs(wanted).max()
    )


def test_a_model_of_integers_passes_through() -> None:
    module = build({"i": ((4, 4), "int32")}, lambda i: op.add(i, op.permute_dims(i, [1, 0])))
    model = Model(module, normalise=True)
    i = np.arange(16, dtype=np.int32).reshape(4, 4)
    np.testing.assert_array_equal(model.run(i)[0], i + i.T)
    assert isinstance(model.annotated.module(), tvm.IRModule)
