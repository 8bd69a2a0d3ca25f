"""Random networks, as authors write them: FP32, NCHW, and all kinds of operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder

N, C, SIZE = 2, 4, 6
IMAGE, ROWS = (N, C, SIZE, SIZE), (N, 5, 8)
F16, F32 = "float16", "float32"
# Operators that keep a shape, with attributes.
UNARY: dict[str, dict[str, object]] = {
    **{
        name: {} for name in ("nn.relu", "sigmoid", "tanh", "nn.gelu", "nn.silu", "abs", "negative")
    },
    "clip": {"low": -1.0, "high": 6.0},
    "nn.leakyrelu": {"alpha": 0.25},
    "exp": {},
    "square": {},
}


class Net(GraphBuilder):
    """Grows a network in FP32, whose constants are numbers that FP16 and BF16 have."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def input(self, *shape: int, dtype: str = F32) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def weight(self, *shape: int) -> int:
        """Random eighths, each of which seven bits hold."""
        return self.constant((self.rng.integers(-8, 9, shape) / 8).astype(np.float32))

    def number(self, value: float) -> int:
        return self.constant(np.array(value, np.float32))

    def unary(self, x: int, name: str) -> int:
        """A function; of bounded numbers, where it makes large ones."""
        if name in {"exp", "square"}:
            x = self.elementwise("tanh", x)
        return self.elementwise(name, x, **UNARY[name])

    def conv(self, x: int, filters: int = C, *, stride: int = 1, size: int = 3) -> int:
        n, c, h, w = self.shape(x)
        pad = size // 2
        out = ((h + 2 * pad - size) // stride + 1, (w + 2 * pad - size) // stride + 1)
        attrs: dict[str, Any] = {
            "strides": (stride, stride),
            "padding": (pad,) * 4,
            "dilation": (1, 1),
            "groups": 1,
            "data_layout": "NCHW",
            "kernel_layout": "OIHW",
            "out_layout": "NCHW",
        }
        args = x, self.weight(filters, c, size, size)
        return self.operator("nn.conv2d", args, (n, filters, *out), F32, **attrs)

    def bias(self, x: int) -> int:
        return self.elementwise("add", x, self.weight(self.shape(x)[1], 1, 1))

    def batch_norm(self, x: int) -> int:
        """By powers of two, so that the folded weights are numbers of FP16 too."""
        (c,) = self.shape(x)[1:2]
        scale = self.constant(2.0 ** self.rng.integers(-1, 2, c).astype(np.float32))
        variance = self.constant(4.0 ** self.rng.integers(-1, 2, c).astype(np.float32))
        args = x, scale, self.weight(c), self.weight(c), variance
        attrs = {"axis": 1, "epsilon": 0.0, "center": True, "scale": True, "training": False}
        return self.operator("nn.batch_norm", args, self.shape(x), F32, **attrs)

    def pool(self, x: int, name: str) -> int:
        n, c, h, w = self.shape(x)
        if name == "nn.adaptive_avg_pool2d":
            attrs: dict[str, Any] = {"layout": "NCHW", "out_layout": "NCHW", "output_size": (1, 1)}
            return self.operator(name, (x,), (n, c, 1, 1), F32, **attrs)
        attrs = {
            **{"pool_size": (3, 3), "strides": (2, 2), "padding": (1,) * 4, "dilation": (1, 1)},
            **{"ceil_mode": False, "layout": "NCHW", "out_layout": "NCHW"},
        }
        attrs |= {"count_include_pad": False} if name == "nn.avg_pool2d" else {}
        return self.operator(name, (x,), (n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1), F32, **attrs)

    def product(self, x: int, columns: int) -> int:
        made = self.matmul(x, self.weight(self.shape(x)[-1], columns), F32)
        return self.elementwise("multiply", made, self.number(0.25))

    def reduced(self, x: int, name: str, axis: int, *, keepdims: bool) -> int:
        before = self.shape(x)
        kept = (1,) if keepdims else ()
        shape = (*before[:axis], *kept, *before[axis + 1 :])
        return self.operator(name, (x,), shape, F32, axis=(axis,), keepdims=keepdims)

    def softmax(self, x: int, axis: int) -> int:
        return self.operator("nn.softmax", (x,), self.shape(x), F32, axis=axis)

    def cut(self, x: int, axis: int) -> int:
        before = self.shape(x)
        shape = (*before[:axis], before[axis] - before[axis] // 3, *before[axis + 1 :])
        attrs = {"axis": axis, "begin": before[axis] // 3, "end": before[axis]}
        return self.operator("strided_slice", (x,), shape, F32, **attrs)

    def joined(self, *xs: int, axis: int) -> int:
        shapes = [self.shape(x) for x in xs]
        total = sum(shape[axis] for shape in shapes)
        shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
        return self.operator("concat", xs, shape, F32, axis=axis)

    def layer_norm(self, x: int) -> int:
        columns = self.shape(x)[-1]
        args = x, self.weight(columns), self.weight(columns)
        attrs = {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}
        return self.operator("nn.layer_norm", args, self.shape(x), F32, **attrs)

    def masked(self, x: int, lowest: float) -> int:
        seen = self.operator("greater", (x, self.number(0.0)), self.shape(x), "bool")
        return self.operator("where", (seen, x, self.number(lowest)), self.shape(x), F32)


@dataclass(frozen=True)
class Step:
    """The next operator of a network: its kind, and numbers that decide its operands and form."""

    kind: int
    which: int
    how: int


STEPS = st.lists(
    st.builds(Step, kind=st.integers(0, 15), which=st.integers(0, 20), how=st.integers(0, 20)),
    min_size=1,
    max_size=8,
)


def grown(  # noqa: PLR0912
    net: Net, x: int, step: Step, values: list[int]
) -> int:
    """The next value of a network, by a step; `x` where the step is not for its shape."""
    shape = net.shape(x)
    is_image, axis = len(shape) == 4, step.how % max(1, len(shape))
    match step.kind:
        case 0 if is_image:
            return net.conv(x, (C, 8)[step.how % 2], stride=1 + step.how % 3 // 2)
        case 1 if is_image:
            return net.bias(net.conv(x))
        case 2 if is_image:
            return net.batch_norm(net.conv(x, size=1))
        case 3 if is_image:
            names = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
            return net.pool(x, names[step.how % 3])
        case 4 if len(shape) > 1:
            return net.product(x, (4, 8)[step.how % 2])
        case 5 | 6:
            return net.unary(x, sorted(UNARY)[step.how % len(UNARY)])
        case 7:
            others = [each for each in values if net.shape(each) == shape]
            name = ("add", "subtract", "maximum", "multiply")[step.how % 4]
            return net.elementwise(
                name, net.elementwise("tanh", x), others[step.which % len(others)]
            )
        case 8 if len(shape) > 1:
            order = list(np.random.default_rng(step.how).permutation(len(shape)))
            return net.permute_dims(x, [int(each) for each in order])
        case 9 if is_image:
            return net.reshape(x, (shape[0], int(np.prod(shape[1:]))))
        case 10 if len(shape) > 1:
            name = ("mean", "sum", "max", "min")[step.which % 4]
            return net.reduced(x, name, axis, keepdims=step.how % 2 == 0)
        case 11 if shape:
            return net.softmax(x, axis - len(shape) if step.which % 2 else axis)
        case 12 if shape and shape[axis] > 2:
            return net.cut(x, axis)
        case 13 if shape:
            return net.joined(x, net.elementwise("negative", x), axis=axis)
        case 14 if shape:
            return net.layer_norm(x)
        case 15 if shape:
            widths = [(step.which % 2, 1) if at == axis else (0, 0) for at in range(len(shape))]
            return net.pad(x, widths, 0.0, "constant")
    return x


def network(steps: list[Step], shape: tuple[int, ...]) -> Graph:
    net = Net()
    values = [net.input(*shape)]
    for step in steps:
        values.append(grown(net, values[-1 - step.which % 3 % len(values)], step, values))
    return net.graph((values[-1], values[len(values) // 2]))
