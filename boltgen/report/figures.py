"""Arrow: from facts to the positions of marks in figures, which the template draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from boltgen.report.facts import Facts, RegionFacts, Step

WIDTH = 960.0
# Sizes of the partition: a step's height, the positions and widths of its lanes.
STEP = 26.0
_LANES = {"boltgen": (0.0, 560.0), "tvm": (580.0, 380.0)}
# Sizes of the roofline.
HEIGHT = 420.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 16.0, 48.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step of the model in its lane; `filled` is the width for its share of the time."""

    step: Step
    x: float
    y: float
    width: float
    filled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A model's steps in order."""

    boxes: tuple[Box, ...]
    height: float


def partition(facts: Facts) -> Partition:
    """Place the steps below each other: boltgen's regions on the left, TVM's on the right."""
    boxes = []
    longest = max((region.share for region in facts.regions), default=0.0)
    for index, step in enumerate(facts.steps):
        x, width = _LANES["boltgen" if step.region else "tvm"]
        share = step.region.share / longest if step.region and longest else 0.0
        boxes.append(
            Box(step=step, x=x, y=index * STEP, width=width, filled=round(share * width, 1))
        )
    return Partition(boxes=tuple(boxes), height=len(boxes) * STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A value on an axis, and its position."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A region in the roofline."""

    region: RegionFacts
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Regions by FLOP per byte and TFLOP per second, below the device's limits.

    `roof` has the corners of the line of limits; both axes are logarithmic.
    """

    points: tuple[Point, ...]
    roof: tuple[tuple[float, float], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def roofline(facts: Facts) -> Roofline | None:
    """Return the regions with known work and time; None if there are none."""
    known = [
        (region, region.intensity, region.tflops)
        for region in facts.regions
        if region.intensity is not None and region.tflops is not None
    ]
    if not known:
        return None
    peak = facts.arch.tensor_f32_acc_tflops
    tb_per_s = facts.arch.dram_gb_per_s / 1e3
    ridge = peak / tb_per_s
    least_x, most_x = _decades([*(x for _, x, _ in known), ridge])
    least_y, most_y = _decades([*(y for _, _, y in known), peak])

    def at_x(value: float) -> float:
        share = (math.log10(value) - least_x) / (most_x - least_x)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def at_y(value: float) -> float:
        share = (math.log10(value) - least_y) / (most_y - least_y)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    # The slope enters the figure at the left or at the bottom.
    begin = max(10.0**least_x, 10.0**least_y / tb_per_s)
    corners = ((begin, begin * tb_per_s), (ridge, peak), (10.0**most_x, peak))
    return Roofline(
        points=tuple(Point(region=region, x=at_x(x), y=at_y(y)) for region, x, y in known),
        roof=tuple((at_x(x), at_y(y)) for x, y in corners),
        x_ticks=tuple(Tick(at=at_x(10.0**e), text=_power(e)) for e in range(least_x, most_x + 1)),
        y_ticks=tuple(Tick(at=at_y(10.0**e), text=_power(e)) for e in range(least_y, most_y + 1)),
    )


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the exponents of the powers of ten that enclose `values`."""
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return least, max(most, least + 1)


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}"
