"""The tensors of a problem on the device: copies of random operands, and bounds of results."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX, Load, LoadKind, Store, local_softmax
from boltgen.ir.functions import Array
from boltgen.ir.interval import Interval, reduced
from boltgen.ir.kernel import Launch
from boltgen.ir.softmax import softmax_rounding
from boltgen.measure.abi import arguments
from boltgen.measure.epilogue_nodes import epilogue_nodes
from boltgen.measure.native import EXTENTS, Extents, Profiler, Rounding, SoftmaxRounding, Verdict
from boltgen.problems.accumulation import accumulation_rounding
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.kinds import KINDS
from boltgen.problems.operands import Tensor, drawn, input_tensors, layer_inputs
from boltgen.problems.oracle import enclose_results
from boltgen.problems.problem import Problem, further_inputs, gathered
from boltgen.problems.results import reduced_view, store_batch_stride, store_ld, store_shape
from boltgen.problems.workload import Layer, Workload

# Low and high of each element; between two layers also how far the middle of them may be off.
_ENVELOPE_BYTES = 2 * DType.F32.size_bytes
_INNER_BYTES = _ENVELOPE_BYTES + DType.F32.size_bytes


class BudgetError(Exception):
    """A problem's tensors do not fit into the permitted memory."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An epilogue's operand on the device: its address and strides, in elements."""

    pointer: int
    ld: int = 0
    batch_stride: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSet:
    """Addresses of a layer's B, 0 without one, of its further inputs by their fields, and of its
    graphs' operands. The groups' ends and the indices of A's rows are further inputs here.
    """

    b: int
    further: Mapping[str, int]
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet:
    """The addresses of one copy of all tensors; D is the first of the `results`."""

    a: int
    results: tuple[int, ...]
    layers: tuple[LayerSet, ...]


class Operands:
    """Equal copies of a problem's tensors, and the bounds (envelope) of correct results.

    `sets` has at most `most_sets` copies. Several copies together take at most `most_sets_bytes`,
    and half of the budget, so that workspaces fit. `ends` has, per result, the addresses of the
    lower and the upper bounds. For several layers the reference computes one layer after the other.

    Raises:
        BudgetError: not even one copy fits into `budget_bytes`.
        CudaError: the device fails.
    """

    def __init__(
        self,
        profiler: Profiler,
        workload: Workload,
        *,
        budget_bytes: int,
        most_sets: int,
        most_sets_bytes: int,
    ) -> None:
        self.workload = workload
        self._profiler = profiler
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        self._workspace, self._workspace_bytes = 0, 0
        self._allocated: list[int] = []
        self._layers = workload.layers
        # A, then the B and operands of every layer: the A of a later layer is not an input.
        tensors = [input_tensors(layer) for layer in self._layers]
        self._inputs = (tensors[0][0], *(each for layer in tensors for each in layer[1:]))
        *inner, output = (_output(layer.problem) for layer in self._layers)
        last = workload.last
        self._results = (
            output,
            *(
                Tensor(dtype=dtype, count=prod(store_shape(last.problem, store)))
                for store, dtype in last.further
            ),
        )
        set_bytes = sum(tensor.size_bytes for tensor in (*self._inputs, *self._results))
        envelope_bytes = output.count * _ENVELOPE_BYTES
        check_bytes = len(self._results) * envelope_bytes + sum(
            each.count * _INNER_BYTES + each.size_bytes for each in inner
        )
        if set_bytes + check_bytes > budget_bytes:
            raise BudgetError(
                f"its tensors and their check take {set_bytes + check_bytes} bytes; the worker "
                f"may use {budget_bytes}"
            )
        room = min((budget_bytes - check_bytes) // 2, most_sets_bytes)
        copies = max(1, min(most_sets, room // set_bytes))
        try:
            self.sets = [self._allocate_set() for _ in range(copies)]
            self.ends = [
                (self._allocate(end_bytes), self._allocate(end_bytes))
                for end_bytes in (each.count * DType.F32.size_bytes for each in self._results)
            ]
            self._fill()
            self._enclose()
        except BaseException:
            self.close()
            raise

    def arguments(self, one: TensorSet, launch: Launch, *, stream: int) -> ctypes.Structure:
        """Return the arguments of a launch on one of the `sets`."""
        values = {**launch.sizes, "a": one.a, "d": one.results[0], "stream": stream}
        for index, layer in enumerate(one.layers):
            where = launch.of_layer(index)
            if layer.b:
                values[f"{where}b"] = layer.b
            values |= {where + field: address for field, address in layer.further.items()}
            operands = layer.operands
            if layer is one.layers[-1]:
                operands += tuple(
                    _stored(self.workload.last.problem, store, address)
                    for (store, _), address in zip(
                        self.workload.last.further, one.results[1:], strict=True
                    )
                )
            for number, operand in enumerate(operands):
                for name, value in asdict(operand).items():
                    values[f"{where}operands[{number}].{name}"] = value
        return arguments(launch.struct, values)

    def _allocate(self, size_bytes: int) -> int:
        address = self._profiler.allocate(size_bytes)
        self._allocated.append(address)
        self._size_bytes += size_bytes
        return address

    def _allocate_set(self) -> TensorSet:
        addresses = iter([self._allocate(tensor.size_bytes) for tensor in self._inputs])
        return TensorSet(
            a=next(addresses),
            layers=tuple(
                LayerSet(
                    b=next(addresses) if layer.problem.has_b else 0,
                    further={field: next(addresses) for field in _fields(layer.problem)},
                    operands=tuple(
                        _operand(layer.problem, load, columns, next(addresses))
                        for load, columns in zip(layer.loads, layer.columns_of_loads, strict=True)
                    ),
                )
                for layer in self._layers
            ),
            results=tuple(self._allocate(result.size_bytes) for result in self._results),
        )

    def _addresses(self, one: TensorSet) -> Iterator[int]:
        yield one.a
        for layer in one.layers:
            if layer.b:
                yield layer.b
            yield from layer.further.values()
            yield from (operand.pointer for operand in layer.operands)

    def _fill(self) -> None:
        first, *copies = self.sets
        for seed, (tensor, address) in enumerate(
            zip(self._inputs, self._addresses(first), strict=True)
        ):
            if isinstance(tensor.dtype, DType):
                self._profiler.fill(
                    address, tensor.dtype, tensor.count, seed=seed, low=tensor.low, high=tensor.high
                )
                continue
            array = drawn(tensor, (tensor.count,), np.random.default_rng(seed))
            self._profiler.copy(address, array.ctypes.data, array.nbytes)
        for copy in copies:
            for tensor, source, to in zip(
                self._inputs, self._addresses(first), self._addresses(copy), strict=True
            ):
                self._profiler.copy(to, source, tensor.size_bytes)

    def _enclose(self) -> None:
        """Compute the bounds of the results, layer by layer for a back-to-back kernel."""
        problem, epilogue = self.workload.first.problem, self.workload.first.epilogue
        is_other = packed_weights(problem) is not None or KINDS.of(problem).enclose is not None
        # The oracle of integers is equality: on devices there are intervals.
        is_other = is_other or not self.workload.first.prologue.is_identity
        is_other = is_other or problem.acc_dtype.is_whole or problem.in_dtype.is_narrow
        if not problem.has_b or is_other or epilogue.has_parts:
            self._enclose_on_host()
            return
        first, between = self.sets[0], list[int]()
        a = (first.a, 0)
        try:
            layers = zip(self._layers[:-1], self._layers[1:], first.layers[:-1], strict=True)
            for layer, following, tensors in layers:
                count = prod(layer.problem.d_shape)
                made = following.problem.in_dtype
                for dtype in (DType.F32, DType.F32, made, DType.F32):
                    between.append(self._profiler.allocate(count * dtype.size_bytes))
                low, high, middle, error = between[-4:]
                self._enclose_layer(layer, tensors, a, [(low, high)])
                self._prepare(following, (low, high))
                self._profiler.middle(low, high, made, count, out=middle, error=error)
                a = (middle, error)
            self._enclose_layer(self._layers[-1], first.layers[-1], a, self.ends)
        finally:
            for address in between:
                self._profiler.release(address)

    def _enclose_on_host(self) -> None:
        """Compute the bounds by the oracle on the host, because the device has no reference."""
        layer, first = self.workload.single, self.sets[0]
        arrays = []
        for tensor, address in zip(self._inputs, self._addresses(first), strict=True):
            array = np.empty(tensor.count, tensor.dtype.numpy)
            self._profiler.copy(array.ctypes.data, address, array.nbytes)
            arrays.append(array)
        problem = layer.problem
        shape, first_loaded = problem.d_shape, len(arrays) - len(layer.loads)
        if problem.has_b:
            arrays[1] = arrays[1].reshape(problem.b_shape)
        for index, (load, columns) in enumerate(
            zip(layer.loads, layer.columns_of_loads, strict=True), first_loaded
        ):
            arrays[index] = arrays[index].reshape(_shape_of_load(load, (*shape[:-1], columns)))
        inputs = layer_inputs(layer, arrays[1:])
        found = enclose_results(self.workload, arrays[0].reshape(problem.a_shape), [inputs])
        for enclosure, ends in zip(found, self.ends, strict=True):
            self._write_ends(enclosure.low, enclosure.high, ends)

    def _write_ends(self, low: Array, high: Array, ends: tuple[int, int]) -> None:
        """Write bounds to the device, widened to FP32 numbers."""
        outward = (-np.inf, np.inf)
        for values, address, towards in zip((low, high), ends, outward, strict=True):
            with np.errstate(over="ignore"):
                near = np.ascontiguousarray(values, np.float32)
                end = np.where(np.isinf(near), near, np.nextafter(near, np.float32(towards)))
            self._profiler.copy(address, end.ctypes.data, end.nbytes)

    def _prepare(self, layer: Layer, ends: tuple[int, int]) -> None:
        """Apply a layer's prologue to the bounds `ends` of its operand.

        Raises:
            InvalidProblemError: the device has no reference for the prologue.
        """
        if layer.prologue.is_identity:
            return
        window = layer.prologue.window
        if layer.prologue not in {SOFTMAX, local_softmax(window)}:
            raise InvalidProblemError(
                "there is no reference on devices for the prologue "
                f"{layer.prologue.describe()}; there is one for {SOFTMAX.describe()}"
            )
        *rows, columns = layer.problem.a_shape
        dtype = layer.problem.in_dtype
        rounding = SoftmaxRounding(
            **asdict(softmax_rounding(columns)),
            relative=dtype.unit_roundoff,
            absolute=dtype.smallest_subnormal / 2,
        )
        sequence = rows[-1] if layer.prologue.is_causal else 0
        self._profiler.softmax(
            *ends, prod(rows), columns, rounding, sequence=sequence, window=window
        )

    def _enclose_layer(
        self,
        layer: Layer,
        tensors: LayerSet,
        a: tuple[int, int],
        ends: Sequence[tuple[int, int]],
    ) -> None:
        """Write the bounds of results to `ends`; `a` has the addresses of A and of its error."""
        for store, (low, high) in zip(layer.epilogue.typed_results, ends, strict=True):
            graph = layer.epilogue.up_to(store.x)
            operands = tensors.operands[: len(graph.loads)]
            nodes = epilogue_nodes(
                graph,
                [operand.pointer for operand in operands],
                [operand.batch_stride for operand in operands],
                layer.problem.slice_rows,
            )
            with self._whole(layer.problem, store, (low, high)) as whole:
                self._profiler.enclose(
                    extents_of(layer.problem),
                    nodes,
                    Rounding(**asdict(accumulation_rounding(layer.problem))),
                    store.dtype or layer.problem.out_dtype,
                    in_dtype=layer.problem.in_dtype,
                    a=a[0],
                    b=tensors.b,
                    low=whole[0],
                    high=whole[1],
                    a_error=a[1],
                )

    @contextmanager
    def _whole(
        self, problem: Problem, store: Store, ends: tuple[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield the addresses for the bounds of all elements that `store` reads.

        Afterwards they are written to `ends`, reduced on the host if `store` reduces.
        """
        if store.reduction is None:
            yield ends
            return
        shape, axes = reduced_view(problem, store)
        arrays = [np.empty(shape, np.float32) for _ in ends]
        addresses = [self._profiler.allocate(array.nbytes) for array in arrays]
        try:
            yield (addresses[0], addresses[1])
            for array, address in zip(arrays, addresses, strict=True):
                self._profiler.copy(array.ctypes.data, address, array.nbytes)
        finally:
            for address in addresses:
                self._profiler.release(address)
        with np.errstate(all="ignore"):
            low, high = (array.astype(np.float64) for array in arrays)
            image = reduced(store.reduction, Interval(low, high), axes)
        self._write_ends(image.low, image.high, ends)

    def workspace(self, size_bytes: int) -> int:
        """Return the address of a poisoned workspace for all launches; 0 if none is needed.

        Raises:
            BudgetError: the workspace does not fit into the remaining memory.
        """
        if size_bytes > self._workspace_bytes:
            left = self._budget_bytes - self._size_bytes
            if size_bytes > left:
                raise BudgetError(
                    f"the kernel wants a workspace of {size_bytes} bytes; the worker has {left} "
                    "bytes left"
                )
            self._workspace, self._workspace_bytes = self._allocate(size_bytes), size_bytes
        if size_bytes:
            self._profiler.poison(self._workspace, size_bytes)
        return self._workspace if size_bytes else 0

    def poison(self) -> None:
        """Fill the first copy's results with NaN."""
        for address, result in zip(self.sets[0].results, self._results, strict=True):
            self._profiler.poison(address, result.size_bytes)

    def judge(self) -> Verdict:
        """Compare the first copy's results with the bounds.

        Return the verdict of the first wrong result, or of the last result.
        """
        for address, result, (low, high) in zip(
            self.sets[0].results, self._results, self.ends, strict=True
        ):
            assert isinstance(result.dtype, DType), "results are numbers"
            verdict = self._profiler.compare(
                address, result.dtype, result.count, low=low, high=high
            )
            if verdict.wrong:
                break
        return verdict

    def close(self) -> None:
        """Free the memory."""
        while self._allocated:
            self._profiler.release(self._allocated.pop())


