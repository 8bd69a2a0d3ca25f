"""Composed activations become enum members exactly where they are the same function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.passes.regions.activations import recognise
from boltgen.problems import reference
from boltgen.problems.gemm.problem import Gemm

ADD, SUB, MUL, DIV = BinaryOp.ADD, BinaryOp.SUBTRACT, BinaryOp.MULTIPLY, BinaryOp.DIVIDE


class Graph(ElementwiseBuilder):
    """An epilogue builder that takes numbers where it takes nodes."""

    def of(self, op: BinaryOp, lhs: int | float, rhs: int | float) -> int:
        nodes = [self.scalar(x) if isinstance(x, float) else x for x in (lhs, rhs)]
        return self.binary(op, *nodes)

    def input(self) -> int:
        return self.of(ADD, 0, self.load(LoadKind.ROW))


def _hardswish(g: Graph, x: int) -> None:
    g.of(DIV, g.of(MUL, x, g.unary(UnaryOp.CLIP, g.of(ADD, x, 3.0), 0, 6)), 6.0)


def _hardswish_scaled_gate(g: Graph, x: int) -> None:
    g.of(MUL, x, g.of(MUL, g.unary(UnaryOp.CLIP, g.of(ADD, 3.0, x), 0, 6), 1 / 6))


def _hardswish_fp16(g: Graph, x: int) -> None:
    sixth = float(np.float16(1 / 6))
    g.of(MUL, g.of(MUL, g.unary(UnaryOp.CLIP, g.of(ADD, x, 3.0), 0, 6), sixth), x)


def _hardswish_of_hardsigmoid(g: Graph, x: int) -> None:
    gate = g.unary(UnaryOp.CLIP, g.of(ADD, g.of(MUL, x, 1 / 6), 0.5), 0, 1)
    g.of(MUL, gate, x)


def _hardswish_max_min(g: Graph, x: int) -> None:
    gate = g.of(BinaryOp.MINIMUM, g.of(BinaryOp.MAXIMUM, g.of(ADD, x, 3.0), 0.0), 6.0)
    g.of(MUL, g.of(DIV, gate, 6.0), x)


def _hardsigmoid(g: Graph, x: int) -> None:
    g.of(DIV, g.unary(UnaryOp.CLIP, g.of(ADD, x, 3.0), 0, 6), 6.0)


def _guarded_softplus(g: Graph, x: int) -> None:
    size = g.unary(UnaryOp.NEGATE, g.unary(UnaryOp.ABS, x))
    g.of(
        ADD,
        g.unary(UnaryOp.RELU, x),
        g.unary(UnaryOp.LOG, g.of(ADD, g.unary(UnaryOp.EXP, size), 1.0)),
    )


def _silu(g: Graph, x: int) -> None:
    g.of(MUL, g.unary(UnaryOp.SIGMOID, x), x)


def _silu_spelled(g: Graph, x: int) -> None:
    g.of(MUL, x, g.of(DIV, 1.0, g.of(ADD, 1.0, g.unary(UnaryOp.EXP, g.unary(UnaryOp.NEGATE, x)))))


def _gelu(g: Graph, x: int) -> None:
    gate = g.of(ADD, g.unary(UnaryOp.ERF, g.of(DIV, x, math.sqrt(2))), 1.0)
    g.of(MUL, g.of(MUL, x, gate), 0.5)


def _gelu_half_first(g: Graph, x: int) -> None:
    gate = g.of(ADD, 1.0, g.unary(UnaryOp.ERF, g.of(MUL, x, 0.70710678)))
    g.of(MUL, g.of(MUL, 0.5, x), gate)


def _gelu_cumulative(g: Graph, x: int) -> None:
    half = g.of(MUL, 0.5, g.unary(UnaryOp.ERF, g.of(MUL, 0.70710678, x)))
    g.of(MUL, x, g.of(ADD, half, 0.5))


def _gelu_tanh(g: Graph, x: int) -> None:
    cube = g.of(MUL, g.of(MUL, x, x), x)
    inner = g.of(MUL, g.of(ADD, x, g.of(MUL, 0.044715, cube)), math.sqrt(2 / math.pi))
    g.of(MUL, g.of(MUL, 0.5, x), g.of(ADD, 1.0, g.unary(UnaryOp.TANH, inner)))


def _softplus(g: Graph, x: int) -> None:
    g.unary(UnaryOp.LOG, g.of(ADD, 1.0, g.unary(UnaryOp.EXP, x)))


def _mish(g: Graph, x: int) -> None:
    softplus = g.unary(UnaryOp.LOG, g.of(ADD, g.unary(UnaryOp.EXP, x), 1.0))
    g.of(MUL, x, g.unary(UnaryOp.TANH, softplus))


def _relu(g: Graph, x: int) -> None:
    g.of(BinaryOp.MAXIMUM, 0.0, x)


def _relu_of_a_sum(g: Graph, x: int) -> None:
    g.of(BinaryOp.MAXIMUM, 0.0, g.of(ADD, x, 3.0))


def _relu6(g: Graph, x: int) -> None:
    g.of(BinaryOp.MINIMUM, g.unary(UnaryOp.RELU, x), 6.0)


def _relu6_of_a_clip(g: Graph, x: int) -> None:
    g.unary(UnaryOp.CLIP, g.unary(UnaryOp.CLIP, x, 0.0, 9.0), -1.0, 6.0)


def _quick_gelu(g: Graph, x: int) -> None:
    g.of(MUL, x, g.unary(UnaryOp.SIGMOID, g.of(MUL, 1.702, x)))


def _quick_gelu_fp16(g: Graph, x: int) -> None:
    g.of(MUL, g.unary(UnaryOp.SIGMOID, g.of(MUL, x, float(np.float16(1.702)))), x)


def _elu(g: Graph, x: int, alpha: float = 0.75) -> int:
    """As TVM's importers of ONNX and PyTorch write it."""
    below = g.unary(UnaryOp.RELU, g.of(BinaryOp.SUBTRACT, 1.0, g.unary(UnaryOp.EXP, x)))
    return g.of(ADD, g.of(MUL, -alpha, below), g.unary(UnaryOp.RELU, x))


