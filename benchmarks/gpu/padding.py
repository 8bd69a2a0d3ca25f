"""Section padding: measure cost and gain of rounding channels up to 8.

As boltgen's padding does it: weights are padded beforehand, activations by a move in the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.gpu.fusions import same_result
from benchmarks.gpu.items import Padding
from benchmarks.gpu.rig import Rig, Step
from boltgen.bench.results import Form
from boltgen.families.move import MoveConfig
from boltgen.families.registry import launch
from boltgen.measure.abi import arguments
from boltgen.measure.worker import Prepared
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.layout_transform.problem import NHWC_F16, LayoutTransform, Move
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

_PAD = Move(source=NHWC_F16, target=NHWC_F16)
# Who is compared with whom: ratio -> (the faster one, the other).
_RATIOS = {
    "unpadded": ("boltgen", "unpadded"),
    "unpadded_kernel": ("padded_kernel", "unpadded"),
    "cudnn": ("boltgen", "cudnn"),
}


def run_padding(rig: Rig, item: Padding) -> Form:
    """The move with the padded kernel (`boltgen`), that kernel alone, and both unpadded ones."""
    narrow, wide = item.problem, item.padded.workload.single.problem
    products = (item.unpadded, item.padded)
    chosen = [rig.best(product, place=place) for place, product in enumerate(products)]
    unpadded, padded = (
        rig.prepared(product, chosen[place][0], place=place)
        for place, product in enumerate(products)
    )
    _pad_weights(rig, narrow, wide, (unpadded, padded))
    asked = launch(Workload.of(padding_move(narrow, wide)), MoveConfig())
    stream = rig.profiler.device.stream
    moved = [
        arguments(
            asked.struct, {**asked.sizes, "source": one.a, "target": other.a, "stream": stream}
        )
        for one, other in zip(unpadded.arguments, padded.arguments, strict=False)
    ]
    steps: dict[str, list[Step | Prepared]] = {
        "boltgen": [Step(rig.entry(item.move), moved), padded],
        "unpadded": [unpadded],
        "padded_kernel": [padded],
    }
    once_us = sum(timing.median_us for _, timing in chosen)
    samplers = {name: rig.in_turn(kernels, once_us) for name, kernels in steps.items()}
    for name in ("boltgen", "unpadded"):
        samplers[name].sample_us(1)
    same_result(rig, narrow.d_shape, padded, unpadded)
    launches = samplers["boltgen"].launches
    theirs, errors = rig.beside(lambda vendor: vendor.replays(narrow, launches))
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


def padding_move(narrow: Conv2d, wide: Problem) -> LayoutTransform:
    """Return the layout transform from the activations of `narrow` to the activations of `wide`."""
    return LayoutTransform(
        move=_PAD,
        images=narrow.n,
        pixels=narrow.h * narrow.w,
        source_channels=narrow.c,
        target_channels=wide.a_shape[-1],
    )


def _pad_weights(rig: Rig, narrow: Problem, wide: Problem, steps: Sequence[Prepared]) -> None:
    """Give the second the weights of the first, and zeros."""
    weights = rig.download(steps[0].arguments[0].b, narrow.b_shape)
    extents = zip(narrow.b_shape, wide.b_shape, strict=True)
    weights = np.pad(weights, [(0, padded - given) for given, padded in extents])
    for target in steps[1].arguments:
        rig.upload(target.b, weights)
