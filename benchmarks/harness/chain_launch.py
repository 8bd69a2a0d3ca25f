"""Launches back-to-back kernels, as `launch` does single ones: padded, poisoned, least aligned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.cases.chains import ChainCase
from benchmarks.harness.kernel_launch import (
    PADDING,
    Args,
    Array,
    Cuda,
    KernelLibrary,
    Operand,
    load_shapes,
    padded,
    poison,
    unpadded,
)
from boltgen.families.registry import launch
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import LoadKind
from boltgen.measure.abi import arguments
from boltgen.problems import reference
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose


@dataclass(frozen=True, slots=True)
class ChainInputs:
    """A chain's arrays, as the oracle takes them."""

    a: Array
    layers: tuple[LayerInputs, ...]


def random_chain_inputs(case: ChainCase, rng: np.random.Generator) -> ChainInputs:
    """Values around 1 whose sums stay well inside FP16. No divisor is near 0."""
    first = case.chain.first.problem

    def draw(shape: tuple[int, ...], dtype: DType, low: float = -1.5) -> Array:
        return rng.uniform(low, 1.5, shape).astype(dtype.numpy)

    layers = []
    for layer in case.chain.layers:
        problem = layer.problem
        b = (draw(problem.b_shape, DType.F32) * 2 * problem.gemm.k**-0.5).astype(
            problem.in_dtype.numpy
        )
        shapes = load_shapes(problem, layer.epilogue, batched=case.batched_operands)
        operands = tuple(
            draw(shape, load.dtype, low=0.5 if load.kind is LoadKind.COLUMN else -1.5)
            for load, shape in zip(layer.epilogue.loads, shapes, strict=True)
        )
        layers.append(LayerInputs(b, operands))
    return ChainInputs(draw(first.a_shape, first.in_dtype), tuple(layers))


class ChainLaunch:
    """One launch of a case, on a device of its arch; `packed` as for `Launch`."""

    def __init__(
        self, cuda: Cuda, library: KernelLibrary, case: ChainCase, *, packed: bool = False
    ) -> None:
        self._packed = packed
        self._cuda, self._library, self._case = cuda, library, case
        # A convolution's tensors are packed, those of the layers after it too.
        self._is_matrix = case.chain.first.problem.is_matrix

    def run(self, inputs: ChainInputs) -> Array:
        """The output, as the oracle shapes it."""
        self._cuda.become(self._case.spec.arch)
        try:
            return self._run(inputs)
        finally:
            self._cuda.free_all()

    def _run(self, inputs: ChainInputs) -> Array:
        chain, traits = self._case.chain, self._case.spec.traits
        asked = launch(chain, self._case.spec.config)
        args: Args = arguments(asked.struct, asked.sizes)
        last = chain.last.problem
        a, d = self._padded(inputs.a), self._padded(poison(last.d_shape, traits.out_dtype.value))
        args.a = self._upload(a, traits.alignment_a)
        args.d = self._upload(d, traits.layers[-1].alignment_d)
        if self._is_matrix:
            args.lda, args.ldd = a.shape[-1], d.shape[-1]
            args.batch_stride_a = a[0].size if a.ndim == 3 else 0
            args.batch_stride_d = d[0].size if d.ndim == 3 else 0
        for index in range(len(chain.layers)):
            self._set_layer(args.layers[index], index, inputs.layers[index])
        symbol = kernel_symbol(self._case.spec)
        give_workspace(self._cuda, self._library, self._case, args)
        self._library.launch(symbol, args)
        self._cuda.synchronise()
        return unpadded(self._cuda.download(args.d, d), d, last.gemm.n)

    def _set_layer(self, args: Args, index: int, inputs: LayerInputs) -> None:
        case, layer = self._case, self._case.chain.layers[index]
        traits = case.spec.traits.layers[index]
        b = self._padded(inputs.b)
        if self._is_matrix:
            args.ldb, args.batch_stride_b = b.shape[-1], b[0].size if b.ndim == 3 else 0
        args.b = self._upload(b, traits.alignment_b)
        batched = case.batched_operands and layer.problem.batch > 1
        for i, (load, array) in enumerate(zip(layer.epilogue.loads, inputs.operands, strict=True)):
            is_tensor = load.kind is LoadKind.TENSOR
            rows = self._padded(array) if is_tensor else array
            vector = 1 if load.kind is LoadKind.COLUMN else traits.alignment_d
            args.operands[i] = Operand(
                self._upload(rows, vector),
                rows.shape[-1] if is_tensor else 0,
                rows[0].size if batched else 0,
            )

    def _padded(self, matrix: Array) -> Array:
        return padded(matrix, 0 if self._packed else PADDING) if self._is_matrix else matrix

    def _upload(self, array: Array, alignment: int) -> int:
        skip = 0 if self._packed else min(16, alignment * array.itemsize)
        return self._cuda.upload(array, skip_bytes=skip)


def give_workspace(cuda: Cuda, library: KernelLibrary, case: ChainCase, args: Args) -> None:
    """As much poisoned memory as the kernel asks for, which is what its family says."""
    needed = library.workspace_bytes(kernel_symbol(case.spec), args)
    assert needed == launch(case.chain, case.spec.config).workspace_bytes
    if needed:
        args.workspace = cuda.upload(poison((needed,), np.uint8))
        args.workspace_bytes = needed


def judge_chain(
    cuda: Cuda,
    library: KernelLibrary,
    case: ChainCase,
    inputs: ChainInputs,
    *,
    packed: bool = False,
) -> reference.Agreement:
    """How the kernel's output compares with the oracle's."""
    actual = ChainLaunch(cuda, library, case, packed=packed).run(inputs)
    expected = enclose(case.chain, inputs.a, inputs.layers)
    return reference.compare(actual, expected.exact, expected.bound)
