"""Sections epilogue and b2b: measure the gain of fusion."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks.gpu.items import BackToBack, Choice, Fusion
from benchmarks.gpu.rig import Rig, Step, UnusableError
from benchmarks.gpu.timing import Timed
from boltgen.bench.results import Form
from boltgen.measure.worker import Prepared

# Rounded to FP16 twice, where the fused kernel rounds once: at most an ulp of it, 2^-10.
_MOST_DIFFERENCE = 2.0**-10
# PyTorch compiles and tunes: minutes.
_MOST_BESIDE_S = 110.0


class ElementwiseArgs(ctypes.Structure):
    """`elementwise_args` of `elementwise.cu`."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("columns", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("input", "bias", "output", "stream")),
    )


def run_fusion(rig: Rig, item: Fusion) -> Form:
    """The epilogue in the kernel; behind it; PyTorch eager and compiled."""
    choice, once = rig.best(item.fused, place=0)
    plain, plain_once = rig.best(item.behind, place=1)
    fused = rig.prepared(item.fused, choice, place=0)
    product = rig.prepared(item.behind, plain, place=1)
    tail = _elementwise(rig, item, product, fused)
    once_us = once.median_us + plain_once.median_us
    samplers = {
        "boltgen": rig.in_turn([fused], once_us),
        "unfused": rig.in_turn([product, tail], once_us),
    }
    for sampler in samplers.values():
        sampler.sample_us(1)
    same_result(rig, item.problem.d_shape, fused, product)
    launches = samplers["boltgen"].launches
    theirs, errors = rig.beside(
        lambda vendor: vendor.fused(item.problem, item.activation, launches),
        most_s=_MOST_BESIDE_S,
    )
    timed = rig.timed(samplers | theirs)
    return {**_result(timed, choice), "vendor_errors": errors}


def run_back_to_back(rig: Rig, item: BackToBack) -> Form:
    """One kernel for all layers, and one for each, which reads what the last one wrote."""
    choice, once = rig.best(item.fused, place=0)
    steps: list[Prepared] = []
    once_us = once.median_us
    for number, layer in enumerate(item.layers, 1):
        alone, alone_once = rig.best(layer, place=number)
        step = rig.prepared(layer, alone, place=number)
        steps.append(reading(steps[-1], step) if steps else step)
        once_us = max(once_us, alone_once.median_us)
    fused = rig.prepared(item.fused, choice, place=0)
    timed = rig.timed(
        {"boltgen": rig.in_turn([fused], once_us), "unfused": rig.in_turn(steps, once_us)}
    )
    for number in range(len(item.layers) + 1):
        rig.place(number).forget_operands()
    return _result(timed, choice)


def reading(producer: Prepared, second: Prepared) -> Prepared:
    """`second`, which from now on reads what `producer` writes."""
    for before, args in zip(producer.arguments, second.arguments, strict=False):
        args.a = before.d
    return second


def _result(timed: Timed, choice: Choice) -> Form:
    """Write the result of a fused product: ours against every other column."""
    return {
        **timed.form,
        "config": str(choice.config),
        "ratios": {name: timed.ratio(name) for name in timed.medians if name != "boltgen"},
    }


def _elementwise(rig: Rig, item: Fusion, product: Prepared, fused: Prepared) -> Step:
    """The kernel behind the product, in place; the bias is the fused kernel's."""
    shape = item.problem.d_shape
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
