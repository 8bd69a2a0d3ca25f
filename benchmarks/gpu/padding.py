"""Section padding: what rounding channels up to 8 costs and gains.

As boltgen's padding does it: weights are padded beforehand, activations by a move in the call.
"""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.fusions import same_result
from benchmarks.gpu.items import Padding
from benchmarks.gpu.rig import Rig, Step, UnusableError
from boltgen.bench.slices import Form
from boltgen.ir.problem import Conv2d
from boltgen.ir.reference import input_shapes, output_shape
from boltgen.measure.abi import MoveArgs
from boltgen.measure.worker import Prepared

# Who is compared with whom: ratio -> (the faster one, the other).
_RATIOS = {
    "unpadded": ("boltgen", "unpadded"),
    "unpadded_kernel": ("padded_kernel", "unpadded"),
    "cudnn": ("boltgen", "cudnn"),
}


def run_padding(rig: Rig, item: Padding) -> Form:
    """The move with the padded kernel (`boltgen`), that kernel alone, and both unpadded ones."""
    narrow, wide = item.unpadded.problem, item.padded.problem
    if not isinstance(narrow, Conv2d) or not isinstance(wide, Conv2d):
        raise UnusableError("only convolutions are padded here")
    products = (item.unpadded, item.padded)
    chosen = [rig.best(product, place=place) for place, product in enumerate(products)]
    unpadded, padded = (
        rig.prepared(product, chosen[place][0], place=place)
        for place, product in enumerate(products)
    )
    _pad_weights(rig, narrow, wide, (unpadded, padded))
    sizes = (narrow.n, narrow.h * narrow.w, narrow.c, wide.c)
    pairs = zip(unpadded.arguments, padded.arguments, strict=False)
    stream = rig.profiler.device.stream
    moved = [MoveArgs(*sizes, one.a, other.a, stream) for one, other in pairs]
    steps: dict[str, list[Step | Prepared]] = {
        "boltgen": [Step(rig.entry(item.move), moved), padded],
        "unpadded": [unpadded],
        "padded_kernel": [padded],
    }
    once_us = sum(timing.median_us for _, timing in chosen)
    samplers = {name: rig.in_turn(kernels, once_us) for name, kernels in steps.items()}
    for name in ("boltgen", "unpadded"):
        samplers[name].sample_us(1)
    same_result(rig, output_shape(narrow), padded, unpadded)
    launches = samplers["boltgen"].launches
    theirs, errors = rig.beside(rig.vendor.replays(narrow, launches) if rig.vendor else {})
    timed = rig.timed(samplers | theirs)
    for place in range(len(products)):  # what they are filled with now is not what they should be
        rig.place(place).forget_operands()
    return {
        **timed.form,
        "vendor_errors": errors,
        "config": str(chosen[1][0].config),
        "shares": {"move": 1.0 - timed.us("padded_kernel") / timed.us("boltgen")},
        "ratios": {
            label: timed.ratio(other, one)
            for label, (one, other) in _RATIOS.items()
            if other in timed.medians
        },
    }


def _pad_weights(rig: Rig, narrow: Conv2d, wide: Conv2d, steps: tuple[Prepared, Prepared]) -> None:
    """Give the second the weights of the first, and zeros."""
    (_, b_shape), (_, wide_b_shape) = input_shapes(narrow), input_shapes(wide)
    weights = rig.download(steps[0].arguments[0].b, b_shape)
    weights = np.pad(weights, [(0, b - a) for a, b in zip(b_shape, wide_b_shape, strict=True)])
    for target in steps[1].arguments:
        rig.upload(target.b, weights)
