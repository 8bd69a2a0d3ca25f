"""Launches kernels through their C entry on whatever CUDA runtime the process has loaded.

Inputs lie in padded rows whose padding is NaN, at addresses that are aligned to no more than the
kernel asks for; outputs and workspace begin as poison. A kernel that reads or writes beside its
operands cannot give the right result by luck.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.cases.kernels import KernelCase
from boltgen.arch import device_for
from boltgen.device.vgpu import Vgpu
from boltgen.families.cutlass3.config import Cutlass3Config
from boltgen.families.source import kernel_symbol, workspace_symbol
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.measure.abi import arguments, structs
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.problem import Problem

Array = np.ndarray[Any, Any]
Args: TypeAlias = Any  # one of the structs
Status: Any = structs()["boltgen_status"]
Operand: Any = structs()["boltgen_operand"]
GemmArgs: Any = structs()["boltgen_gemm_args"]
Conv2dArgs: Any = structs()["boltgen_conv2d_args"]

# All ones: a NaN in every floating-point type, and -1 as a semaphore.
_POISON_BYTE = 0xFF
PADDING = 8  # elements between rows: a multiple of every alignment


class KernelError(Exception):
    """A kernel's entry refused its arguments."""

    def __init__(self, status: Status) -> None:
        self.code = int(status.code)
        super().__init__(status.message.decode())


