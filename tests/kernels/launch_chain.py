"""Launches back-to-back kernels, as `launch` does single ones: padded, poisoned, least aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boltgen.codegen.chain_sizes import chain_layer_sizes, chain_sizes
from boltgen.codegen.kernel import kernel_symbol
from boltgen.ir import reference
from boltgen.ir.chain import Conv2dChain, GemmChain, implicit_gemm
from boltgen.ir.chain_reference import LayerInputs, enclose_chain
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.ir.problem import BatchedGemm
from boltgen.ir.reference import input_shapes, output_shape
from boltgen.measure.abi import Operand
from boltgen.measure.chain_abi import ChainLayerArgs, Conv2dChainArgs, GemmChainArgs
from tests.chain_cases import ChainCase
from tests.kernels.launch import PADDING, Array, Cuda, KernelLibrary, padded, poison


@dataclass(frozen=True, slots=True)
class ChainInputs:
    """A chain's arrays, as the oracle takes them."""

    a: Array
    layers: tuple[LayerInputs, ...]


def random_chain_inputs(case: ChainCase, rng: np.random.Generator) -> ChainInputs:
    """Values around 1 whose sums stay well inside FP16. No divisor is near 0."""

    def draw(shape: tuple[int, ...], dtype: DType, low: float = -1.5) -> Array:
        return rng.uniform(low, 1.5, shape).astype(dtype.value)

    layers = []
    for layer in case.chain.layers:
        b_shape = input_shapes(layer.problem)[1]
        b = (draw(b_shape, DType.F32) * 2 * implicit_gemm(layer).k ** -0.5).astype(np.float16)
        operands = tuple(
            draw(shape, load.dtype, low=0.5 if load.kind is LoadKind.COLUMN else -1.5)
            for load, shape in zip(
                layer.epilogue.loads,
                _operand_shapes(output_shape(layer.problem), layer.epilogue.loads, case),
                strict=True,
            )
        )
        layers.append(LayerInputs(b, operands))
    a_shape = input_shapes(case.chain.layers[0].problem)[0]
    return ChainInputs(draw(a_shape, DType.F16), tuple(layers))


def _operand_shapes(
    output: tuple[int, ...], loads: Sequence[Load], case: ChainCase
) -> list[tuple[int, ...]]:
    batched = isinstance(case.chain.layers[0].problem, BatchedGemm)
    span = output[1:] if batched else output
    ahead = output[:1] if batched and case.batched_operands else ()
    m = int(np.prod(span[:-1]))
    plain = {LoadKind.TENSOR: span, LoadKind.ROW: span[-1:], LoadKind.COLUMN: (m,)}
    return [(*ahead, *plain[load.kind]) for load in loads]


class ChainLaunch:
    """One launch of a case, on a device of its arch; `packed` as for `Launch`."""

    def __init__(
        self, cuda: Cuda, library: KernelLibrary, case: ChainCase, *, packed: bool = False
    ) -> None:
        self._packed = packed
        self._cuda, self._library, self._case = cuda, library, case

    def run(self, inputs: ChainInputs) -> Array:
        """The output, as the oracle shapes it."""
        self._cuda.become(self._case.spec.arch)
        try:
            return self._run(inputs)
        finally:
            self._cuda.free_all()

    def _run(self, inputs: ChainInputs) -> Array:
        case, last = self._case, self._case.chain.layers[-1].problem
        is_conv = isinstance(case.chain, Conv2dChain)
        d = poison(output_shape(last), case.spec.out_dtype.value)
        d = d if is_conv else self._padded(d)
        args = self._conv2d(inputs.a) if is_conv else self._gemm(inputs)
        args.d = self._upload(d, case.spec.layers[-1].alignment_d)
        if isinstance(args, GemmChainArgs):
            args.ldd = d.shape[-1]
            args.batch_stride_d = d[0].size if args.batch > 1 else 0
        for index in range(len(case.chain.layers)):
            self._set_layer(args.layers[index], index, inputs.layers[index])
        symbol = kernel_symbol(case.spec)
        assert self._library.workspace_bytes(symbol, args) == 0
        self._library.launch(symbol, args)
        self._cuda.synchronise()
        result = self._cuda.download(args.d, d)
        n = implicit_gemm(case.chain.layers[-1]).n
        assert np.array_equal(result[..., n:].view(np.uint8), d[..., n:].view(np.uint8)), (
            "the kernel wrote into the padding behind a row of D"
        )
        return np.ascontiguousarray(result[..., :n])

    def _gemm(self, inputs: ChainInputs) -> GemmChainArgs:
        a = self._padded(inputs.a)
        args = GemmChainArgs(**chain_sizes(self._case.chain))
        args.a = self._upload(a, self._case.spec.alignment_a)
        args.lda = a.shape[-1]
        args.batch_stride_a = a[0].size if a.ndim == 3 else 0
        return args

    def _conv2d(self, a: Array) -> Conv2dChainArgs:
        args = Conv2dChainArgs(**chain_sizes(self._case.chain))
        args.a = self._upload(a, self._case.spec.alignment_a)
        return args

    def _set_layer(self, args: ChainLayerArgs, index: int, inputs: LayerInputs) -> None:
        case, layer = self._case, self._case.chain.layers[index]
        spec = case.spec.layers[index]
        for name, value in chain_layer_sizes(layer).items():
            setattr(args, name, value)
        if isinstance(case.chain, GemmChain):
            b = self._padded(inputs.b)
            args.ldb, args.batch_stride_b = b.shape[-1], b[0].size if b.ndim == 3 else 0
        else:
            b = inputs.b
        args.b = self._upload(b, spec.alignment_b)
        batched = case.batched_operands and isinstance(layer.problem, BatchedGemm)
        for i, (load, array) in enumerate(zip(layer.epilogue.loads, inputs.operands, strict=True)):
            is_tensor = load.kind is LoadKind.TENSOR
            rows = self._padded(array) if is_tensor and isinstance(case.chain, GemmChain) else array
            vector = 1 if load.kind is LoadKind.COLUMN else spec.alignment_d
            args.operands[i] = Operand(
                self._upload(rows, vector),
                rows.shape[-1] if is_tensor else 0,
                rows[0].size if batched else 0,
            )

    def _padded(self, matrix: Array) -> Array:
        return padded(matrix, 0 if self._packed else PADDING)

    def _upload(self, array: Array, alignment: int) -> int:
        skip = 0 if self._packed else min(16, alignment * array.itemsize)
        return self._cuda.upload(array, skip_bytes=skip)


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
    expected = enclose_chain(case.chain, inputs.a, inputs.layers)
    return reference.compare(actual, expected.exact, expected.bound)
