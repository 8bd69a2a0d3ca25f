"""One launch of a kernel on the virtual GPU, judged by the oracle. Used inside a worker only.

Every tensor is an allocation of its own, to the byte, so that the virtual GPU reports what is read
or written beside it. Matrices have NaN between their rows; outputs and workspaces begin as NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.check.protocol import Launch, MoveLaunch
from boltgen.codegen.kernel import workspace_symbol
from boltgen.ir.chain import ChainLayer, Conv2dChain, GemmChain, layers_of
from boltgen.ir.chain_reference import LayerInputs, enclose_chain
from boltgen.ir.epilogue import Load, LoadKind
from boltgen.ir.move import ImageLayout, reference_move
from boltgen.ir.problem import BatchedGemm, Conv2d, Problem
from boltgen.ir.reference import Enclosure, compare, enclosure, input_shapes, output_shape
from boltgen.measure.abi import MoveArgs, Operand, Status, packed_arguments
from boltgen.measure.chain_abi import AnyArgs, packed_chain_arguments
from boltgen.measure.operands import input_tensors

Array = NDArray[Any]

# Elements between the rows of a matrix: a multiple of every vector.
_GAP = 8
_POISON = 0xFF  # NaN in every element type, and a semaphore that opens for nobody
_TO_DEVICE, _TO_HOST = 1, 2
_SEED = 0


class LaunchError(Exception):
    """The kernel's entry refused the launch, the device reported a fault, or memory was spoilt."""


class Device:
    """The CUDA runtime of this process; what is allocated is freed together.

    `said` gives the device's own words for its last fault.
    """

    def __init__(self, runtime: ctypes.CDLL, said: Callable[[], str]) -> None:
        self._runtime, self._said = runtime, said
        self._live: list[int] = []

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the runtime.

        Raises:
            LaunchError: it fails.
        """
        if number := self._runtime[name](*arguments):
            raise LaunchError(self._said() or f"{name} failed with error {number}")

    def allocate(self, size_bytes: int) -> int:
        """The address of memory that holds NaN, and that nothing has written."""
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        self._live.append(int(pointer.value or 0))
        return self._live[-1]

    def upload(self, array: Array) -> int:
        """The address of a copy of `array`, which ends where the allocation does."""
        address = self.allocate(array.nbytes)
        self._copy(address, array.ctypes.data, array.nbytes, _TO_DEVICE)
        return address

    def download(self, address: int, like: Array) -> Array:
        """What lies there, as an array like `like`."""
        result = np.empty_like(like)
        self._copy(result.ctypes.data, address, result.nbytes, _TO_HOST)
        return result

    def _copy(self, to: int, source: int, size: int, kind: int) -> None:
        pointers = (ctypes.c_void_p(to), ctypes.c_void_p(source))
        self.call("cudaMemcpy", *pointers, ctypes.c_size_t(size), kind)

    def synchronise(self) -> None:
        """Wait for all launches.

        Raises:
            LaunchError: one of them failed.
        """
        self.call("cudaDeviceSynchronize")

    def free_all(self) -> None:
        """Free every allocation."""
        for address in self._live:
            self._runtime.cudaFree(ctypes.c_void_p(address))
        self._live.clear()


def run_launch(device: Device, library: ctypes.CDLL, symbol: str, launch: Launch) -> float:
    """The largest error of an element of the output, relative to its bound.

    Raises:
        LaunchError: the kernel refuses, faults, writes where it must not, or its output is wrong.
    """
    tensors = _Tensors(device, launch, np.random.default_rng(_SEED))
    args = tensors.arguments
    args.workspace_bytes = size = _workspace_bytes(library, symbol, args)
    if size:
        args.workspace = device.allocate(size)
    _enter(library, symbol, args)
    device.synchronise()
    output = tensors.output()
    tensors.require_unchanged()
    expected = tensors.enclosure
    agreement = compare(output, expected.exact, expected.bound)
    if not agreement.within:
        raise LaunchError(f"the output is wrong, {agreement}")
    return agreement.ratio


def run_move(device: Device, library: ctypes.CDLL, symbol: str, launch: MoveLaunch) -> float:
    """0: a layout transform is exact.

    Raises:
        LaunchError: it refuses, faults, writes where it must not, or its output is not exact.
    """
    move, rng = launch.move, np.random.default_rng(_SEED)
    n, h, w, c = launch.images, launch.height, launch.width, launch.source_channels
    shape = (n, c, h, w) if move.source.layout is ImageLayout.NCHW else (n, h, w, c)
    source = rng.uniform(-4.0, 4.0, shape).astype(move.source.dtype.value)
    expected = reference_move(move, source, launch.target_channels)
    target = _poison(expected.shape, expected.dtype)
    args = MoveArgs(n=n, pixels=h * w, source_c=c, target_c=launch.target_channels)
    args.source, args.target = device.upload(source), device.upload(target)
    _enter(library, symbol, args)
    device.synchronise()
    moved = device.download(args.target, target)
    if not np.array_equal(_bits(device.download(args.source, source)), _bits(source)):
        raise LaunchError("the kernel wrote into its source")
    wrong = np.flatnonzero(_bits(moved).reshape(-1) != _bits(expected).reshape(-1))
    if wrong.size:
        raise LaunchError(
            f"{wrong.size} bytes of the output are wrong, the first of element "
            f"{wrong[0] // expected.itemsize}"
        )
    return 0.0


def _workspace_bytes(library: ctypes.CDLL, symbol: str, args: AnyArgs) -> int:
    query = library[workspace_symbol(symbol)]
    query.restype = ctypes.c_size_t
    return int(query(ctypes.byref(args)))


def _enter(library: ctypes.CDLL, symbol: str, args: AnyArgs | MoveArgs) -> None:
    status = Status()
    if library[symbol](ctypes.byref(args), ctypes.byref(status)):
        raise LaunchError(f"the kernel refuses the launch: {status.message.decode()}")


@dataclass(frozen=True, slots=True)
class _Placed:
    """An array in device memory, with gaps between its rows; `stride` is of a batch's slices."""

    name: str
    address: int
    ld: int
    stride: int
    contents: Array
    gap: int


