"""Sections epilogue, b2b and copy: what fusing gains, and what moving costs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.elementwise import ElementwiseArgs
from benchmarks.gpu.items import BackToBack, Copy, Fusion
from benchmarks.gpu.rig import Rig, Step, UnusableError
from benchmarks.gpu.timing import compare, operand_copies
from boltgen.ir.dtypes import DType
from boltgen.ir.move import ImageLayout, reference_move
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.ir.reference import output_shape
from boltgen.ir.workload import AnyProblem
from boltgen.measure.abi import MoveArgs
from boltgen.measure.native import CudaError
from boltgen.measure.worker import Prepared

# Rounded to FP16 twice, where the fused kernel rounds once: at most an ulp of it, 2^-10.
_MOST_DIFFERENCE = 2.0**-10


def single(problem: AnyProblem) -> Gemm | Conv2d:
    """A problem that is one product, and not batched."""
    if not isinstance(problem, (Gemm, Conv2d)):
        raise UnusableError(f"{type(problem).__name__} has no place in this section")
    return problem


def run_fusion(rig: Rig, item: Fusion) -> dict[str, Any]:
    """The epilogue in the kernel; behind it; PyTorch eager and compiled."""
    choice, once = rig.best(item.fused, place=0)
    plain, plain_once = rig.best(item.behind, place=1)
    fused = rig.prepared(item.fused, choice, place=0)
    product = rig.prepared(item.behind, plain, place=1)
    problem = single(item.behind.problem)
    tail = _elementwise(rig, item, product, fused)
    once_us = once.median_us + plain_once.median_us
    samplers = {
        "boltgen": rig.in_turn([fused], once_us),
        "unfused": rig.in_turn([product, tail], once_us),
    }
    for sampler in samplers.values():
        sampler.sample_us(1)
    same_result(rig, output_shape(problem), fused, product)
    launches = samplers["boltgen"].launches
    theirs, errors = rig.beside(
        rig.vendor.fused(problem, item.activation, launches) if rig.vendor else {}
    )
    timed = rig.timed(samplers | theirs)
    return {
        "vendor_errors": errors,
        "columns": timed["columns"],
        "clocks_mhz": timed["clocks_mhz"],
        "config": str(choice.config),
        "predicted_us": item.fused.predicted_us,
        "ratios": _ratios(timed, rig),
    }


def run_back_to_back(rig: Rig, item: BackToBack) -> dict[str, Any]:
    """One kernel for all layers, and one for each, which reads what the last one wrote."""
    choice, once = rig.best(item.fused, place=0)
    steps: list[Prepared] = []
    once_us = once.median_us
    for number, layer in enumerate(item.layers, 1):
        single, single_once = rig.best(layer, place=number)
        step = rig.prepared(layer, single, place=number)
        steps.append(reading(steps[-1], step) if steps else step)
        once_us = max(once_us, single_once.median_us)
    fused = rig.prepared(item.fused, choice, place=0)
    timed = rig.timed(
        {"boltgen": rig.in_turn([fused], once_us), "unfused": rig.in_turn(steps, once_us)}
    )
    for number in range(len(item.layers) + 1):
        rig.place(number).forget_operands()
    return {
        "columns": timed["columns"],
        "clocks_mhz": timed["clocks_mhz"],
        "config": str(choice.config),
        "predicted_us": item.fused.predicted_us,
        "ratios": _ratios(timed, rig),
    }


def reading(producer: Prepared, second: Prepared) -> Prepared:
    """`second`, which from now on reads what `producer` writes."""
    for before, args in zip(producer.arguments, second.arguments, strict=False):
        args.a = before.d
    return second


def _ratios(timed: dict[str, Any], rig: Rig) -> dict[str, Any]:
    """Ours against every other column."""
    return {
        name: compare(timed, "boltgen", name, rig.turns)
        for name in timed["columns"]
        if name != "boltgen"
    }


def _elementwise(rig: Rig, item: Fusion, product: Prepared, fused: Prepared) -> Step:
    """The kernel behind the product, in place; the bias is the fused kernel's."""
    shape = output_shape(single(item.behind.problem))
    arguments = [
        ElementwiseArgs(
            count=int(np.prod(shape)),
            columns=shape[-1],
            input=plain.d,
            bias=whole.operands[0].pointer,
            output=plain.d,
            stream=rig.profiler.device.stream,
        )
        for plain, whole in zip(product.arguments, fused.arguments, strict=False)
    ]
    return Step(rig.entry(item.elementwise), arguments)


