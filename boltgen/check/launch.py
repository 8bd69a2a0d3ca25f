"""Run one launch of a kernel on the virtual GPU and compare it with the oracle, inside a worker.

Every tensor is an allocation of its exact size, so that the virtual GPU reports accesses beside it.
Matrices have NaN between their rows; outputs and workspaces initially hold NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.check.protocol import Job
from boltgen.errors import BoltgenError
from boltgen.families.source import workspace_symbol
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.elementwise import Load, LoadKind, Store
from boltgen.measure.abi import arguments, structs
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.operands import draw
from boltgen.problems.oracle import enclose_results
from boltgen.problems.problem import Problem, further_inputs
from boltgen.problems.reference import compare
from boltgen.problems.results import store_batch_stride, store_ld, store_shape
from boltgen.problems.workload import Workload

Array = NDArray[Any]

# Elements between the rows of a matrix: a multiple of every vector's length.
_GAP = 16
_POISON = 0xFF  # NaN in every floating-point type, and a semaphore that never opens
_TO_DEVICE, _TO_HOST = 1, 2
_SEED = 0


class LaunchError(Exception):
    """The kernel refused the launch, faulted or wrote where it must not, or a result is wrong."""


class Device:
    """The CUDA runtime of this process; `free_all` frees all its allocations.

    `said` returns the device's description of its last fault.
    """

    def __init__(self, runtime: ctypes.CDLL, said: Callable[[], str]) -> None:
        self._runtime, self._said = runtime, said
        self._live: list[int] = []

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the runtime.

        Raises:
            LaunchError: the call fails.
        """
        if number := self._runtime[name](*arguments):
            raise LaunchError(self._said() or f"{name} failed with error {number}")

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new memory that holds NaN and counts as unwritten."""
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        self._live.append(int(pointer.value or 0))
        return self._live[-1]

    def upload(self, array: Array) -> int:
        """Return the address of a copy of `array` that ends where its allocation ends."""
        address = self.allocate(array.nbytes)
        self._copy(address, array.ctypes.data, array.nbytes, _TO_DEVICE)
        return address

    def download(self, address: int, like: Array) -> Array:
        """Return the array at an address, with the shape and dtype of `like`."""
        result = np.empty_like(like)
        self._copy(result.ctypes.data, address, result.nbytes, _TO_HOST)
        return result

    def _copy(self, to: int, source: int, size: int, kind: int) -> None:
        pointers = (ctypes.c_void_p(to), ctypes.c_void_p(source))
        self.call("cudaMemcpy", *pointers, ctypes.c_size_t(size), kind)

    def synchronise(self) -> None:
        """Wait for all launches.

        Raises:
            LaunchError: a launch failed.
        """
        self.call("cudaDeviceSynchronize")

    def free_all(self) -> None:
        """Free every allocation."""
        for address in self._live:
            self._runtime.cudaFree(ctypes.c_void_p(address))
        self._live.clear()


def run_job(device: Device, library: ctypes.CDLL, job: Job) -> float:
    """Run a launch; return the largest error of an element as a fraction of its bound.

    Raises:
        LaunchError: the kernel refuses the launch, faults or writes where it must not, or a result
            is wrong.
    """
    tensors = _Tensors(device, job, np.random.default_rng(_SEED))
    values = tensors.values
    if size := _workspace_bytes(library, job, values):
        values |= {"workspace": device.allocate(size), "workspace_bytes": size}
    _enter(library, job, values)
    device.synchronise()
    results = tensors.results()
    tensors.require_unchanged()
    return _judge(job.workload, results, tensors.a, tensors.layers)


def _workspace_bytes(library: ctypes.CDLL, job: Job, values: Mapping[str, int]) -> int:
    """Return the workspace that the kernel asks for, in bytes.

    Raises:
        LaunchError: it is more than the kernel's family says, which the model reserves.
    """
    size = 0
    if "workspace" in _fields(job):
        query = library[workspace_symbol(job.symbol)]
        query.restype = ctypes.c_size_t
        size = int(query(ctypes.byref(arguments(job.launch.struct, values))))
    if size > job.launch.workspace_bytes:
        raise LaunchError(
            f"the kernel needs a workspace of {size} bytes; "
            f"{job.launch.workspace_bytes} are planned for it"
        )
    return size


def _enter(library: ctypes.CDLL, job: Job, values: Mapping[str, int]) -> None:
    status = structs()["boltgen_status"]()
    args = arguments(job.launch.struct, values)
    if library[job.symbol](ctypes.byref(args), ctypes.byref(status)):
        raise LaunchError(f"the kernel refuses the launch: {status.message.decode()}")


def _fields(job: Job) -> frozenset[str]:
    """Return the names in the struct of a launch."""
    if job.launch.struct not in structs():
        raise BoltgenError(f"abi.h has no struct {job.launch.struct!r}")
    return frozenset(name for name, *_ in structs()[job.launch.struct]._fields_)


def _judge(
    workload: Workload, results: Mapping[str, Array], a: Array, layers: Sequence[LayerInputs]
) -> float:
    if not workload.first.problem.is_exact:
        worst = 0.0
        expected = enclose_results(workload, a, layers)
        for (name, found), right in zip(results.items(), expected, strict=True):
            agreement = compare(found, right.exact, right.bound)
            if not agreement.within:
                raise LaunchError(f"{name} is wrong, {agreement}")
            worst = max(worst, agreement.ratio)
        return worst
    # A kernel that only moves or converts numbers is exact.
    problem, (output,) = workload.single.problem, results.values()
    exact = problem.product(a, layers[0].b).astype(output.dtype)
    wrong = np.flatnonzero(_bits(output).reshape(-1) != _bits(exact).reshape(-1))
    if wrong.size:
        raise LaunchError(
            f"the output is wrong: {wrong.size} wrong bytes, the first in element "
            f"{wrong[0] // exact.itemsize}"
        )
    return 0.0


@dataclass(frozen=True, slots=True)
class _Placed:
    """An array in device memory with gaps between its rows, and its stride per slice of a batch."""

    name: str
    address: int
    ld: int
    stride: int
    contents: Array
    gap: int
    shape: tuple[int, ...]


class _Tensors:
    """A launch's tensors on the device, and its arguments by the fields of the argument struct."""

    def __init__(self, device: Device, job: Job, rng: np.random.Generator) -> None:
        workload, launch = job.workload, job.launch
        self._device = device
        # Only matrices have row strides among the arguments; other tensors are dense.
        self._gap = _GAP if workload.first.problem.is_matrix else 0
        self._inputs: list[_Placed] = []
        drawn = [draw(layer, rng, is_sliced=job.is_sliced) for layer in workload.layers]
        self.a, self.layers = drawn[0][0], [inputs for _, inputs in drawn]
        last = workload.last.problem
        self._results = [self._put("the output", _poison(last.d_shape, last.out_dtype.numpy))]
        ends = ("a", "d") if "a" in _fields(job) else ("source", "target")
        self.values: dict[str, int] = dict(launch.sizes)
        self._pass(ends[0], self._place("A", self.a), "")
        self._pass(ends[1], self._results[0], "", "d")
        for index, (layer, inputs) in enumerate(zip(workload.layers, self.layers, strict=True)):
            where = launch.of_layer(index)
            if inputs.b.size:
                self._pass("b", self._place(f"B of layer {index}", inputs.b), where)
            if inputs.ends.size:
                self.values[f"{where}ends"] = self._place(
                    "the groups' ends", inputs.ends, 0
                ).address
            if inputs.rows.size:
                self.values[f"{where}taken"] = self._place("the rows of A", inputs.rows, 0).address
            for each, array in zip(further_inputs(layer.problem), inputs.further, strict=True):
                self.values[where + each.field] = self._place(each.field, array, 0).address
            pairs = zip(layer.loads, (*inputs.prologue, *inputs.operands), strict=True)
            for number, (load, array) in enumerate(pairs):
                name = f"operand {number} of layer {index}"
                operand = self._operand(name, layer.problem, load, array)
                self._pass_operand(f"{where}operands[{number}]", operand)
            behind = len(layer.loads)
            for number, (store, dtype) in enumerate(layer.further):
                name, shape = f"result {number + 1}", store_shape(layer.problem, store)
                gap = 0 if store.reduction else None
                result = self._put(name, _poison(shape, dtype.numpy), gap)
                self._results.append(result)
                fields = _whole(result)
                if store.reduction:
                    fields |= _of_reduction(layer.problem, store)
                self._pass_operand(f"{where}operands[{behind + number}]", fields)

    def _pass(self, field: str, placed: _Placed, where: str, letter: str = "") -> None:
        """Set the address of a tensor, and its strides if the launch has such fields."""
        letter = letter or field
        self.values[f"{where}{field}"] = placed.address
        strides = {f"{where}ld{letter}": placed.ld, f"{where}batch_stride_{letter}": placed.stride}
        if self._gap:
            self.values |= {name: each for name, each in strides.items() if name in self.values}

    def _pass_operand(self, where: str, operand: Mapping[str, int]) -> None:
        self.values |= {f"{where}.{field}": value for field, value in operand.items()}

    def _put(self, name: str, array: Array, gap: int | None = None) -> _Placed:
        if gap is None:
            gap = max(self._gap, VECTOR_BYTES // array.itemsize) if self._gap else 0
        contents = _spread(array, gap)
        ld = array.shape[-1] + gap
        rows = array.shape[-2] if array.ndim > 1 else 1
        stride = rows * ld if array.ndim == 3 else 0
        address = self._device.upload(contents)
        return _Placed(name, address, ld, stride, contents, gap, array.shape)

    def _place(self, name: str, array: Array, gap: int | None = None) -> _Placed:
        self._inputs.append(self._put(name, array, gap))
        return self._inputs[-1]

    def _operand(self, name: str, problem: Problem, load: Load, array: Array) -> dict[str, int]:
        if load.kind is LoadKind.TENSOR:
            placed = self._place(name, array)
            sliced = problem.batch > 1 and array.ndim == len(problem.d_shape)
            return _whole(placed) if sliced else _whole(placed) | {"batch_stride": 0}
        placed = self._place(name, array, 0)
        if load.kind.is_of_slices:
            return {
                "pointer": placed.address,
                "ld": problem.slice_rows,
                "batch_stride": array.shape[-1],
            }
        is_sliced = array.ndim > 1 + len(load.parts_shape)
        stride = array[0].size if is_sliced else 0
        return {"pointer": placed.address, "ld": load.parts_ld, "batch_stride": stride}

    def results(self) -> dict[str, Array]:
        """Return D and the kernel's further results by name, without the gaps.

        Raises:
            LaunchError: the kernel wrote into the gaps.
        """
        return {result.name: self._result(result) for result in self._results}

    def _result(self, result: _Placed) -> Array:
        found = self._device.download(result.address, result.contents)
        columns = result.shape[-1]
        whole = np.concatenate([found, _poison((result.gap,), found.dtype)])
        rows = whole.reshape(-1, columns + result.gap)
        if (np.ascontiguousarray(rows[:, columns:]).view(np.uint8) != _POISON).any():
            raise LaunchError(f"the kernel wrote beyond a row of {result.name}")
        return np.ascontiguousarray(rows[:, :columns]).reshape(result.shape)

    def require_unchanged(self) -> None:
        """Check that the kernel did not write into its operands.

        Raises:
            LaunchError: it did.
        """
        for placed in self._inputs:
            found = self._device.download(placed.address, placed.contents)
            if not np.array_equal(_bits(found), _bits(placed.contents)):
                raise LaunchError(f"the kernel wrote into {placed.name}")


def _whole(placed: _Placed) -> dict[str, int]:
    """Return the arguments by which a launch passes a full tensor."""
    return {"pointer": placed.address, "ld": placed.ld, "batch_stride": placed.stride}


def _of_reduction(problem: Problem, store: Store) -> dict[str, int]:
    """Return the strides that a launch passes for a reduction's result, which is dense."""
    stride = store_batch_stride(problem, store)
    return {"ld": store_ld(problem, store), "batch_stride": stride}


def _spread(array: Array, gap: int) -> Array:
    """Return `array` with `gap` poisoned elements after each row except the last."""
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
