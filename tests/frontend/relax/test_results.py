"""Regions that write more than one tensor: where there are such, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from benchmarks.cases.relax_modules import build, operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import annotate
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.workload import Cut

Expr = relax.Expr
ROWS, WIDTH = 24, 64
TENSOR, VECTOR, WEIGHT = (ROWS, WIDTH), (WIDTH,), (WIDTH, WIDTH)
SHAPES = {"a": TENSOR, "r": TENSOR, "s": VECTOR, "b": VECTOR, "w0": WEIGHT, "w1": WEIGHT}


class Values(NamedTuple):
    """The parameters of a model by their names."""

    a: Expr
    r: Expr
    s: Expr
    b: Expr
    w0: Expr
    w1: Expr


Body = Callable[[Values], "Expr | tuple[Expr, ...]"]


def scaled_relu(x: Expr, s: Expr, b: Expr) -> Expr:
    return op.nn.relu(op.add(op.multiply(x, s), b))


def block(v: Values) -> Expr:
    """The sum of a product and a residual, and of a product of what is scaled of it."""
    total = op.add(op.matmul(v.a, v.w0), v.r)
    return op.add(op.matmul(scaled_relu(total, v.s, v.b), v.w1), total)


def partitioned(body: Body, **passes: object) -> Partitioned:
    parameters = {name: (shape, "float16") for name, shape in SHAPES.items()}
    module = build(parameters, lambda *values: body(Values(*values)))
    return annotate(module, passes=Passes(normalise=False, **passes))


def drawn(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-0.25, 0.25, shape).astype(np.float16) for shape in SHAPES.values()]


def epilogues(found: Partitioned) -> list[str]:
    return [region.workload.epilogues for region in found.regions]


def test_a_region_goes_on_past_a_residual_sum_that_is_read_again() -> None:
    found = partitioned(block)
    assert operators(found) == []
    assert epilogues(found) == [
        "tensor: relu(add(multiply(add(acc, tensor0), row0), row1)); "
        "tensor float16: add(acc, tensor0)",
        "add(acc, tensor0)",
    ]
    inputs = drawn(0)
    a, r, s, b, w0, w1 = (array.astype(np.float64) for array in inputs)
    total = a @ w0 + r
    wanted = np.maximum(total * s + b, 0.0) @ w1 + total
    (result,) = Model.of_annotated(found).run(*inputs)
    # Three tensors are rounded to FP16 on the way, the sums of the second product in FP32.
    assert np.abs(result - wanted).max() <= 4 * 2.0**-11 * np.abs(wanted).max()


def test_without_a_kernel_that_writes_both_regions_are_as_before() -> None:
    def rejects(workload):
        return "one result" if workload.last.epilogue.stores else None

    found = partitioned(block, rejects=rejects)
    assert epilogues(found) == ["add(acc, tensor0)", "add(acc, tensor0)"]
    assert operators(found) == ["multiply", "add", "relu"]


def test_the_next_product_may_read_it_in_another_shape() -> None:
    def body(v: Values) -> tuple[Expr, ...]:
        total = op.add(op.matmul(v.a, v.w0), v.r)
        images = op.reshape(op.nn.relu(total), (2, ROWS // 2, WIDTH))
        return op.matmul(images, v.w1), total

    found = partitioned(body)
    assert epilogues(found) == [
        "tensor: relu(add(acc, tensor0)); tensor float16: add(acc, tensor0)",
        "acc",
    ]
    inputs = drawn(2)
    a, r, _, _, w0, w1 = (array.astype(np.float64) for array in inputs)
    total = a @ w0 + r
    product, stored = Model.of_annotated(found).run(*inputs)
    wanted = (np.maximum(total, 0.0) @ w1).reshape(product.shape)
    assert np.abs(product - wanted).max() <= 3 * 2.0**-11 * np.abs(wanted).max()
    assert np.abs(stored - total).max() <= 2.0**-11 * np.abs(total).max()


def reads_a_tensor(v: Values) -> Expr:
    total = op.add(op.matmul(v.a, v.w0), v.b)
    return op.add(op.matmul(op.multiply(total, v.r), v.w1), total)


def fuses_with_its_reader(v: Values) -> Expr:
    total = op.add(op.matmul(v.a, v.w0), v.r)
    return op.add(op.nn.softmax(scaled_relu(total, v.s, v.b)), total)


def comes_behind_another_reader(v: Values) -> Expr:
    total = op.add(op.matmul(v.a, v.w0), v.r)
    scale = op.max(total, axis=0)
    return op.matmul(op.multiply(total, scale), v.w1), total


def is_a_view(v: Values) -> Expr:
    total = op.add(op.matmul(v.a, v.w0), v.r)
    return op.matmul(op.reshape(total, (ROWS * 2, WIDTH // 2)), op.reshape(v.w1, (32, 128))), total


@pytest.mark.parametrize(
    "body", [reads_a_tensor, fuses_with_its_reader, comes_behind_another_reader, is_a_view]
)
def test_what_would_save_no_launch_or_may_not_be_written_there_is_left_alone(
    body: Body,
) -> None:
    found = partitioned(body)
    assert not any(region.workload.last.epilogue.stores for region in found.regions)


def test_results_of_the_model_are_written_by_the_kernel_that_has_them() -> None:
    def body(v: Values) -> tuple[Expr, ...]:
        total = op.add(op.matmul(v.a, v.w0), v.r)
        scaled = op.multiply(total, v.s)
        return op.nn.relu(scaled), scaled, total

    found = partitioned(body)
    assert operators(found) == []
    (region,) = found.regions
    assert len(region.workload.last.epilogue.results) == 3
    inputs = drawn(1)
    a, r, s, _, w0, _ = (array.astype(np.float64) for array in inputs)
    total = a @ w0 + r
    wanted = np.maximum(total * s, 0.0), total * s, total
    for result, right in zip(Model.of_annotated(found).run(*inputs), wanted, strict=True):
        assert np.abs(result - right).max() <= 2.0**-11 * np.abs(right).max()


def test_layers_back_to_back_stay_together() -> None:
    """The sum is a further result of the chain, if a kernel writes both, as this test allows."""

    def body(v: Values) -> tuple[Expr, ...]:
        hidden = op.nn.relu(op.matmul(v.a, v.w0))
        total = op.add(op.matmul(hidden, v.w1), v.r)
        return op.matmul(op.nn.relu(total), v.w0), total

    together = partitioned(body, cut=lambda layers: Cut(counts=(len(layers),), reasons=("",)))
    assert [len(region.workload.layers) for region in together.regions] == [2, 1]
    assert [len(each.workload.last.epilogue.results) for each in together.regions] == [2, 1]
    assert operators(together) == []
    apart = partitioned(body)
    assert [len(region.workload.last.epilogue.results) for region in apart.regions] == [1, 2, 1]
