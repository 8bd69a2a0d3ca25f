"""Models that both frontends must offload alike, each written once over a neutral builder.

They are what a frontend meets: FP32, NCHW, weights as constants. Shapes are small: nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Value = Any


class Builder(Protocol):
    """How an IR spells a model. Operators without attributes go by their neutral names."""

    def input(self, name: str, *shape: int, dtype: str = "float32") -> Value: ...
    def constant(self, array: np.ndarray) -> Value: ...
    def conv2d(self, x: Value, w: Value, **attrs: Any) -> Value: ...
    def blocked_conv2d(self, x: Value, w: Value) -> Value: ...  # NCHW8c, OIHW8i16o
    def dense(self, x: Value, w: Value) -> Value: ...
    def batch_matmul(self, a: Value, b: Value, *, transpose_b: bool) -> Value: ...
    def batch_norm(self, x: Value, *statistics: Value) -> Value: ...
    def op(self, name: str, *args: Value) -> Value: ...
    def clip(self, x: Value, low: float, high: float) -> Value: ...
    def leaky_relu(self, x: Value, alpha: float) -> Value: ...
    def reshape(self, x: Value, *shape: int) -> Value: ...
    def softmax(self, x: Value) -> Value: ...
    def max_pool(self, x: Value, size: int, padding: int = 0) -> Value: ...
    def mean(self, x: Value, *axes: int) -> Value: ...
    def reduce_stack(self, name: str, *xs: Value) -> Value: ...
    def outputs(self, *values: Value) -> Value: ...


Case = Callable[[Builder], Value]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def weight(b: Builder, *shape: int, seed: int = 0) -> Value:
    rng = np.random.default_rng(seed)
    return b.constant((rng.standard_normal(shape) * 0.1).astype(np.float32))


def number(b: Builder, value: float) -> Value:
    return b.constant(np.array(value, np.float32))


def dense(b: Builder, m: int = 32, n: int = 48, k: int = 64) -> Value:
    return b.op("add", b.dense(b.input("x", m, k), weight(b, n, k)), weight(b, n, seed=1))


def conv(b: Builder, x: Value, k: int, c: int, r: int = 3, **attrs: Any) -> Value:
    attrs = {"padding": r // 2, **attrs}
    y = b.conv2d(x, weight(b, k, c // attrs.get("groups", 1), r, r), **attrs)
    return b.op("add", y, weight(b, 1, k, 1, 1, seed=2))


def image(b: Builder, c: int = 16, name: str = "x") -> Value:
    return b.input(name, 2, c, 8, 8)


# --- activations, composed as the importers compose them -----------------------------------------


def gelu_erf(b: Builder, x: Value) -> Value:
    inner = b.op("erf", b.op("multiply", x, number(b, 0.5**0.5)))
    half = b.op("multiply", x, number(b, 0.5))
    return b.op("multiply", half, b.op("add", inner, number(b, 1.0)))


def gelu_tanh(b: Builder, x: Value) -> Value:
    cube = b.op("multiply", b.op("multiply", x, x), x)
    cubic = b.op("add", x, b.op("multiply", cube, number(b, 0.044715)))
    inner = b.op("tanh", b.op("multiply", cubic, number(b, (2 / np.pi) ** 0.5)))
    return b.op("multiply", b.op("multiply", x, number(b, 0.5)), b.op("add", inner, number(b, 1.0)))


def hardswish(b: Builder, x: Value) -> Value:
    gate = b.clip(b.op("add", x, number(b, 3.0)), 0.0, 6.0)
    return b.op("multiply", x, b.op("divide", gate, number(b, 6.0)))


def softplus(b: Builder, x: Value) -> Value:
    return b.op("log", b.op("add", b.op("exp", x), number(b, 1.0)))


def branched_softplus(b: Builder, x: Value, beta: float = 1.0) -> Value:
    """As PyTorch's importers write it: the branch keeps exp from overflowing."""
    bent = b.op("multiply", x, number(b, beta))
    smooth = b.op("divide", softplus(b, bent), number(b, beta))
    return b.op("where", b.op("greater", bent, number(b, 20.0)), x, smooth)


ACTIVATIONS: dict[str, Callable[[Builder, Value], Value]] = {
    "relu": lambda b, x: b.op("nn.relu", x),
    "leaky_relu": lambda b, x: b.leaky_relu(x, 0.1),
    "relu6": lambda b, x: b.clip(x, 0.0, 6.0),
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "sigmoid": lambda b, x: b.op("sigmoid", x),
    "silu": lambda b, x: b.op("multiply", x, b.op("sigmoid", x)),
    "hardswish": hardswish,
    "softplus": softplus,
    "tanh": lambda b, x: b.op("tanh", x),
    "exp": lambda b, x: b.op("exp", x),
    "mish": lambda b, x: b.op("multiply", x, b.op("tanh", softplus(b, x))),
    "branched_softplus": branched_softplus,
    "branched_softplus_beta": lambda b, x: branched_softplus(b, x, 2.0),
    "branched_mish": lambda b, x: b.op("multiply", x, b.op("tanh", branched_softplus(b, x))),
}


