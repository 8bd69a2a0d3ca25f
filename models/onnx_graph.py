"""A typed builder of static-shape ONNX graphs, and where their parameters come from.

The model builders describe an architecture by calling `GraphBuilder`; a `ParameterSource` (see
`models.parameters`) decides what its tensors hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from models.parameters import Distribution, Normal, ParameterSource, Shape, Uniform

OPSET = 17
IR_VERSION = 8  # the IR version that belongs to opset 17, so that older runtimes load the file

DType: TypeAlias = Literal["float32", "float16"]

_ELEMENT_TYPES: Mapping[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value in the graph: its name and its static shape."""

    name: str
    shape: Shape


class GraphBuilder:
    """Appends nodes in topological order; node `name` computes the tensor `name.output`.

    Weights are scaled by fan-in: an input whose mean square is 1 gives an output whose mean square
    is `gain`**2, at any depth and image size. FP16 then neither overflows nor loses the signal.
    """

    def __init__(
        self, graph_name: str, *, parameters: ParameterSource, dtype: DType = "float32"
    ) -> None:
        if dtype not in _ELEMENT_TYPES:
            raise ValueError(f"dtype {dtype!r} is not one of {', '.join(_ELEMENT_TYPES)}")
        self._graph_name = graph_name
        self._parameters = parameters
        self._dtype = dtype
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._names: set[str] = set()

    # Boundary of the graph

    def input(self, name: str, shape: Shape) -> Tensor:
        if min(shape) < 1:
            raise ValueError(f"input {name!r} of {self._graph_name} has an empty shape {shape}")
        self._inputs.append(self._value_info(name, shape))
        return Tensor(name, shape)

    def output(self, value: Tensor, name: str) -> None:
        """Make `value` a result of the graph, under `name`."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for position, tensor_name in enumerate(names):
                    if tensor_name == value.name:
                        names[position] = name
        self._outputs.append(self._value_info(name, value.shape))

    def build(self, doc: str = "") -> ModelProto:
        graph = helper.make_graph(
            self._nodes,
            self._graph_name,
            self._inputs,
            self._outputs,
            doc_string=doc,
        )
        graph.initializer.extend(self._initializers)
        self._initializers.clear()  # large models would otherwise stay in memory twice
        return helper.make_model(
            graph,
            producer_name="boltgen-models",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )

    # Convolutional networks; activations are NCHW, filters OIHW

    def conv(
        self,
        x: Tensor,
        name: str,
        *,
        channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        gain: float = 1.0,
    ) -> Tensor:
        batch, in_channels, height, width = x.shape
        window = (kernel, stride, padding)
        fan_in = in_channels * _taps_inside(height, *window) * _taps_inside(width, *window)
        weight_shape = (channels, in_channels, kernel, kernel)
        inputs = [
            x.name,
            self._parameter(f"{name}.weight", weight_shape, Normal(std=gain / math.sqrt(fan_in))),
        ]
        if bias:
            inputs.append(self._parameter(f"{name}.bias", (channels,), Normal(std=0.1)))
        out_shape = (batch, channels, _windows(height, *window), _windows(width, *window))
        return self._node(
            "Conv",
            name,
            inputs,
            out_shape,
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[padding] * 4,
            strides=[stride, stride],
        )

    def batch_norm(self, x: Tensor, name: str, *, scale: Uniform) -> Tensor:
        """Inference-form normalisation, with statistics such as training leaves behind."""
        channels = (x.shape[1],)
        inputs = [
            x.name,
            self._parameter(f"{name}.weight", channels, scale),
            self._parameter(f"{name}.bias", channels, Normal(std=0.1)),
            self._parameter(f"{name}.running_mean", channels, Normal(std=0.1)),
            self._parameter(f"{name}.running_var", channels, Uniform(low=0.8, high=1.2)),
        ]
        return self._node("BatchNormalization", name, inputs, x.shape, epsilon=1e-5, momentum=0.9)

    def max_pool(
        self, x: Tensor, name: str, *, kernel: int, stride: int, padding: int = 0
    ) -> Tensor:
        batch, channels, height, width = x.shape
        window = (kernel, stride, padding)
        return self._node(
            "MaxPool",
            name,
            [x.name],
            (batch, channels, _windows(height, *window), _windows(width, *window)),
            ceil_mode=0,
            kernel_shape=[kernel, kernel],
            pads=[padding] * 4,
            strides=[stride, stride],
        )

    def global_average_pool(self, x: Tensor, name: str) -> Tensor:
        return self._node("GlobalAveragePool", name, [x.name], (*x.shape[:2], 1, 1))

    def flatten(self, x: Tensor, name: str) -> Tensor:
        shape = (x.shape[0], math.prod(x.shape[1:]))
        return self._node("Flatten", name, [x.name], shape, axis=1)

    # Dense layers

    def gemm(self, x: Tensor, name: str, *, features: int, gain: float = 1.0) -> Tensor:
        """A dense layer on (M, K), as exporters write it for 2-D inputs; weight: (N, K)."""
        rows, fan_in = x.shape
        weight = Normal(std=gain / math.sqrt(fan_in))
        inputs = [
            x.name,
            self._parameter(f"{name}.weight", (features, fan_in), weight),
            self._parameter(f"{name}.bias", (features,), Normal(std=0.1)),
        ]
        return self._node("Gemm", name, inputs, (rows, features), alpha=1.0, beta=1.0, transB=1)

    def linear(self, x: Tensor, name: str, *, features: int, gain: float = 1.0) -> Tensor:
        """A dense layer on (..., K), as exporters write it for 3-D inputs; weight: (K, N)."""
        fan_in = x.shape[-1]
        shape = (*x.shape[:-1], features)
        weight = Normal(std=gain / math.sqrt(fan_in))
        weight_name = self._parameter(f"{name}.weight", (fan_in, features), weight)
        bias_name = self._parameter(f"{name}.bias", (features,), Normal(std=0.1))
        product = self._node("MatMul", f"{name}.matmul", [x.name, weight_name], shape)
        return self._node("Add", f"{name}.add", [bias_name, product.name], shape)

    def matmul(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
            raise ValueError(f"{name}: shapes {a.shape} and {b.shape} do not multiply")
        return self._node("MatMul", name, [a.name, b.name], (*a.shape[:-1], b.shape[-1]))

    # Elementwise operations and normalisations

    def relu(self, x: Tensor, name: str) -> Tensor:
        return self._node("Relu", name, [x.name], x.shape)

    def hard_swish(self, x: Tensor, name: str) -> Tensor:
        return self._node("HardSwish", name, [x.name], x.shape)

    def gelu(self, x: Tensor, name: str) -> Tensor:
        """The exact GELU, in the five nodes that exporters write below opset 20."""
        scaled = self.divide(x, math.sqrt(2.0), f"{name}.div")
        erf = self._node("Erf", f"{name}.erf", [scaled.name], x.shape)
        one = self._constant(f"{name}.one", np.asarray(1.0, dtype=self._dtype))
        shifted = self._node("Add", f"{name}.add", [erf.name, one], x.shape)
        product = self._node("Mul", f"{name}.mul", [x.name, shifted.name], x.shape)
        half = self._constant(f"{name}.half", np.asarray(0.5, dtype=self._dtype))
        return self._node("Mul", f"{name}.mul_half", [product.name, half], x.shape)

    def add(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        shape = tuple(int(size) for size in np.broadcast_shapes(a.shape, b.shape))
        return self._node("Add", name, [a.name, b.name], shape)

    def divide(self, x: Tensor, divisor: float, name: str) -> Tensor:
        constant = self._constant(f"{name}.divisor", np.asarray(divisor, dtype=self._dtype))
        return self._node("Div", name, [x.name, constant], x.shape)

    def softmax(self, x: Tensor, name: str) -> Tensor:
        return self._node("Softmax", name, [x.name], x.shape, axis=-1)

    def layer_norm(self, x: Tensor, name: str, *, epsilon: float) -> Tensor:
        channels = (x.shape[-1],)
        inputs = [
            x.name,
            self._parameter(f"{name}.weight", channels, Uniform(low=0.8, high=1.2)),
            self._parameter(f"{name}.bias", channels, Normal(std=0.1)),
        ]
        return self._node("LayerNormalization", name, inputs, x.shape, axis=-1, epsilon=epsilon)

    # Layout

    def reshape(self, x: Tensor, name: str, shape: Shape) -> Tensor:
        if math.prod(shape) != math.prod(x.shape):
            raise ValueError(f"{name}: {x.shape} does not reshape to {shape}")
        target = self._constant(f"{name}.shape", np.asarray(shape, dtype=np.int64))
        return self._node("Reshape", name, [x.name, target], shape)

    def transpose(self, x: Tensor, name: str, order: Shape) -> Tensor:
        shape = tuple(x.shape[axis] for axis in order)
        return self._node("Transpose", name, [x.name], shape, perm=list(order))

    # Internals

    def _node(
        self,
        operator: str,
        name: str,
        inputs: Sequence[str],
        shape: Shape,
        **attributes: Any,
    ) -> Tensor:
        if min(shape) < 1:
            raise ValueError(f"{operator} {name!r} would have an empty shape {shape}")
        self._claim(name)
        output = f"{name}.output"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        return Tensor(output, shape)

    def _parameter(self, name: str, shape: Shape, distribution: Distribution) -> str:
        self._claim(name)
        values = self._parameters(name, shape, distribution)
        self._initializers.append(
            numpy_helper.from_array(values.astype(self._dtype, copy=False), name)
        )
        return name

    def _constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        self._claim(name)
        output = f"{name}.output"
        value = numpy_helper.from_array(values)
        self._nodes.append(helper.make_node("Constant", [], [output], name=name, value=value))
        return output

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise ValueError(f"the name {name!r} is used twice in {self._graph_name}")
        self._names.add(name)

    def _value_info(self, name: str, shape: Shape) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, _ELEMENT_TYPES[self._dtype], shape)


def parameter_count(model: ModelProto) -> int:
    """Learnable parameters: all initialisers except the running statistics of batch norms."""
    statistics = {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    return sum(
        math.prod(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.name not in statistics
    )


def _windows(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return how many windows fit along one dimension, rounded down."""
    return (size + 2 * padding - kernel) // stride + 1


def _taps_inside(size: int, kernel: int, stride: int, padding: int) -> float:
    """Return how many of a window's `kernel` taps see data rather than padding, on average.

    A 3x3 filter on a 2x2 image sees 4 pixels, not 9. Counting 9 would let the signal of a deep
    network on small images fade below its biases.
    """
    starts = [index * stride - padding for index in range(_windows(size, kernel, stride, padding))]
    inside = [min(start + kernel, size) - max(start, 0) for start in starts]
    return sum(inside) / len(inside) if inside else kernel
