"""Relax programs that are more than one block of operators: branches, loops, calls, tuples."""

# ruff: noqa: N805 - TVMScript modules are no classes
from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from benchmarks.cases.relax_modules import build
from benchmarks.harness.oracle_kernels import Model, register
from boltgen.frontend.relax import annotate, attach
from boltgen.ir.extent import Symbol

op = relax.op
EYE = np.eye(8, dtype=np.float32)


def _run(module: tvm.IRModule, *inputs: object) -> list[np.ndarray]:
    return Model(module, normalise=True).run(*inputs)


@I.ir_module
class Branches:
    """Products around a branch, and one in each of its arms."""

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
        flag: R.Tensor((), "bool"),
    ) -> R.Tensor((4, 8), "float32"):
        y = R.matmul(x, w)
        if flag:
            a = R.matmul(y, w)
            z = R.nn.relu(a)
        else:
            b = R.add(y, y)
            z = R.matmul(b, w)
        r = R.matmul(z, w)
        return r


def test_products_around_a_branch_and_in_its_arms_are_kernels() -> None:
    model = Model(Branches, normalise=True)
    assert len(model.regions) == 4  # an arm is a function, whose result is FP32
    x = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
    w = 2 * EYE
    (taken,) = model.run(x, w, np.array(True))
    (other,) = model.run(x, w, np.array(False))
    np.testing.assert_array_equal(taken, np.maximum(x, 0) * 8)
    np.testing.assert_array_equal(other, x * 16)


@I.ir_module
class Recursive:
    """x doubled n times, by a function that calls itself."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), n: R.Tensor((), "int32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        cls = Recursive
        done = R.less_equal(n, R.const(0, "int32"))
        if done:
            r = x
        else:
            y = R.matmul(x, R.const(2 * EYE, "float32"))
            less = R.subtract(n, R.const(1, "int32"))
            r = cls.main(y, less)
        return r


def test_a_recursive_function_ends() -> None:
    x = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(_run(Recursive, x, np.array(5, np.int32))[0], 32 * x)


@I.ir_module
class Calls:
    """A function that calls another one, of which both have products."""

    @R.function
    def layer(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        y = R.matmul(x, w)
        r = R.nn.relu(y)
        return r

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tuple(
        R.Tensor((4, 8), "float32"), R.Tuple(R.Tensor((4, 8), "float32"))
    ):
        cls = Calls
        y = cls.layer(x, w)
        z = cls.layer(y, w)
        v = R.matmul(z, w)
        pair = (v, (z,))
        inner = pair[1]
        first = inner[0]
        return (v, (first,))


def test_functions_that_call_each_other_have_kernels_each() -> None:
    model = Model(Calls, normalise=True)
    assert [region.symbol for region in model.regions] == ["boltgen_0_matmul", "boltgen_1_matmul"]
    x = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
    results = model.machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(2 * EYE))
    np.testing.assert_array_equal(results[0].numpy(), np.maximum(x, 0) * 8)
    np.testing.assert_array_equal(results[1][0].numpy(), np.maximum(x, 0) * 4)


def test_a_module_is_partitioned_again_after_a_function_was_added() -> None:
    first = annotate(build({"x": ((4, 8), "float32"), "w": ((8, 8), "float32")}, op.matmul))
    module = attach(first, [], [], {})
    added = build({"x": ((4, 8), "float32"), "w": ((8, 8), "float32")}, op.matmul)["main"]
    module["other"] = added.with_attr("global_symbol", "other")
    second = annotate(module)
    assert [region.symbol for region in second.regions] == ["boltgen_1_matmul"]
    for region in (*first.regions, *second.regions):
        register(region)
    compiled = tvm.compile(attach(second, [], [], {}), target="llvm")
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    x = np.ones((4, 8), np.float32)
    for name in ("main", "other"):
        made = machine[name](tvm.runtime.tensor(x), tvm.runtime.tensor(3 * EYE))
        np.testing.assert_array_equal(made.numpy(), 3 * x)


@pytest.mark.parametrize("bundled", [False, True])
def test_tvms_passes_over_parameters_may_come_first(bundled: bool) -> None:
    def body(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return op.matmul(x, op.permute_dims(op.multiply(w, relax.const(2.0))))

    module = build({"x": ((4, 8), "float32"), "w": ((8, 8), "float32")}, body)
    module["main"] = module["main"].with_attr("num_input", 1)
    module = relax.transform.LiftTransformParams()(module)
    if bundled:
        module = relax.transform.BundleModelParams()(module)
    partitioned = annotate(module)
    assert [region.label for region in partitioned.regions] == ["matmul + astype"]
    for region in partitioned.regions:
        register(region)
    compiled = tvm.compile(attach(partitioned, [], [], {}), target="llvm")
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    given = [tvm.runtime.tensor(3 * EYE)]
    weights = machine["main_transform_params"]([given] if bundled else given)
    arguments = [weights] if bundled else list(weights)
    made = machine["main"](tvm.runtime.tensor(x), *arguments)
    np.testing.assert_array_equal(made.numpy(), 6 * x)


@I.ir_module
class Symbolic:
    """A product of a symbolic batch, and one whose extents are all known."""

    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
        v: R.Tensor((8, 8), "float32"),
    ) -> R.Tensor(("n", 8), "float32"):
        u = R.matmul(w, v)
        y = R.matmul(x, u)
        z = R.nn.relu(y)
        return z


def test_a_symbolic_dimension_passes_through() -> None:
    model = Model(Symbolic, normalise=True)
    known, symbolic = model.regions
    assert known.workload.symbols == ()
    assert symbolic.workload.symbols == (Symbol("m"),)
    for n in (1, 5):
        x = np.arange(-8.0, 8 * n - 8, dtype=np.float32).reshape(n, 8)
        (made,) = model.run(x, 2 * EYE, 3 * EYE)
        np.testing.assert_array_equal(made, np.maximum(6 * x, 0))


@I.ir_module
class DataDependent:
    """A result whose shape depends on what is in x."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        dtype="float32", ndim=2
    ):
        y = R.matmul(x, w)
        flat = R.sum(y, axis=[1])
        found = R.nonzero(flat)
        return R.astype(found, "float32")