def _fields(problem: Problem) -> Iterator[str]:
    """Yield the launch's fields of the inputs besides A, B and the graphs' operands, in order."""
    if in_groups(problem) is not None:
        yield "ends"
    if gathered(problem) is not None:
        yield "taken"
    yield from (each.field for each in further_inputs(problem))


def _output(problem: Problem) -> Tensor:
    return Tensor(dtype=problem.out_dtype, count=prod(problem.d_shape))


def _operand(problem: Problem, load: Load, columns: int, address: int) -> Operand:
    """Return a dense operand of `columns` columns; a full tensor has one slice per matmul."""
    if load.kind is LoadKind.TENSOR:
        rows = prod(problem.d_shape[1:-1])
        return Operand(address, columns, rows * columns if problem.batch > 1 else 0)
    if load.kind.is_of_slices:
        return Operand(address, problem.slice_rows, columns)
    return Operand(address, load.parts_ld)


def _shape_of_load(load: Load, output: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an operand for an `output`; matmuls of a batch share rows and columns."""
    if load.kind.is_of_slices:
        return -1, output[-1]
    return output if load.kind is LoadKind.TENSOR else (-1, *load.parts_shape)


def _stored(problem: Problem, store: Store, address: int) -> Operand:
    """Return a result besides D as an operand, dense."""
    return Operand(address, store_ld(problem, store), store_batch_stride(problem, store))


def extents_of(problem: Problem) -> Extents:
    """Return the sizes of `problem` for the device's reference.

    Raises:
        InvalidProblemError: the device has no reference for this kind of problem.
    """
    if problem.kind not in EXTENTS:
        raise InvalidProblemError(
            f"there is no reference on devices for {problem.short}; there is one for "
            f"{' and '.join(EXTENTS)}"
        )
    return EXTENTS[problem.kind](**problem.extents)