class Cuda:
    """The few runtime calls that a launch needs."""

    def __init__(self, vgpu: Vgpu) -> None:
        self.vgpu = vgpu
        self._runtime = ctypes.CDLL("libcudart.so.13")
        self._live: list[ctypes.c_void_p] = []

    def become(self, arch: str) -> None:
        """Make the device one of that arch."""
        self.vgpu.set_option("device", device_for(arch))

    def recover(self) -> None:
        """Make the device usable again after a fault."""
        self.vgpu.clear_error()

    def check(self, status: int) -> None:
        """Raise RuntimeError with the device's own words if a call has failed."""
        if status:
            raise RuntimeError(self.vgpu.last_error())

    def upload(self, array: Array, skip_bytes: int = 0) -> int:
        """A device copy of `array` that begins `skip_bytes` into its allocation."""
        pointer = ctypes.c_void_p()
        contents = np.ascontiguousarray(array)
        size = contents.nbytes + skip_bytes
        self.check(self._runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
        self._live.append(pointer)
        address = int(pointer.value or 0) + skip_bytes
        source = contents.ctypes.data_as(ctypes.c_void_p)
        self._copy(ctypes.c_void_p(address), source, contents.nbytes, kind=1)
        return address

    def download(self, address: int, like: Array) -> Array:
        """Return the array at an address, in the form of `like`."""
        result = np.empty_like(like)
        target = result.ctypes.data_as(ctypes.c_void_p)
        self._copy(target, ctypes.c_void_p(address), result.nbytes, kind=2)
        return result

    def _copy(self, target: Any, source: Any, size: int, kind: int) -> None:
        self.check(self._runtime.cudaMemcpy(target, source, ctypes.c_size_t(size), kind))

    def synchronise(self) -> None:
        """Wait for all launches."""
        self.check(self._runtime.cudaDeviceSynchronize())

    def free_all(self) -> None:
        """Free every allocation."""
        for pointer in self._live:
            self.check(self._runtime.cudaFree(pointer))
        self._live.clear()


class KernelLibrary:
    """A shared library of kernels."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def copied(self, folder: Path) -> KernelLibrary:
        """The same library anew: one that remembers no device."""
        return KernelLibrary(Path(shutil.copy(self.path, folder / "copied.so")))

    def workspace_bytes(self, symbol: str, args: Args) -> int:
        """Return the workspace that a launch needs, in bytes."""
        query = self._library[workspace_symbol(symbol)]
        query.restype = ctypes.c_size_t
        return int(query(ctypes.byref(args)))

    def launch(self, symbol: str, args: Args) -> None:
        """Launch a kernel; raise KernelError if its entry refuses."""
        status = Status()
        code = self._library[symbol](ctypes.byref(args), ctypes.byref(status))
        assert code == status.code
        if code:
            raise KernelError(status)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A problem's arrays, as the oracle takes them."""

    a: Array
    b: Array
    operands: tuple[Array, ...]


def random_inputs(case: KernelCase, rng: np.random.Generator) -> Inputs:
    """Values around 1 whose sums stay well inside FP16. No divisor is near 0."""
    problem = case.problem
    scale = problem.gemm.k**-0.5

    def draw(shape: tuple[int, ...], dtype: DType, low: float = -1.5, high: float = 1.5) -> Array:
        return rng.uniform(low, high, shape).astype(dtype.numpy)

    operands = []
    for load, shape in zip(case.epilogue.loads, operand_shapes(case), strict=True):
        low = 0.5 if load.kind is LoadKind.COLUMN else -1.5
        operands.append(draw(shape, load.dtype, low=low))
    if (packed := packed_weights(problem)) is not None:
        b = packed.drawn(rng, problem.gemm.n, problem.gemm.k, 3 * scale)
    else:
        b = (draw(problem.b_shape, DType.F32) * 2 * scale).astype(problem.in_dtype.numpy)
    return Inputs(draw(problem.a_shape, problem.in_dtype), b, tuple(operands))


def operand_shapes(case: KernelCase) -> list[tuple[int, ...]]:
    return load_shapes(case.problem, case.epilogue, batched=case.batched_operands)


def load_shapes(
    problem: Problem, epilogue: ElementwiseGraph, *, batched: bool
) -> list[tuple[int, ...]]:
    """Shapes of an epilogue's operands; `batched` where each product of a batch has its own."""
    output = problem.d_shape
    ahead = output[:1] if problem.batch > 1 else ()
    span = output[len(ahead) :]
    m = int(np.prod(span[:-1]))
    plain = {LoadKind.TENSOR: span, LoadKind.ROW: span[-1:], LoadKind.COLUMN: (m,)}
    return [(*(ahead if batched else ()), *plain[load.kind]) for load in epilogue.loads]


def poison(shape: Sequence[int], dtype: Any) -> Array:
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = _POISON_BYTE
    return array


def padded(matrix: Array, padding: int = PADDING) -> Array:
    """`matrix` with NaN behind every row."""
    rows, columns = matrix.shape[-2:]
    result = poison((*matrix.shape[:-2], rows, columns + padding), matrix.dtype)
    result[..., :columns] = matrix
    return result


class Launch:
    """One launch of a case, on a device of its arch where no other is named.

    `packed` for tensors without gaps at allocations' beginnings, whose sectors can be counted.
    """

    def __init__(
        self,
        cuda: Cuda,
        library: KernelLibrary,
        case: KernelCase,
        arch: str | None = None,
        *,
        packed: bool = False,
    ) -> None:
        self._packed = packed
        self._cuda, self._library, self._case = cuda, library, case
        self._is_matrix = case.problem.is_matrix
        self._arch = arch or case.spec.arch
        self._symbol = kernel_symbol(case.spec)

    def run(self, inputs: Inputs) -> Array:
        """The output, as the oracle shapes it."""
        self._cuda.become(self._arch)
        try:
            return self._run_gemm(inputs) if self._is_matrix else self._run_conv2d(inputs)
        finally:
            self._cuda.free_all()

    def _padded(self, matrix: Array) -> Array:
        padding = max(PADDING, VECTOR_BYTES // matrix.itemsize)
        return padded(matrix, 0 if self._packed else padding)

    def _upload(self, array: Array, alignment: int) -> int:
        skip = 0 if self._packed else min(16, alignment * array.itemsize)
        return self._cuda.upload(array, skip_bytes=skip)

    def _launch(self, args: Args) -> None:
        args.swizzle, args.split_k = self._case.swizzle, self._case.split_k
        args.raster = self._case.raster
        needed = self._library.workspace_bytes(self._symbol, args)
        if needed:
            args.workspace = self._cuda.upload(poison((needed,), np.uint8))
            args.workspace_bytes = needed
        self.enqueue(args)
        self._cuda.synchronise()

    def enqueue(self, args: Args) -> None:
        """The call of the kernel's entry."""
        self._library.launch(self._symbol, args)

    def _operand(self, array: Array, kind: LoadKind, batched: bool) -> Operand:
        vector = 1 if kind is LoadKind.COLUMN else self._case.spec.traits.alignment_d
        if kind is LoadKind.TENSOR and self._case.spec.family == Cutlass3Config.family:
            vector = VECTOR_BYTES // array.itemsize  # TMA brings it
        if kind is LoadKind.TENSOR and self._is_matrix:
            array = self._padded(array)
        stride = array[0].size if batched else 0
        ld = array.shape[-1] if kind is LoadKind.TENSOR else 0
        return Operand(self._upload(array, vector), ld, stride)

    def _set_operands(self, args: Args, inputs: Inputs) -> None:
        loads = self._case.epilogue.loads
        for i, (load, array) in enumerate(zip(loads, inputs.operands, strict=True)):
            args.operands[i] = self._operand(array, load.kind, self._case.batched_operands)

    def _run_gemm(self, inputs: Inputs) -> Array:
        problem, traits = self._case.problem, self._case.spec.traits
        a, b = self._padded(inputs.a), self._padded(inputs.b)
        d = self._padded(poison(problem.d_shape, traits.out_dtype.numpy))
        args: Args = arguments("boltgen_gemm_args", problem.sizes)
        for name, array in (("a", a), ("b", b), ("d", d)):
            setattr(args, f"ld{name}", array.shape[-1])
            setattr(args, f"batch_stride_{name}", array[0].size if array.ndim == 3 else 0)
        args.a = self._upload(a, traits.alignment_a)
        args.b = self._upload(b, traits.alignment_b)
        args.d = self._upload(d, traits.alignment_d)
        self._set_operands(args, inputs)
        self._launch(args)
        result = self._cuda.download(args.d, d)
        return unpadded(result, d, problem.gemm.n)

    def _run_conv2d(self, inputs: Inputs) -> Array:
        problem, traits = self._case.problem, self._case.spec.traits
        assert isinstance(problem, Conv2d)
        d = poison(problem.d_shape, traits.out_dtype.numpy)
        args: Args = arguments("boltgen_conv2d_args", problem.sizes | {"groups": problem.groups})
        args.a = self._upload(inputs.a, traits.alignment_a)
        args.b = self._upload(inputs.b, traits.alignment_b)
        args.d = self._upload(d, traits.alignment_d)
        self._set_operands(args, inputs)
        self._launch(args)
        return self._cuda.download(args.d, d)


def unpadded(result: Array, before: Array, columns: int) -> Array:
    """The columns of D; what lies behind them must be as it was before."""
    behind, was = (array[..., columns:].view(np.uint8) for array in (result, before))
    assert np.array_equal(behind, was), "the kernel wrote into the padding behind a row of D"
    return np.ascontiguousarray(result[..., :columns])


__all__ = [
    "Args",
    "Conv2dArgs",
    "Cuda",
    "GemmArgs",
    "Inputs",
    "KernelError",
    "KernelLibrary",
    "Launch",
    "Operand",
    "Status",
    "random_inputs",
]