def _activation_cases() -> None:
    for name, activation in ACTIVATIONS.items():

        def on_dense(b: Builder, activation: Any = activation) -> Value:
            return activation(b, dense(b))

        def on_conv(b: Builder, activation: Any = activation) -> Value:
            return activation(b, conv(b, image(b), 32, 16))

        CASES[f"dense_bias_{name}"] = on_dense
        CASES[f"conv2d_bias_{name}"] = on_conv


_activation_cases()


# --- matrix products -----------------------------------------------------------------------------


@case
def dense_alone(b: Builder) -> Value:
    return b.dense(b.input("x", 32, 64), weight(b, 48, 64))


@case
def dense_odd_sizes(b: Builder) -> Value:
    return b.op("nn.relu", dense(b, m=7, n=33, k=65))


@case
def dense_residual(b: Builder) -> Value:
    return b.op("nn.relu", b.op("add", b.input("r", 32, 48), dense(b)))


@case
def batch_matmul(b: Builder) -> Value:
    return b.batch_matmul(b.input("a", 4, 16, 32), b.input("b", 4, 24, 32), transpose_b=True)


@case
def batch_matmul_rows(b: Builder) -> Value:
    return b.batch_matmul(b.input("a", 4, 16, 32), b.input("b", 4, 32, 24), transpose_b=False)


@case
def batch_matmul_broadcast_b(b: Builder) -> Value:
    return b.batch_matmul(b.input("a", 4, 16, 32), b.input("b", 1, 24, 32), transpose_b=True)


@case
def attention_scores(b: Builder) -> Value:
    product = b.batch_matmul(b.input("q", 4, 16, 32), b.input("k", 4, 16, 32), transpose_b=True)
    return b.softmax(b.op("divide", product, number(b, 8.0)))


# --- convolutions --------------------------------------------------------------------------------


@case
def conv2d_strided_dilated(b: Builder) -> Value:
    return conv(b, image(b), 32, 16, strides=2, dilation=2, padding=2)


@case
def conv2d_pointwise(b: Builder) -> Value:
    return b.op("nn.relu", conv(b, image(b), 32, 16, r=1))


@case
def conv2d_batch_norm_relu(b: Builder) -> Value:
    y = b.conv2d(image(b), weight(b, 32, 16, 3, 3), padding=1)
    rng = np.random.default_rng(3)
    gamma, beta, mean = (b.constant(rng.standard_normal(32).astype("float32")) for _ in range(3))
    variance = b.constant(rng.uniform(0.5, 2.0, 32).astype("float32"))
    return b.op("nn.relu", b.batch_norm(y, gamma, beta, mean, variance))


@case
def conv2d_residual_add_relu(b: Builder) -> Value:
    x = image(b)
    return b.op("nn.relu", b.op("add", conv(b, x, 16, 16), x))


@case
def conv2d_residual_multiply_relu(b: Builder) -> Value:
    x = image(b)
    return b.op("nn.relu", b.op("multiply", x, conv(b, x, 16, 16)))


@case
def conv2d_relu_residual_add(b: Builder) -> Value:
    x = image(b)
    return b.op("add", b.op("nn.relu", conv(b, x, 16, 16)), x)


@case
def conv2d_two_residuals(b: Builder) -> Value:
    x, y = image(b), image(b, name="y")
    return b.op("nn.relu", b.op("add", b.op("add", conv(b, x, 16, 16), x), y))


@case
def conv2d_per_channel_scale(b: Builder) -> Value:
    return b.op("multiply", conv(b, image(b), 32, 16), weight(b, 1, 32, 1, 1, seed=5))


# --- networks ------------------------------------------------------------------------------------


@case
def two_layers_and_a_head(b: Builder) -> Value:
    x = b.op("nn.relu", conv(b, image(b), 32, 16))
    x = b.op("nn.relu", conv(b, x, 32, 32, strides=2))
    pooled = b.mean(x, 2, 3)
    return b.softmax(b.op("add", b.dense(pooled, weight(b, 10, 32)), weight(b, 10, seed=1)))


@case
def flattened_head(b: Builder) -> Value:
    x = b.op("nn.relu", conv(b, image(b), 8, 16))
    return b.dense(b.reshape(b.max_pool(x, 2), 2, 128), weight(b, 10, 128))


@case
def output_used_twice(b: Builder) -> Value:
    x = b.op("nn.relu", conv(b, image(b), 16, 16))
    return b.op("add", conv(b, x, 16, 16), conv(b, x, 16, 16, r=1))


@case
def pre_activation(b: Builder) -> Value:
    x = image(b)
    total = b.op("add", conv(b, x, 16, 16), x)
    statistics = [weight(b, 16, seed=seed) for seed in (3, 4, 5)]
    normalised = b.batch_norm(total, *statistics, b.constant(np.full(16, 0.5, np.float32)))
    return b.op("add", conv(b, b.op("nn.relu", normalised), 16, 16), total)


