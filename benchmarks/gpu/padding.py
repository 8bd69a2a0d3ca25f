"""Padded channels: what they cost and gain (section padding), and images' in a race.

As boltgen's padding does it: weights are padded beforehand; activations by a move in the call, or
by the kernel before, which writes them so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, TypeAlias

import numpy as np

from benchmarks.gpu.fusions import reading, same_result, single
from benchmarks.gpu.items import Padding, Race
from benchmarks.gpu.rig import Rig, Step, UnusableError
from benchmarks.gpu.timing import Turns, compare
from boltgen.ir.dtypes import DType
from boltgen.ir.problem import Conv2d, Problem
from boltgen.ir.reference import input_shapes, output_shape
from boltgen.measure.abi import MoveArgs
from boltgen.measure.worker import Prepared

# A product as the model has it, and padded.
Pair: TypeAlias = tuple[Prepared, Prepared]

# Who is compared with whom: ratio -> (the faster one, the other).
_RATIOS = {
    "unpadded": ("boltgen", "unpadded"),
    "unpadded_kernel": ("padded_kernel", "unpadded"),
    "unpadded_pair": ("padded_pair", "unpadded_pair"),
    "cudnn": ("boltgen", "cudnn"),
}


def run_padding(rig: Rig, item: Padding) -> dict[str, Any]:
    """Padded by a move, by the kernel before, and not; each kernel alone; and cuDNN's, unpadded.

    The columns: `boltgen` is the move and the padded kernel, `padded_pair` and `unpadded_pair` the
    kernel before and the convolution.
    """
    narrow, wide = item.unpadded.problem, item.padded.problem
    if not isinstance(narrow, Conv2d) or not isinstance(wide, Conv2d):
        raise UnusableError("only convolutions are padded here")
    products = (item.unpadded, item.padded, item.producer, item.padded_producer)
    chosen = [rig.best(product, place=place) for place, product in enumerate(products)]

    def prepared(place: int) -> Prepared:
        return rig.prepared(products[place], chosen[place][0], place=place)

    unpadded, padded, producer, padded_producer = map(prepared, range(4))
    _pad_operands(rig, narrow, wide, (unpadded, padded))
    writers = single(item.producer.problem), single(item.padded_producer.problem)
    _pad_operands(rig, *writers, (producer, padded_producer))
    pairs = zip(unpadded.arguments, padded.arguments, strict=False)
    move = _moved(rig, item.move, (narrow, wide), ((one.a, other.a) for one, other in pairs))
    steps: dict[str, list[Step | Prepared]] = {
        "boltgen": [move, padded],
        "unpadded": [unpadded],
        "padded_kernel": [padded],
        "padded_pair": [padded_producer, reading(padded_producer, prepared(1))],
        "unpadded_pair": [producer, reading(producer, prepared(0))],
        "padded_producer": [padded_producer],
        "unpadded_producer": [producer],
    }
    once_us = sum(timing.median_us for _, timing in chosen)
    samplers = {name: rig.in_turn(kernels, once_us) for name, kernels in steps.items()}
    for one, other in (("boltgen", "unpadded"), ("padded_pair", "unpadded_pair")):
        samplers[one].sample_us(1)
        samplers[other].sample_us(1)
        same_result(rig, output_shape(narrow), padded, unpadded)
    launches = samplers["boltgen"].launches
    theirs, errors = rig.beside(rig.vendor.replays(narrow, launches) if rig.vendor else {})
    timed = rig.timed(samplers | theirs)
    for place in range(len(products)):  # what they are filled with now is not what they should be
        rig.place(place).forget_operands()
    return {
        "vendor_errors": errors,
        "config": str(chosen[1][0].config),
        **_compared(timed, rig.turns),
    }


def _compared(timed: dict[str, Any], turns: Turns) -> dict[str, Any]:
    """The columns with their ratios, and what padding takes of the time."""
    columns = timed["columns"]
    us = {name: column["median_us"] for name, column in columns.items()}
    wider_us = us["padded_producer"] - us["unpadded_producer"]
    return {
        "columns": columns,
        "clocks_mhz": timed["clocks_mhz"],
        "shares": {
            "move": 1.0 - us["padded_kernel"] / us["boltgen"],
            "wider_producer": wider_us / us["padded_pair"],
        },
        "ratios": {
            label: compare(timed, one, other, turns)
            for label, (one, other) in _RATIOS.items()
            if other in columns
        },
    }


@contextmanager
def padded_images(rig: Rig, item: Race, product: Prepared) -> Iterator[list[Step]]:
    """The move that pads a race's activations, from images of its own; none where none is padded.

    Afterwards the product's operands are made anew.
    """
    narrow, wide = item.problem, item.product.problem
    if item.move is None or not isinstance(narrow, Conv2d) or not isinstance(wide, Conv2d):
        yield []
        return
    count = prod(input_shapes(narrow)[0])
    images = [rig.profiler.allocate(count * DType.F16.size_bytes) for _ in product.arguments]
    try:
        for image in images:
            rig.profiler.fill(image, DType.F16, count, seed=7, low=-1.5, high=1.5)
        targets = [args.a for args in product.arguments]
        yield [_moved(rig, item.move, (narrow, wide), zip(images, targets, strict=True))]
    finally:
        for image in images:
            rig.profiler.release(image)
        rig.place().forget_operands()


def _moved(
    rig: Rig, symbol: str, problems: tuple[Conv2d, Conv2d], addresses: Iterable[tuple[int, int]]
) -> Step:
    """The move of activations as the first takes them to where the second reads them."""
    narrow, wide = problems
    sizes = (narrow.n, narrow.h * narrow.w, narrow.c, wide.c)
    stream = rig.profiler.device.stream
    arguments = [MoveArgs(*sizes, source, target, stream) for source, target in addresses]
    return Step(rig.entry(symbol), arguments)


def _pad_operands(rig: Rig, problem: Problem, padded: Problem, steps: Pair) -> None:
    """Give the second the weights of the first, and zeros; and activations where they fit."""
    (a_shape, b_shape), (wide_a_shape, wide_b_shape) = map(input_shapes, (problem, padded))
    source = steps[0].arguments[0]
    weights = rig.download(source.b, b_shape)
    weights = np.pad(weights, [(0, b - a) for a, b in zip(b_shape, wide_b_shape, strict=True)])
    for target in steps[1].arguments:
        rig.upload(target.b, weights)
        if a_shape == wide_a_shape:
            rig.upload(target.a, rig.download(source.a, a_shape))
