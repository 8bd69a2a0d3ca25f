"""One launch of a kernel on the virtual GPU, judged by the oracle. Used inside a worker only.

Every tensor is an allocation of its own, to the byte, so that the virtual GPU reports what is read
or written beside it. Matrices have NaN between their rows; outputs and workspaces begin as NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.check.protocol import Job
from boltgen.errors import BoltgenError
from boltgen.families.source import workspace_symbol
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.elementwise import Load, LoadKind, Store
from boltgen.measure.abi import arguments, structs
from boltgen.measure.tensors import drawn as drawn_tensor
from boltgen.measure.tensors import hide_some, input_tensors
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose_results
from boltgen.problems.problem import Problem, further_inputs, gathered
from boltgen.problems.reference import compare
from boltgen.problems.results import store_batch_stride, store_ld, store_shape
from boltgen.problems.slices import slices
from boltgen.problems.workload import Layer, Workload

Array = NDArray[Any]

# Elements between the rows of a matrix: a multiple of every vector.
_GAP = 8
_POISON = 0xFF  # NaN in every element type, and a semaphore that opens for nobody
_TO_DEVICE, _TO_HOST = 1, 2
_SEED = 0
_MOST_MOVED = 4.0


class LaunchError(Exception):
    """The kernel's entry refused the launch, the device reported a fault, or memory was spoilt."""


class Device:
    """The CUDA runtime of this process; all its allocations are freed together.

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
        """Return the array at an address, in the form of `like`."""
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


def run_job(device: Device, library: ctypes.CDLL, job: Job) -> float:
    """Run a launch; return the largest error of a result's element, relative to its bound.

    Raises:
        LaunchError: the kernel refuses, faults, writes where it must not, or a result is wrong.
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
        LaunchError: it is more than its family says, by which a model's memory is planned.
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
    # A kernel that only moves numbers is exact.
    problem, (output,) = workload.single.problem, results.values()
    exact = problem.product(a, layers[0].b).astype(output.dtype)
    wrong = np.flatnonzero(_bits(output).reshape(-1) != _bits(exact).reshape(-1))
    if wrong.size:
        raise LaunchError(
            f"the output is wrong: {wrong.size} bytes, the first of element "
            f"{wrong[0] // exact.itemsize}"
        )
    return 0.0


@dataclass(frozen=True, slots=True)
class _Placed:
    """An array in device memory, with gaps between its rows; `stride` is of a batch's slices."""

    name: str
    address: int
    ld: int
    stride: int
    contents: Array
    gap: int
    shape: tuple[int, ...]


class _Tensors:
    """A launch's tensors on the device, and its arguments, by the fields of its struct."""

    def __init__(self, device: Device, job: Job, rng: np.random.Generator) -> None:
        workload, launch = job.workload, job.launch
        self._device = device
        # Others than matrices have no strides in the arguments: they are packed.
        self._gap = _GAP if workload.first.problem.is_matrix else 0
        self._inputs: list[_Placed] = []
        drawn = [_draw(layer, job.is_sliced, rng) for layer in workload.layers]
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
        """Set a tensor's address, and its strides where the launch has them."""
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
        """Return the output and the further results of the kernel, by name, without the gaps.

        Raises:
            LaunchError: the kernel wrote into them.
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
        """Check that the kernel has left its operands alone.

        Raises:
            LaunchError: it has not.
        """
        for placed in self._inputs:
            found = self._device.download(placed.address, placed.contents)
            if not np.array_equal(_bits(found), _bits(placed.contents)):
                raise LaunchError(f"the kernel wrote into {placed.name}")


def _whole(placed: _Placed) -> dict[str, int]:
    """A full tensor, as a launch passes operands."""
    return {"pointer": placed.address, "ld": placed.ld, "batch_stride": placed.stride}


def _of_reduction(problem: Problem, store: Store) -> dict[str, int]:
    """Return the strides that a launch passes for a reduction's result, which is packed."""
    stride = store_batch_stride(problem, store)
    return {"ld": store_ld(problem, store), "batch_stride": stride}


def _draw(layer: Layer, is_sliced: bool, rng: np.random.Generator) -> tuple[Array, LayerInputs]:
    """Draw A, B and the epilogue's operands of a layer, in the ranges that measuring uses."""
    problem, loads = layer.problem, layer.loads
    if problem.is_exact:
        moved = rng.uniform(-_MOST_MOVED, _MOST_MOVED, problem.a_shape)
        return moved.astype(problem.in_dtype.numpy), LayerInputs(np.zeros(problem.b_shape))
    batch = problem.d_shape[:1] if problem.batch > 1 else ()
    span = problem.d_shape[len(batch) :]
    ahead = batch if is_sliced else ()

    def shape_of(load: Load, columns: int) -> tuple[int, ...]:
        shapes = {
            LoadKind.TENSOR: (*ahead, *span[:-1], columns),
            LoadKind.ROW: (*ahead, columns),
            LoadKind.SLICE_ROW: (slices(problem), columns),
            LoadKind.POSITION_ROW: (problem.slice_rows, columns),
            LoadKind.COLUMN: (*ahead, prod(span[:-1])),
        }
        return (*shapes[load.kind], *load.parts_shape)

    own = [problem.a_shape, problem.b_shape][: 1 + problem.is_product]
    grouped = in_groups(problem)
    if grouped is not None:
        own.append((grouped.groups,))
    taken = gathered(problem)
    if taken is not None:
        own.append((taken.rows,))
    further = further_inputs(problem)
    own += (each.shape for each in further)
    wanted = (*own, *map(shape_of, loads, layer.columns_of_loads))
    a, *drawn = (
        drawn_tensor(tensor, shape, rng)
        for tensor, shape in zip(input_tensors(layer), wanted, strict=True)
    )
    b = drawn.pop(0) if problem.is_product else np.zeros(0)
    ends = drawn.pop(0) if grouped is not None else np.zeros(0)
    rows = drawn.pop(0) if taken is not None else np.zeros(0)
    given, drawn = tuple(drawn[: len(further)]), drawn[len(further) :]
    for load, array in zip(loads, drawn, strict=True):
        if load.hides:
            hide_some(array, rng)
    before = len(layer.prologue.loads)
    return a, LayerInputs(b, tuple(drawn[before:]), tuple(drawn[:before]), ends, rows, given)


def _spread(array: Array, gap: int) -> Array:
    """Spread the rows of `array`, with `gap` poisoned elements between rows, none at the end."""
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