@case
def residual_in_a_stack_that_is_summed(b: Builder) -> Value:
    """How TVM's importer for Relax has ONNX's Sum."""
    x = b.op("nn.relu", conv(b, image(b), 16, 16))
    y = b.reduce_stack("sum", conv(b, x, 16, 16), conv(b, x, 16, 16, r=1), x)
    return b.op("nn.relu", y)


@case
def maximum_of_a_stack(b: Builder) -> Value:
    x = b.op("nn.relu", conv(b, image(b), 16, 16))
    return b.reduce_stack("max", conv(b, x, 16, 16), x)


@case
def inner_value_used_twice(b: Builder) -> Value:
    y = conv(b, image(b), 16, 16)
    return b.outputs(b.op("nn.relu", y), b.max_pool(y, 2))


@case
def tuple_outputs(b: Builder) -> Value:
    y = dense(b)
    return b.outputs(b.op("nn.relu", y), b.op("sigmoid", y), y)


@case
def cyclic_dependency(b: Builder) -> Value:
    # The addition reads the convolution also through a pool: fused, the region would read itself.
    y = conv(b, image(b), 16, 16)
    return b.op("add", y, b.max_pool(y, 3, padding=1))


@case
def mutual_dependency(b: Builder) -> Value:
    # Each convolution's result is the other branch's residual, one of them through a pool.
    x = image(b)
    left, right = conv(b, x, 16, 16), conv(b, x, 16, 16, r=1)
    first = b.op("add", left, b.max_pool(right, 3, padding=1))
    second = b.op("add", right, b.max_pool(left, 3, padding=1))
    return b.outputs(first, second)


# --- products in sequence, which could be one kernel ----------------------------------------------


@case
def chain_of_dense(b: Builder) -> Value:
    hidden = b.op("nn.relu", dense(b, 32, 48, 64))
    hidden = b.op("sigmoid", b.dense(hidden, weight(b, 16, 48)))
    return b.op("nn.relu", b.dense(hidden, weight(b, 24, 16)))


@case
def chain_of_convolutions(b: Builder) -> Value:
    # As in a bottleneck: the residual is read by the last layer, not by a later operator.
    x = image(b)
    y = b.op("nn.relu", conv(b, x, 32, 16))
    return b.op("nn.relu", b.op("add", conv(b, y, 16, 32, r=1), x))


@case
def chain_broken_by_an_output(b: Builder) -> Value:
    y = b.op("nn.relu", conv(b, image(b), 32, 16))
    return b.outputs(y, conv(b, y, 16, 32, r=1))


@case
def chain_broken_by_a_second_use(b: Builder) -> Value:
    y = b.op("nn.relu", conv(b, image(b), 16, 16))
    return b.op("add", conv(b, y, 16, 16, r=1), y)


@case
def chain_broken_by_a_reshape(b: Builder) -> Value:
    hidden = b.op("nn.relu", dense(b, 32, 48, 64))
    return b.dense(b.reshape(hidden, 64, 24), weight(b, 16, 24))


@case
def chain_broken_by_a_filter(b: Builder) -> Value:
    return conv(b, b.op("nn.relu", conv(b, image(b), 32, 16)), 16, 32)


@case
def chain_broken_by_a_stride(b: Builder) -> Value:
    y = b.op("nn.relu", conv(b, image(b), 32, 16))
    return conv(b, y, 16, 32, r=1, strides=2)


@case
def depthwise(b: Builder) -> Value:
    return b.op("nn.relu", conv(b, image(b), 16, 16, r=5, groups=16, strides=2))


@case
def inverted_bottleneck(b: Builder) -> Value:
    wide = b.op("nn.relu", conv(b, image(b), 32, 16, r=1))
    narrow = conv(b, b.op("nn.relu", conv(b, wide, 32, 32, groups=32)), 16, 32, r=1)
    return b.op("add", narrow, image(b, name="y"))


# --- operators that stay with TVM ----------------------------------------------------------------


@case
def groups(b: Builder) -> Value:
    return conv(b, image(b), 16, 16, groups=4)


@case
def integers_stay(b: Builder) -> Value:
    x, w = b.input("x", 16, 32, dtype="int32"), b.input("w", 16, 32, dtype="int32")
    return b.op("add", x, w)


@case
def doubles_stay(b: Builder) -> Value:
    w = b.constant(np.ones((16, 32), np.float64))
    return b.dense(b.input("x", 8, 32, dtype="float64"), w)


@case
def blocked_layout_stays(b: Builder) -> Value:
    x = b.input("x", 1, 2, 8, 8, 8, dtype="float16")
    w = b.constant(np.ones((1, 2, 3, 3, 8, 16), np.float16))
    return b.blocked_conv2d(x, w)


@case
def weights_that_are_inputs(b: Builder) -> Value:
    return b.op("nn.relu", b.dense(b.input("x", 32, 64), b.input("w", 48, 64)))