def _elu_subtracted(g: Graph, x: int) -> None:
    below = g.unary(UnaryOp.RELU, g.of(BinaryOp.SUBTRACT, 1.0, g.unary(UnaryOp.EXP, x)))
    g.of(BinaryOp.SUBTRACT, g.unary(UnaryOp.RELU, x), g.of(MUL, below, 0.75))


def _selu(g: Graph, x: int) -> None:
    g.of(MUL, 1.05070102214813232421875, _elu(g, x, 1.67326319217681884765625))


def _selu_fp16(g: Graph, x: int) -> None:
    g.of(MUL, _elu(g, x, float(np.float16(1.6732632))), float(np.float16(1.0507)))


def _leaky(g: Graph, x: int) -> None:
    g.of(BinaryOp.MAXIMUM, x, g.of(MUL, x, 0.125))


SPELLED: dict[str, list[Callable[[Graph, int], object]]] = {
    "hardswish(add(acc, row0))": [
        _hardswish,
        _hardswish_scaled_gate,
        _hardswish_fp16,
        _hardswish_of_hardsigmoid,
        _hardswish_max_min,
    ],
    "hardsigmoid(add(acc, row0), 0.166667, 0.5)": [_hardsigmoid],
    "silu(add(acc, row0))": [_silu, _silu_spelled],
    "gelu_erf(add(acc, row0))": [_gelu, _gelu_half_first, _gelu_cumulative],
    "gelu_tanh(add(acc, row0))": [_gelu_tanh],
    "softplus(add(acc, row0))": [_softplus, _guarded_softplus],
    "mish(add(acc, row0))": [_mish],
    "relu(add(acc, row0))": [_relu],
    "relu(add(add(acc, row0), 3))": [_relu_of_a_sum],
    "relu6(add(acc, row0))": [_relu6, _relu6_of_a_clip],
    "quick_gelu(add(acc, row0))": [_quick_gelu, _quick_gelu_fp16],
    "elu(add(acc, row0), 0.75)": [_elu, _elu_subtracted],
    "selu(add(acc, row0))": [_selu, _selu_fp16],
    "leaky_relu(add(acc, row0), 0.125)": [_leaky],
}
CASES = [(text, make) for text, makers in SPELLED.items() for make in makers]


def _values(epilogue: ElementwiseGraph) -> np.ndarray:
    problem = Gemm(m=64, n=8, k=1)
    a = np.linspace(-9, 9, 64, dtype=np.float16).reshape(64, 1)
    row = np.linspace(-1, 1, 8, dtype=np.float16)
    b = np.ones((1, 8), np.float16)
    return reference.run(problem, epilogue, a, b, [row] * len(epilogue.loads))


@pytest.mark.parametrize(("text", "make"), CASES, ids=[make.__name__ for _, make in CASES])
def test_a_spelled_activation_is_recognised_and_stays_the_same_function(
    text: str, make: Callable[[Graph, int], None]
) -> None:
    graph = Graph()
    make(graph, graph.input())
    spelled = graph.build()
    simple = recognise(spelled, DType.F16)
    assert simple.describe() == text
    # A constant that was rounded to FP16 is off by 2^-11 of itself, and so is the function.
    np.testing.assert_allclose(_values(simple), _values(spelled), rtol=2**-10, atol=2**-12)