class _Tensors:
    """A launch's tensors on the device, its arguments, and what is right."""

    def __init__(self, device: Device, launch: Launch, rng: np.random.Generator) -> None:
        layers = layers_of(launch.problem, launch.epilogue)
        self._device = device
        # A convolution's tensors have no strides in its arguments: they are packed.
        self._gap = 0 if isinstance(layers[0].problem, Conv2d) else _GAP
        self._inputs: list[_Placed] = []
        drawn = [_draw(layer, launch.is_sliced, rng) for layer in layers]
        a, inputs = drawn[0][0], [each for _, each in drawn]
        first = self._place("A", a)
        placed = [
            (self._place(f"B of layer {index}", each.b), self._operands(index, layer, each))
            for index, (layer, each) in enumerate(zip(layers, inputs, strict=True))
        ]
        last = layers[-1].problem
        self._shape = output_shape(last)
        self._d = self._put("D", _poison(self._shape, last.out_dtype.value))
        self.arguments = self._arguments(launch, first, placed)
        self.enclosure = _enclosure(launch, a, inputs)

    def _put(self, name: str, array: Array, gap: int | None = None) -> _Placed:
        gap = self._gap if gap is None else gap
        contents = _spread(array, gap)
        ld = array.shape[-1] + gap
        rows = array.shape[-2] if array.ndim > 1 else 1
        stride = rows * ld if array.ndim == 3 else 0
        return _Placed(name, self._device.upload(contents), ld, stride, contents, gap)

    def _place(self, name: str, array: Array, gap: int | None = None) -> _Placed:
        self._inputs.append(self._put(name, array, gap))
        return self._inputs[-1]

    def _operands(self, index: int, layer: ChainLayer, inputs: LayerInputs) -> list[Operand]:
        pairs = zip(layer.epilogue.loads, inputs.operands, strict=True)
        return [
            self._operand(f"operand {i} of layer {index}", layer.problem, load, array)
            for i, (load, array) in enumerate(pairs)
        ]

    def _operand(self, name: str, problem: Problem, load: Load, array: Array) -> Operand:
        output = output_shape(problem)
        batch = len(output[:1]) if isinstance(problem, BatchedGemm) else 0
        if load.kind is LoadKind.TENSOR:
            placed = self._place(name, array)
            sliced = batch and array.ndim == len(output)
            return Operand(placed.address, placed.ld, placed.stride if sliced else 0)
        placed = self._place(name, array, 0)
        return Operand(placed.address, 0, array.shape[-1] if array.ndim > 1 else 0)

    def _arguments(
        self, launch: Launch, a: _Placed, layers: Sequence[tuple[_Placed, Sequence[Operand]]]
    ) -> AnyArgs:
        d = self._d
        if isinstance(launch.problem, (GemmChain, Conv2dChain)):
            addresses = [(b.address, operands) for b, operands in layers]
            args: Any = packed_chain_arguments(launch.problem, a.address, d.address, addresses)
            if self._gap:
                for into, (b, _) in zip(args.layers, layers, strict=False):
                    into.ldb, into.batch_stride_b = b.ld, b.stride
        else:
            ((b, operands),) = layers
            args = packed_arguments(
                launch.problem,
                a.address,
                b.address,
                d.address,
                operands,
                split_k=launch.split_k,
                swizzle=launch.swizzle,
            )
            if self._gap:
                args.ldb, args.batch_stride_b = b.ld, b.stride
        if self._gap:
            args.lda, args.batch_stride_a = a.ld, a.stride
            args.ldd, args.batch_stride_d = d.ld, d.stride
        return args  # type: ignore[no-any-return]

    def output(self) -> Array:
        """The output, without the gaps.

        Raises:
            LaunchError: the kernel wrote into them.
        """
        found = self._device.download(self._d.address, self._d.contents)
        columns = self._shape[-1]
        whole = np.concatenate([found, _poison((self._d.gap,), found.dtype)])
        rows = whole.reshape(-1, columns + self._d.gap)
        if (np.ascontiguousarray(rows[:, columns:]).view(np.uint8) != _POISON).any():
            raise LaunchError("the kernel wrote beyond a row of its output")
        return np.ascontiguousarray(rows[:, :columns]).reshape(self._shape)

    def require_unchanged(self) -> None:
        """Check that the kernel has left its operands alone.

        Raises:
            LaunchError: it has not.
        """
        for placed in self._inputs:
            found = self._device.download(placed.address, placed.contents)
            if not np.array_equal(_bits(found), _bits(placed.contents)):
                raise LaunchError(f"the kernel wrote into {placed.name}")


