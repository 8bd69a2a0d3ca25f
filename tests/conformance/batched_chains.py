"""Batched products in sequence, at random: as a model for either frontend, and as the oracle's.

A seed decides everything, so that the kernels are compiled once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.reference import Agreement, compare
from boltgen.problems.workload import Layer, Workload
from tests.conformance.cases import Builder, Case, Value

# All weights differ in the batch; the first layer's are shared; all but the first's; the second's.
SEEDS = (0, 1, 24, 32)

_OPERATORS = {UnaryOp.RELU: "nn.relu", UnaryOp.SIGMOID: "sigmoid", UnaryOp.TANH: "tanh"}


def _epilogue(op: UnaryOp, *, residual: bool) -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    value = 0
    if residual:
        value = builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.TENSOR, DType.F16))
    builder.unary(op, value)
    return builder.build()


@dataclass(frozen=True)
class BatchedChain:
    """What is computed, with one activation behind each product, and what each input is called.

    Where a layer's epilogue loads something, it is a residual with a slice for each product.
    """

    chain: Workload
    operators: tuple[str, ...]

    @property
    def case(self) -> Case:
        """The model."""

        def build(b: Builder) -> Value:
            first = self.chain.first.problem
            value = b.input("x", *first.a_shape, dtype="float16")
            for index, layer in enumerate(self.chain.layers):
                problem = layer.problem
                shape = problem.b_shape
                full = shape if problem.b_batched else (1, *shape)
                weights = b.input(f"w{index}", *full, dtype="float16")
                transposed = problem.b_layout is Layout.COLUMN
                value = b.batch_matmul(value, weights, transpose_b=transposed)
                if layer.epilogue.loads:
                    shape = (problem.batch, problem.m, problem.n)
                    value = b.op("add", value, b.input(f"r{index}", *shape, dtype="float16"))
                value = b.op(self.operators[index], value)
            return value

        return build

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs by their names, in the model's order."""
        arrays = {"x": rng.uniform(-1.5, 1.5, self.chain.first.problem.a_shape)}
        for index, layer in enumerate(self.chain.layers):
            problem = layer.problem
            shape = problem.b_shape
            full = shape if problem.b_batched else (1, *shape)
            arrays[f"w{index}"] = rng.uniform(-1.5, 1.5, full) * 2 * problem.k**-0.5
            if layer.epilogue.loads:
                extents = (problem.batch, problem.m, problem.n)
                arrays[f"r{index}"] = rng.uniform(-1.5, 1.5, extents)
        return {name: array.astype(np.float16) for name, array in arrays.items()}

    def judge(self, inputs: dict[str, np.ndarray], output: np.ndarray) -> Agreement:
        """How an output compares with the oracle's."""
        layers = []
        for index, layer in enumerate(self.chain.layers):
            weights = inputs[f"w{index}"]
            residuals = [inputs[f"r{index}"]] if layer.epilogue.loads else []
            b = weights if layer.problem.b_batched else weights[0]
            layers.append(LayerInputs(b, tuple(residuals)))
        expected = enclose(self.chain, inputs["x"], layers)
        return compare(output, expected.exact, expected.bound)


def batched_chain(seed: int) -> BatchedChain:
    """The chain of a seed: two or three layers, either layout, weights shared or not."""
    rng = random.Random(seed)
    batch, m = rng.randint(2, 4), rng.randint(1, 90)
    count = rng.choice((2, 2, 3))
    extents = [rng.choice((8, 12, 16, 24, 31, 32, 48)) for _ in range(count + 1)]
    # Weights that all of the batch share make a plain product, which its neighbours make a batch.
    b_batched = [rng.random() < 0.6 for _ in range(count)]
    b_batched[rng.randrange(count)] = True
    ops = [rng.choice(list(_OPERATORS)) for _ in range(count)]
    layers = tuple(
        Layer(
            problem=Gemm(
                batch=batch,
                m=m,
                n=extents[index + 1],
                k=extents[index],
                b_layout=rng.choice(list(Layout)),
                b_batched=b_batched[index],
            ),
            epilogue=_epilogue(op, residual=rng.random() < 0.5),
        )
        for index, op in enumerate(ops)
    )
    return BatchedChain(Workload(layers=layers), tuple(_OPERATORS[op] for op in ops))