def test_a_product_as_argument_is_recognised() -> None:
    graph = Graph()
    x = graph.of(MUL, 0, graph.load(LoadKind.ROW))
    _gelu(graph, x)
    assert recognise(graph.build(), DType.F16).describe() == "gelu_erf(multiply(acc, row0))"


@pytest.mark.parametrize("constant", [0.5, 0.7, 0.7079])
def test_another_constant_is_another_function(constant: float) -> None:
    graph = Graph()
    x = graph.input()
    gate = graph.of(ADD, 1.0, graph.unary(UnaryOp.ERF, graph.of(MUL, x, constant)))
    graph.of(MUL, graph.of(MUL, 0.5, x), gate)
    assert "gelu" not in recognise(graph.build(), DType.F16).describe()


def test_a_gate_of_another_value_stays() -> None:
    graph = Graph()
    x, y = graph.input(), graph.load(LoadKind.TENSOR)
    graph.of(MUL, y, graph.unary(UnaryOp.SIGMOID, x))
    assert recognise(graph.build(), DType.F16).describe() == (
        "multiply(tensor0, sigmoid(add(acc, row0)))"
    )


def test_equal_loads_stay_apart_and_in_order() -> None:
    graph = Graph()
    first, second = graph.load(LoadKind.TENSOR), graph.load(LoadKind.TENSOR)
    graph.of(SUB, graph.of(ADD, 0, second), first)
    simple = recognise(graph.build(), DType.F16)
    assert len(simple.loads) == 2
    assert simple.describe() == "subtract(add(acc, tensor1), tensor0)"


def test_a_last_cast_to_the_output_type_goes_and_others_stay() -> None:
    graph = Graph()
    graph.cast(graph.unary(UnaryOp.RELU, graph.cast(0, DType.F16)), DType.F16)
    assert recognise(graph.build(), DType.F16).describe() == "relu(float16(acc))"
    assert recognise(graph.build(), DType.F32).describe() == "float16(relu(float16(acc)))"


class Changed(Graph):
    """A builder that takes another number, operand or operator at one step of a spelling."""

    def __init__(self, step: int, change: int) -> None:
        super().__init__()
        self._steps_left, self._change = step, change
        self.is_changed = False

    def _is_next(self) -> bool:
        self._steps_left -= 1
        self.is_changed |= self._steps_left == -1
        return self._steps_left == -1

    def of(self, op: BinaryOp, lhs: int | float, rhs: int | float) -> int:
        if not self._is_next():
            return super().of(op, lhs, rhs)
        # A node of the spelling's argument, its accumulator, stands for another operand.
        numbers = [
            (each + 0.25 if self._change else -each) if isinstance(each, float) else each
            for each in (lhs, rhs)
        ]
        match self._change:
            case 0 | 1 if numbers != [lhs, rhs]:
                return super().of(op, *numbers)
            case 0 | 1 | 2:
                return super().of(op, rhs, lhs)
            case 3:
                return super().of(op, lhs, 0 if isinstance(rhs, int) else rhs)
            case 4:
                return super().of(op, 0 if isinstance(lhs, int) else lhs, rhs)
            case _:
                others = [each for each in (ADD, SUB, MUL, BinaryOp.MAXIMUM) if each is not op]
                return super().of(others[self._change % len(others)], lhs, rhs)

    def unary(self, op: UnaryOp, x: int, *params: float) -> int:
        if not self._is_next():
            return super().unary(op, x, *params)
        if params and self._change < 3:
            low, high = params
            changed = ((low - 0.5, high), (low, high + 0.5), (low + 0.5, high))[self._change]
            return super().unary(op, x, *changed)
        plain = (UnaryOp.TANH, UnaryOp.EXP, UnaryOp.RELU, UnaryOp.SIGMOID, UnaryOp.NEGATE)
        others = [each for each in plain if each is not op]
        if self._change == 3:
            return super().unary(op, super().unary(UnaryOp.NEGATE, x), *params)
        if self._change == 4:
            return super().unary(op, 0, *params)
        return super().unary(others[self._change % len(others)], x)


@pytest.mark.parametrize("make", [make for _, make in CASES])
def test_a_spelling_with_one_change_stays_the_same_function(
    make: Callable[[Graph, int], object],
) -> None:
    """Most of these are other functions than the named one, by one number or operator."""
    step, changes = 0, 8
    while True:
        for change in range(changes):
            graph = Changed(step, change)
            make(graph, super(Changed, graph).of(ADD, 0, graph.load(LoadKind.ROW)))
            if not graph.is_changed:
                return
            spelled = graph.build()
            with np.errstate(all="ignore"):
                wanted, found = _values(spelled), _values(recognise(spelled, DType.F16))
            # An exponential within a named function does not overflow.
            kept = np.isfinite(wanted)
            np.testing.assert_allclose(found[kept], wanted[kept], rtol=2**-9, atol=2**-10)
        step += 1