def _enclosure(launch: Launch, a: Array, inputs: Sequence[LayerInputs]) -> Enclosure:
    """The exact output, and between which values each element may lie."""
    if isinstance(launch.problem, (GemmChain, Conv2dChain)):
        return enclose_chain(launch.problem, a, inputs)
    (only,) = inputs
    return enclosure(launch.problem, launch.epilogue, a, only.b, only.operands)


def _draw(
    layer: ChainLayer, is_sliced: bool, rng: np.random.Generator
) -> tuple[Array, LayerInputs]:
    """A, B and the epilogue's operands of a layer, in the ranges that measuring draws them from."""
    problem, loads = layer.problem, layer.epilogue.loads
    output = output_shape(problem)
    batch = output[:1] if isinstance(problem, BatchedGemm) else ()
    span = output[len(batch) :]
    ahead = batch if is_sliced else ()
    shapes = {
        LoadKind.TENSOR: (*ahead, *span),
        LoadKind.ROW: (*ahead, span[-1]),
        LoadKind.COLUMN: (*ahead, prod(span[:-1])),
    }
    wanted = (*input_shapes(problem), *(shapes[load.kind] for load in loads))
    a, b, *operands = (
        rng.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype.value)
        for tensor, shape in zip(input_tensors(problem, layer.epilogue), wanted, strict=True)
    )
    return a, LayerInputs(b, tuple(operands))


def _spread(array: Array, gap: int) -> Array:
    """The elements of `array` with `gap` poisoned ones between rows, and none behind the last."""
    columns = array.shape[-1]
    rows = _poison((array.size // columns, columns + gap), array.dtype)
    rows[:, :columns] = array.reshape(-1, columns)
    return np.ascontiguousarray(rows.reshape(-1)[: rows.size - gap])


def _poison(shape: Sequence[int], dtype: Any) -> Array:
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = _POISON
    return array


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)