def same_result(rig: Rig, shape: tuple[int, ...], fused: Prepared, unfused: Prepared) -> None:
    """Raises UnusableError where the two differ by more than a rounding."""
    one, other = (
        rig.download(step.arguments[0].d, shape).astype(np.float32) for step in (fused, unfused)
    )
    difference = np.linalg.norm(one - other) / np.linalg.norm(one)
    if not difference <= _MOST_DIFFERENCE:
        raise UnusableError(f"results that should agree differ by {difference:.2g} of their norm")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of a move's source and target."""

    source: int
    target: int

    @property
    def copied(self) -> int:
        """Of a plain copy with as much traffic: it reads and writes each byte once."""
        return (self.source + self.target) // 2


def _sizes(item: Copy) -> _Sizes:
    elements = item.images * item.pixels
    return _Sizes(
        elements * item.source_c * item.move.source.dtype.size_bytes,
        elements * item.target_c * item.move.target.dtype.size_bytes,
    )


def run_copy(rig: Rig, item: Copy) -> dict[str, Any]:
    """A move, checked on its first image, against a copy by the driver with as much traffic."""
    sizes = _sizes(item)
    room = sizes.source + sizes.target
    sets = 1 if rig.turns.modelled else operand_copies(room)
    allocated = [
        tuple(rig.profiler.allocate(size) for size in (sizes.source, sizes.target, sizes.copied))
        for _ in range(sets)
    ]
    try:
        return _run_copy(rig, item, sizes, allocated)
    finally:
        for addresses in allocated:
            for address in addresses:
                rig.profiler.release(address)


def _run_copy(
    rig: Rig, item: Copy, sizes: _Sizes, allocated: list[tuple[int, ...]]
) -> dict[str, Any]:
    dtype = item.move.source.dtype
    for source, _, _ in allocated:
        count = sizes.source // dtype.size_bytes
        rig.profiler.fill(source, dtype, count, seed=7, low=-4.0, high=4.0)
    stream = rig.profiler.device.stream
    step = Step(
        rig.entry(item.kernel),
        [
            MoveArgs(item.images, item.pixels, item.source_c, item.target_c, one[0], one[1], stream)
            for one in allocated
        ],
    )

    def copy(index: int, status: int) -> int:
        source, _, target = allocated[index]
        failed = rig.runtime.cudaMemcpyAsync(
            ctypes.c_void_p(target),
            ctypes.c_void_p(source if sizes.source >= sizes.copied else allocated[index][1]),
            ctypes.c_size_t(sizes.copied),
            ctypes.c_int(3),  # cudaMemcpyDeviceToDevice
            ctypes.c_void_p(stream),
        )
        if failed:
            raise CudaError(failed, "copying from the device to the device failed")
        return 0

    # About what memory lets pass: enough to tell how many launches are a sample.
    once_us = 2 * sizes.copied / 1e6
    samplers = {"boltgen": rig.in_turn([step], once_us)}
    samplers["copy"] = rig.launched(copy, samplers["boltgen"].launches)
    samplers["boltgen"].sample_us(1)
    _check_move(rig, item, sizes, allocated[0])
    timed = rig.timed(samplers)
    ours_us = timed["columns"]["boltgen"]["median_us"]
    # The virtual GPU models kernels, and not the driver's copies.
    ratios = {} if rig.turns.modelled else {"copy": compare(timed, "boltgen", "copy", rig.turns)}
    return {
        "columns": timed["columns"],
        "clocks_mhz": timed["clocks_mhz"],
        "bytes": sizes.source + sizes.target,
        "gb_per_s": (sizes.source + sizes.target) / ours_us / 1e3,
        "ratios": ratios,
    }


def _check_move(rig: Rig, item: Copy, sizes: _Sizes, addresses: tuple[int, ...]) -> None:
    """Raises UnusableError where the first image is not what it should be, bit for bit."""

    def shape(layout: ImageLayout, channels: int) -> tuple[int, ...]:
        nchw = layout is ImageLayout.NCHW
        return (1, channels, item.pixels, 1) if nchw else (1, item.pixels, 1, channels)

    def first(address: int, layout: ImageLayout, channels: int, dtype: DType) -> NDArray[Any]:
        return rig.download(address, shape(layout, channels), dtype.value)

    move = item.move
    source = first(addresses[0], move.source.layout, item.source_c, move.source.dtype)
    target = first(addresses[1], move.target.layout, item.target_c, move.target.dtype)
    expected = reference_move(move, source, item.target_c)
    if not np.array_equal(target, expected):
        wrong = int(np.count_nonzero(target != expected))
        raise UnusableError(f"the move is wrong in {wrong} of {expected.size} elements")
