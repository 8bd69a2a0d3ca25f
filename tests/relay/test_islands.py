"""What boltgen has no name for passes through, and its neighbours are not the worse for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(3)
ROWS, WIDTH = 8, 16
MATRIX = relay.TensorType((ROWS, WIDTH))
PAIR = relay.TupleType([MATRIX, MATRIX])
WEIGHT = (RNG.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def variable(name: str = "x") -> relay.Var:
    return relay.var(name, type_annotation=MATRIX)


def dense(x: relay.Expr) -> relay.Expr:
    return relay.nn.dense(x, relay.const(WEIGHT))


def number(value: float) -> relay.Expr:
    return relay.const(np.float32(value))


def module(body: relay.Expr, *params: relay.Var, **functions: relay.Function) -> tvm.IRModule:
    made = tvm.IRModule({relay.GlobalVar(name): each for name, each in functions.items()})
    made["main"] = relay.Function(list(params), body)
    return made


def branch() -> tvm.IRModule:
    x = variable()
    is_small = relay.less(relay.sum(dense(x)), number(1e9))
    return module(dense(relay.If(is_small, relay.nn.relu(x), dense(x))), x)


def binding() -> tvm.IRModule:
    x, y = variable(), relay.var("y")
    return module(relay.Let(y, dense(x), dense(y + y)), x)


def function_that_is_bound() -> tvm.IRModule:
    x, y, f = variable(), variable("y"), relay.var("f")
    called = relay.Let(f, relay.Function([y], relay.nn.relu(y)), relay.Call(f, [x]))
    return module(dense(called), x)


def function_in_a_call() -> tvm.IRModule:
    x, y, z = variable(), variable("y"), relay.var("z")
    call = relay.Call(relay.Function([y], y + z), [dense(x)])
    return module(relay.Let(z, dense(x), dense(call)), x)


def other_function() -> tvm.IRModule:
    x, y = variable(), variable("y")
    layer = relay.GlobalVar("layer")
    made = tvm.IRModule({layer: relay.Function([y], relay.nn.relu(dense(y)), MATRIX)})
    made["main"] = relay.Function([x], dense(relay.Call(layer, [dense(x)])))
    return made


def tuples() -> tvm.IRModule:
    x, pair = relay.var("x", type_annotation=PAIR), relay.var("pair", type_annotation=PAIR)
    swap = relay.GlobalVar("swap")
    first, second = relay.TupleGetItem(pair, 0), relay.TupleGetItem(pair, 1)
    made = tvm.IRModule({swap: relay.Function([pair], relay.Tuple([second, first]), PAIR)})
    joined = relay.Tuple([dense(relay.TupleGetItem(x, 0)), relay.TupleGetItem(x, 1)])
    swapped = relay.Call(swap, [joined])
    made["main"] = relay.Function([x], relay.Tuple([relay.Call(swap, [x]), swapped]))
    return made


def recursion() -> tvm.IRModule:
    x, y, i = variable(), variable("y"), relay.var("i", shape=(), dtype="int32")
    loop = relay.GlobalVar("loop")
    again = relay.Call(loop, [i + relay.const(1), relay.nn.relu(y)])
    body = relay.If(relay.less(i, relay.const(2)), again, y)
    made = tvm.IRModule({loop: relay.Function([i, y], body, MATRIX)})
    made["main"] = relay.Function([x], dense(relay.Call(loop, [relay.const(0), dense(x)])))
    return made


def reference() -> tvm.IRModule:
    x = variable()
    return module(dense(relay.RefRead(relay.RefCreate(dense(x)))), x)


def references_in_order() -> tvm.IRModule:
    x, r, done = variable(), relay.var("r"), relay.var("done")
    rest = relay.Let(done, relay.RefWrite(r, x), relay.RefRead(r))
    return module(dense(relay.Let(r, relay.RefCreate(dense(x)), rest)), x)


# How many products are in kernels, and what of the author's calls and branches is left.
ISLANDS: list[tuple[Callable[[], tvm.IRModule], int, list[str]]] = [
    (branch, 3, ["if"]),
    (binding, 2, []),
    (function_that_is_bound, 1, ["let"]),
    (function_in_a_call, 3, ["function"]),
    (other_function, 3, ["layer"]),
    (tuples, 1, ["swap", "swap"]),
    (recursion, 2, ["loop", "if", "loop"]),
    (reference, 2, ["refcreate", "refread"]),
    (references_in_order, 1, ["let"]),
]


@pytest.mark.parametrize(
    ("make", "regions", "left"), ISLANDS, ids=lambda case: getattr(case, "__name__", "")
)
def test_what_passes_through(
    make: Callable[[], tvm.IRModule], regions: int, left: list[str]
) -> None:
    partitioned = steps.annotate(make())
    assert len(partitioned.regions) == regions
    reason = "boltgen does not look into branches and calls"
    # A recursive function's branch is opaque with the call in it.
    expected = left[:2] if make is recursion else left
    opaque = [each.operator for each in partitioned.placements if each.reason == reason]
    assert sorted(opaque) == sorted(expected)
    partitioned.module()  # its types are inferred


def test_a_bound_value_is_computed_once() -> None:
    x = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
    y = x @ WEIGHT.T
    (found,) = Model(steps.annotate(binding())).run(x)
    # Two layers, each of which rounds its operands and its result to FP16: three half ulps, of
    # sums of products whose absolute values are these.
    sizes = (np.abs(x) @ np.abs(WEIGHT).T * 2) @ np.abs(WEIGHT).T
    assert (np.abs(found - (y + y) @ WEIGHT.T) <= 2 * 3 * 2.0**-11 * sizes).all()


def test_a_shared_value_is_visited_once() -> None:
    x = variable()
    y = dense(x)
    for _ in range(60):
        y = y + y
    partitioned = steps.annotate(module(y, x))
    partitioned.module()
    assert len(partitioned.regions) == 1


def test_ten_thousand_operators_in_a_row() -> None:
    x = variable()
    y = x
    for _ in range(5000):
        y = relay.negative(relay.nn.relu(y))
    partitioned = steps.annotate(module(dense(y), x))
    partitioned.module()
    assert len(partitioned.regions) == 1
    assert len(partitioned.placements) >= 10_000


def test_layer_norm_of_fp16_reduces_in_fp32() -> None:
    """Sums of 64 squares of 200 are beyond FP16."""
    array = (200 * RNG.standard_normal((2, 64))).astype(np.float16)
    x = relay.var("x", shape=array.shape, dtype="float16")
    ones = relay.const(np.ones(64, np.float16))
    (found,) = Model(steps.annotate(module(relay.nn.layer_norm(x, ones, ones), x))).run(array)
    wide = array.astype(np.float64)
    normed = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) + 1
    # Rounded once to FP16, after arithmetic in FP32 whose error is small against that.
    np.testing.assert_allclose(found, normed, rtol=2.0**-11 * 1.1, atol=2.0**-11 / 4)


def test_products_in_the_arms_of_branches_have_kernels() -> None:
    x = variable()
    outer, inner = (relay.var(name, shape=(), dtype="bool") for name in ("outer", "inner"))
    nested = relay.If(inner, dense(relay.nn.relu(x)), x)
    arms = relay.If(outer, dense(x), nested)
    annotated = steps.annotate(module(dense(arms), x, outer, inner))
    assert len(annotated.regions) == 3
    assert not [placed for placed in annotated.placements if placed.region is None and placed.flops]
    names = {gvar.name_hint for gvar in annotated.module().get_global_vars()}
    assert {"main", "branch_0", "branch_1", "branch_2"} <= names
