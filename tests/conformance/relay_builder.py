"""Cases as Relay modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relay

from tests.conformance.cases import Case

OPERATORS = {
    "nn.relu": relay.nn.relu,
    **{
        name: getattr(relay, name)
        for name in (
            *("add", "multiply", "divide", "erf", "exp", "log", "tanh", "sigmoid"),
            *("where", "greater"),
        )
    },
}


class RelayBuilder:
    def __init__(self) -> None:
        self.inputs: list[Any] = []

    def input(self, name: str, *shape: int, dtype: str = "float32") -> Any:
        self.inputs.append(relay.var(name, shape=shape, dtype=dtype))
        return self.inputs[-1]

    def constant(self, array: np.ndarray) -> Any:
        return relay.const(array, str(array.dtype))

    def conv2d(self, x: Any, w: Any, **attrs: Any) -> Any:
        shape = w.data.shape
        return relay.nn.conv2d(x, w, channels=shape[0], kernel_size=shape[2:], **attrs)

    def blocked_conv2d(self, x: Any, w: Any) -> Any:
        return relay.nn.conv2d(
            x, w, kernel_size=(3, 3), channels=16, data_layout="NCHW8c", kernel_layout="OIHW8i16o"
        )

    def dense(self, x: Any, w: Any) -> Any:
        return relay.nn.dense(x, w)

    def batch_matmul(self, a: Any, b: Any, *, transpose_b: bool) -> Any:
        return relay.nn.batch_matmul(a, b, transpose_b=transpose_b)

    def batch_norm(self, x: Any, *statistics: Any) -> Any:
        return relay.nn.batch_norm(x, *statistics, axis=1)[0]

    def op(self, name: str, *args: Any) -> Any:
        return OPERATORS[name](*args)

    def clip(self, x: Any, low: float, high: float) -> Any:
        return relay.clip(x, low, high)

    def leaky_relu(self, x: Any, alpha: float) -> Any:
        return relay.nn.leaky_relu(x, alpha)

    def reshape(self, x: Any, *shape: int) -> Any:
        return relay.reshape(x, shape)

    def softmax(self, x: Any) -> Any:
        return relay.nn.softmax(x, -1)

    def max_pool(self, x: Any, size: int, padding: int = 0) -> Any:
        strides = 1 if padding else size
        return relay.nn.max_pool2d(x, (size, size), (strides, strides), (1, 1), (padding, padding))

    def mean(self, x: Any, *axes: int) -> Any:
        return relay.mean(x, list(axes))

    def reduce_stack(self, name: str, *xs: Any) -> Any:
        return getattr(relay, name)(relay.stack(relay.Tuple(list(xs)), 0), [0])

    def outputs(self, *values: Any) -> Any:
        return relay.Tuple(list(values))


def relay_module(case: Case) -> tvm.IRModule:
    builder = RelayBuilder()
    body = case(builder)
    return tvm.IRModule.from_expr(relay.Function(builder.inputs, body))
