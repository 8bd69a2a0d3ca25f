"""Launches attention whose heads lie side by side in rows, with NaN between them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.cases.chains import ChainCase
from benchmarks.harness.chain_launch import ChainInputs, give_workspace
from benchmarks.harness.kernel_launch import Args, Array, Cuda, KernelLibrary, Operand, poison
from boltgen.families.registry import launch
from boltgen.families.source import kernel_symbol
from boltgen.measure.abi import arguments
from boltgen.problems import reference
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of sequences, in which each of `heads` has `columns` elements.

    Before, between and behind them is NaN, as little as vectors of `alignment` leave.
    """

    heads: int
    columns: int
    alignment: int

    @property
    def offset(self) -> int:
        """Elements before the first head."""
        return 3 * self.alignment

    @property
    def stride(self) -> int:
        """Elements from a head to the next one."""
        return self.columns + 2 * self.alignment

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.offset + self.heads * self.stride + self.alignment

    def packed(self, matrices: Array) -> Array:
        """The sequences of a batch of matrices."""
        batch, rows, _ = matrices.shape
        made = poison((batch // self.heads, rows, self.row), matrices.dtype)
        for index, matrix in enumerate(matrices):
            made[index // self.heads, :, self._columns(index)] = matrix
        return made

    def unpacked(self, sequences: Array) -> Array:
        """The matrices of `packed`."""
        batch = sequences.shape[0] * self.heads
        matrices = [sequences[i // self.heads, :, self._columns(i)] for i in range(batch)]
        return np.stack(matrices)

    def _columns(self, index: int) -> slice:
        first = self.offset + index % self.heads * self.stride
        return slice(first, first + self.columns)


def judge_heads(
    cuda: Cuda,
    library: KernelLibrary,
    case: ChainCase,
    inputs: ChainInputs,
    heads: int,
    *,
    group: int = 1,
) -> reference.Agreement:
    """How the result compares with the oracle's; nothing may be written beside the heads.

    An operand of the first layer with two dimensions before its own, (sequences, heads), of which
    either may be 1, is shared as that says; K and V have a matrix for each `group` of heads.
    """
    cuda.become(case.spec.arch)
    try:
        actual = _run(cuda, library, case, inputs, heads=heads, group=group)
    finally:
        cuda.free_all()
    expected = enclose(case.chain, inputs.a, _of_each_product(case, inputs, heads, group))
    return reference.compare(actual, expected.exact, expected.bound)


def _of_each_product(
    case: ChainCase, inputs: ChainInputs, heads: int, group: int
) -> tuple[LayerInputs, ...]:
    """The layers' inputs with a slice for each product."""
    batch = case.chain.batch

    def whole(array: Array) -> Array:
        if array.ndim < 3:
            return array
        own = np.broadcast_to(array, (batch // heads, heads, *array.shape[2:]))
        return own.reshape(batch, *array.shape[2:])

    return tuple(
        replace(
            made,
            b=np.repeat(made.b, group, axis=0),
            operands=tuple(map(whole, made.operands)),
        )
        for made in inputs.layers
    )


def _run(
    cuda: Cuda,
    library: KernelLibrary,
    case: ChainCase,
    inputs: ChainInputs,
    *,
    heads: int,
    group: int,
) -> Array:
    traits = case.spec.traits
    asked = launch(case.chain, case.spec.config)
    args: Args = arguments(asked.struct, {**asked.sizes, "heads": heads})

    def upload(matrices: Array, alignment: int, group: int = 1) -> tuple[int, Rows, Array]:
        rows = Rows(heads // group, matrices.shape[-1], alignment)
        packed = rows.packed(matrices)
        address = cuda.upload(packed, skip_bytes=min(16, alignment * packed.itemsize))
        return address + rows.offset * packed.itemsize, rows, packed

    args.a, a, sequences = upload(inputs.a, traits.alignment_a)
    args.lda, args.head_stride_a, args.batch_stride_a = a.row, a.stride, sequences[0].size
    for layer, own, made in zip(args.layers, traits.layers, inputs.layers, strict=True):
        layer.b, b, sequences = upload(made.b, own.alignment_b, group)
        layer.group_b = group
        layer.ldb, layer.head_stride_b, layer.batch_stride_b = b.row, b.stride, sequences[0].size
        for index, array in enumerate(made.operands):
            ld, batch_stride = array.shape[-1] if array.ndim > 1 else 0, 0
            if array.ndim > 2:
                slice_elements = array[0, 0].size
                by_head = slice_elements if array.shape[1] > 1 else 0
                layer.operand_head_strides[index] = by_head
                batch_stride = array[0].size if array.shape[0] > 1 else 0
            layer.operands[index] = Operand(cuda.upload(array), ld, batch_stride)
    empty = poison(case.chain.last.problem.d_shape, traits.out_dtype.value)
    args.d, d, before = upload(empty, traits.layers[-1].alignment_d)
    args.ldd, args.head_stride_d, args.batch_stride_d = d.row, d.stride, before[0].size
    give_workspace(cuda, library, case, args)
    library.launch(kernel_symbol(case.spec), args)
    cuda.synchronise()
    found = cuda.download(args.d - d.offset * before.itemsize, before)
    result = d.unpacked(found)
    assert np.array_equal(d.packed(result).view(np.uint8), found.view(np.uint8))
    return result
