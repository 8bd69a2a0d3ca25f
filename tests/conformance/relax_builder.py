"""Cases as Relax modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.conformance.cases import Case

OPERATORS = {
    "nn.relu": relax.op.nn.relu,
    **{
        name: getattr(relax.op, name)
        for name in (
            *("add", "multiply", "divide", "erf", "exp", "log", "tanh", "sigmoid"),
            *("where", "greater"),
        )
    },
}


class RelaxBuilder:
    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.block = relax.BlockBuilder()
        self.given: Iterator[Any] | None = None

    def input(self, name: str, *shape: int, dtype: str = "float32") -> Any:
        if self.given is not None:
            return next(self.given)
        self.inputs.append(relax.Var(name, relax.TensorType(shape, dtype)))
        return self.inputs[-1]

    def constant(self, array: np.ndarray) -> Any:
        return relax.const(array, str(array.dtype))

    def conv2d(self, x: Any, w: Any, **attrs: Any) -> Any:
        return self.block.emit(relax.op.nn.conv2d(x, w, **attrs))

    def blocked_conv2d(self, x: Any, w: Any) -> Any:
        layouts = {"data_layout": "NCHW8c", "kernel_layout": "OIHW8i16o"}
        return self.block.emit(relax.op.nn.conv2d(x, w, **layouts))

    def dense(self, x: Any, w: Any) -> Any:
        return self.block.emit(relax.op.matmul(x, self.block.emit(relax.op.permute_dims(w))))

    def batch_matmul(self, a: Any, b: Any, *, transpose_b: bool) -> Any:
        if transpose_b:
            b = self.block.emit(relax.op.permute_dims(b, [0, 2, 1]))
        return self.block.emit(relax.op.matmul(a, b))

    def batch_norm(self, x: Any, *statistics: Any) -> Any:
        normed = self.block.emit(relax.op.nn.batch_norm(x, *statistics, axis=1, training=False))
        return self.block.emit(relax.TupleGetItem(normed, 0))

    def op(self, name: str, *args: Any) -> Any:
        return self.block.emit(OPERATORS[name](*args))

    def clip(self, x: Any, low: float, high: float) -> Any:
        return self.block.emit(relax.op.clip(x, low, high))

    def leaky_relu(self, x: Any, alpha: float) -> Any:
        return self.block.emit(relax.op.nn.leakyrelu(x, alpha))

    def reshape(self, x: Any, *shape: int) -> Any:
        return self.block.emit(relax.op.reshape(x, shape))

    def softmax(self, x: Any) -> Any:
        return self.block.emit(relax.op.nn.softmax(x, -1))

    def max_pool(self, x: Any, size: int, padding: int = 0) -> Any:
        strides = 1 if padding else size
        pool = relax.op.nn.max_pool2d(x, (size, size), (strides, strides), (padding, padding))
        return self.block.emit(pool)

    def mean(self, x: Any, *axes: int) -> Any:
        return self.block.emit(relax.op.mean(x, list(axes)))

    def reduce_stack(self, name: str, *xs: Any) -> Any:
        stacked = self.block.emit(relax.op.stack(list(xs), 0))
        return self.block.emit(getattr(relax.op, name)(stacked, [0]))

    def outputs(self, *values: Any) -> Any:
        return relax.Tuple(list(values))


def relax_module(case: Case) -> tvm.IRModule:
    # Inputs come to be while the body is built, and Relax wants them before: it is built twice.
    inputs: list[relax.Var] = []
    for _ in range(2):
        builder = RelaxBuilder()
        if inputs:
            builder.given = iter(inputs)
        with builder.block.function("main", inputs):
            with builder.block.dataflow():
                output = builder.block.emit_output(case(builder))
            builder.block.emit_func_output(output)
        inputs = inputs or builder.inputs
    return builder.block.get()
