"""The share of a model's work that boltgen's kernels compute, and the anchors left to TVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.intake.numerals import counted

# A user is warned about a lower share.
LEAST_SHARE = 0.5
_MOST_NAMED = 3
_MIDDLE = ", at sizes in the middle of their ranges"


class Placed(Protocol):
    """The place of an operator: a region, or TVM with a reason; `flops` counts its anchors."""

    @property
    def operator(self) -> str: ...  # noqa: D102
    @property
    def region(self) -> str | None: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102
    @property
    def flops(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Anchors of one operator that TVM computes for one reason."""

    operator: str
    reason: str
    count: int
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The floating-point operations of a model's anchors: in boltgen's kernels, and in total.

    `rest` has the anchors that TVM computes, largest first.
    """

    offloaded_flops: int
    total_flops: int
    rest: tuple[Rest, ...]

    @property
    def share(self) -> float:
        """The share of the work that boltgen's kernels compute; 1 without anchors."""
        return self.offloaded_flops / self.total_flops if self.total_flops else 1.0

    @property
    def is_low(self) -> bool:
        """Whether the share is so low that a user should be warned."""
        return self.share < LEAST_SHARE

    def headline(self) -> str:
        """Return the share in one line."""
        if not self.total_flops:
            return "the model has no matrix products and no convolutions: all of it is TVM's"
        return f"boltgen computes {_percent(self.share)} of {_scaled(self.total_flops)}"

    def verdict(self) -> str:
        """Return the share, and the operators that TVM computes, in one line."""
        line = self.headline()
        if not self.rest:
            return line
        named = "; ".join(
            f"{each.count} x {each.operator}, {_percent(each.flops / self.total_flops)}: "
            f"{each.reason}"
            for each in self.rest[:_MOST_NAMED]
        )
        more = len(self.rest) - _MOST_NAMED
        others = f"; and {counted(more, 'more kind', 'more kinds')}" if more > 0 else ""
        # An operator's name may have several lines.
        return " ".join(f"{line}; with TVM stay {named}{others}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestKernel:
    """A TVM kernel that a model launches `count` times; bytes and operations are per launch.

    If `is_open`, they are for sizes in the middle of their ranges.
    """

    name: str
    count: int
    bytes_moved: int
    flops: int
    is_open: bool = False

    def time_us(self, arch: Arch, constants: ModelConstants) -> float:
        """Return the least time of all launches, by the DRAM bandwidth and the FP32 rate."""
        busy_us = max(
            constants.copy_us(self.bytes_moved, arch), self.flops / (arch.fp32_tflops * 1e6)
        )
        return self.count * (constants.launch_us + busy_us)


def rest_verdict(launches: int, rest_us: float, regions_us: float, *, is_open: bool = False) -> str:
    """Return the least time of TVM's own kernels, and its share of the total, in one line.

    With `is_open`, both times are for sizes in the middle of their ranges.
    """
    if not launches:
        return "TVM launches no kernel of its own"
    share = _percent(rest_us / ((rest_us + regions_us) or 1.0))
    return (
        f"TVM's own kernels: {counted(launches, 'launch', 'launches')}, at least {rest_us:.1f} us "
        f"(predicted), {share} of the time of all{_MIDDLE if is_open else ''}"
    )


def coverage(placements: Iterable[Placed]) -> Coverage:
    """Return the coverage of a model with these placements of operators."""
    offloaded = 0
    counts: dict[tuple[str, str], int] = defaultdict(int)
    flops: dict[tuple[str, str], int] = defaultdict(int)
    for placed in placements:
        if placed.region is not None:
            offloaded += placed.flops
        elif placed.flops:
            counts[placed.operator, placed.reason] += 1
            flops[placed.operator, placed.reason] += placed.flops
    rest = tuple(
        Rest(operator=key[0], reason=key[1], count=counts[key], flops=flops[key])
        for key in sorted(flops, key=lambda key: (-flops[key], key))
    )
    total = offloaded + sum(flops.values())
    return Coverage(offloaded_flops=offloaded, total_flops=total, rest=rest)


def _percent(share: float) -> str:
    # A part is never shown as "100 %" or "0 %".
    if 0.0 < share < 1.0:
        share = min(max(share, 0.001), 0.999)
    return f"{share:.1%}".replace("%", " %").replace(".0 ", " ")


def _scaled(flops: int) -> str:
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops} FLOP"