def test_a_data_dependent_shape_is_tvms() -> None:
    partitioned = annotate(DataDependent)
    assert [region.label for region in partitioned.regions] == ["matmul"]
    assert isinstance(partitioned.module(), tvm.IRModule)


@I.ir_module
class MatchCast:
    """A dimension that is given a name on the way."""

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        y = R.match_cast(x, R.Tensor((4, 8), "float32"))
        z = R.matmul(y, w)
        _ = R.print(z, format="{}")
        return z


def test_a_cast_to_a_shape_and_an_effect_stay(capfd: pytest.CaptureFixture[str]) -> None:
    model = Model(MatchCast, normalise=True)
    assert len(model.regions) == 1
    x = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(model.run(x, EYE)[0], x)
    with pytest.raises(tvm.error.TVMError if hasattr(tvm.error, "TVMError") else Exception):
        model.run(np.ones((3, 8), np.float32), EYE)


def test_four_hundred_products_and_doubled_values_are_linear() -> None:
    def body(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        y = x
        emit = relax.BlockBuilder.current().emit
        for _ in range(400):
            y = emit(op.nn.relu(emit(op.matmul(y, w))))
        for _ in range(60):
            y = emit(op.add(y, y))
        for _ in range(60):
            y = emit(op.multiply(y, y))
        return y

    module = build({"x": ((4, 8), "float32"), "w": ((8, 8), "float32")}, body)
    partitioned = annotate(module)
    assert len(partitioned.regions) == 400
    assert len(partitioned.placements) < 600


@I.ir_module
class Closure:
    """A product in a function within a function."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        @R.function
        def inner(y: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            z = R.matmul(y, w)
            return z

        r = inner(x)
        return r


def test_a_product_in_a_local_function_is_named_with_its_work() -> None:
    partitioned = annotate(Closure)
    (product,) = [placed for placed in partitioned.placements if placed.flops]
    assert (product.operator, product.region, product.flops) == ("matmul", None, 2 * 4 * 8 * 8)
    assert "inside of function" in product.reason
    assert isinstance(partitioned.module(), tvm.IRModule)


def test_filled_tensors_are_constants_or_broadcast_numbers() -> None:
    """TVM 0.27 alone cannot lower `full`."""
    lowest = relax.const(-1e9)

    def body(x: relax.Expr) -> tuple[relax.Expr, ...]:
        mask = op.triu(op.full((8, 8), lowest, "float32"), 1)
        return (
            op.nn.softmax(op.add(op.matmul(x, op.permute_dims(x)), mask)),
            op.add(op.astype(op.arange(0, 8, 1, "int64"), "float32"), op.ones((8,), "float32")),
            op.full((2048, 1024), relax.const(3.0), "float32"),
        )

    model = Model(build({"x": ((8, 16), "float32")}, body), normalise=True)
    region, softmaxed = model.regions
    assert softmaxed.label == "softmax"
    assert len(region.workload.last.epilogue.loads) == 1
    x = np.eye(8, 16, dtype=np.float32)
    softmax, counted, large = model.run(x)
    exact = np.where(np.tri(8) > 0, np.exp(np.eye(8)), 0.0)
    np.testing.assert_allclose(softmax, exact / exact.sum(1, keepdims=True), rtol=2**-10)
    np.testing.assert_array_equal(counted, np.arange(8) + 1)
    assert large.shape == (2048, 1024) and (large == 3).all()
