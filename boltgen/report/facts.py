"""Arrow: from a compiled model's metadata to the facts of its report; only ratios are computed.

Times come from the metadata, each with its kind: measured on a GPU, modelled by the virtual GPU, or
predicted. Bytes are the least that a kernel moves: each operand and result once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from boltgen.arch import Arch, arch_named
from boltgen.artifact.coverage import coverage
from boltgen.artifact.metadata import KernelInfo, Metadata, PlacementInfo, RegionInfo
from boltgen.families.trial import Trial
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.problem import describe, gathered
from boltgen.problems.results import store_shape
from boltgen.problems.slices import loaded_shape
from boltgen.problems.workload import Layer, Workload


class TimeKind(Enum):
    """The kinds of times, by their source."""

    MEASURED = "measured"
    MODELLED = "modelled"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """A region: its computation, its time, and its `share` of the time of all regions.

    `flops` and `moved_bytes` are None if its sizes are dynamic, `intensity` is their ratio.
    """

    info: RegionInfo
    kind: TimeKind
    share: float
    flops: int | None
    moved_bytes: int | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte, or None if the sizes are dynamic."""
        if not self.flops or not self.moved_bytes:
            return None
        return self.flops / self.moved_bytes

    @property
    def tflops(self) -> float | None:
        """TFLOP per second, or None if the work or the time is unknown."""
        if not self.flops or not self.info.time_us:
            return None
        return self.flops / self.info.time_us / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A region with its `operators`, or an operator that TVM computes, in the model's order."""

    region: RegionFacts | None
    operators: tuple[PlacementInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """A kernel with its source, or None if the artifact has no sources."""

    info: KernelInfo
    source: str | None
    regions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that a report shows of one artifact."""

    metadata: Metadata
    arch: Arch
    regions: tuple[RegionFacts, ...]
    steps: tuple[Step, ...]
    kernels: tuple[KernelFacts, ...]
    regions_us: float
    rest_us: float | None
    verdict: str

    @property
    def moved_share(self) -> float | None:
        """The regions' share of all kernels' least bytes; None if a size is dynamic."""
        if self.metadata.rest is None:
            return None
        ours = [region.moved_bytes for region in self.regions]
        theirs = [each.moved_bytes for each in self.metadata.rest]
        known: list[int] = [each for each in (*ours, *theirs) if each is not None]
        if len(known) < len(ours) + len(theirs) or not sum(known):
            return None
        return sum(known[: len(ours)]) / sum(known)


def facts_of(folder: Path, metadata: Metadata) -> Facts:
    """Return the facts of the artifact in `folder`.

    Raises:
        UnknownArchError: the artifact is for an architecture that this boltgen does not know.
    """
    regions_us = sum(region.time_us or 0.0 for region in metadata.regions)
    regions = tuple(_region(metadata, region, regions_us) for region in metadata.regions)
    by_symbol = {region.info.symbol: region for region in regions}
    rest = metadata.rest
    return Facts(
        metadata=metadata,
        arch=arch_named(metadata.arch),
        regions=regions,
        steps=tuple(_steps(metadata, by_symbol)),
        kernels=tuple(_kernel(folder, metadata, kernel) for kernel in metadata.kernels),
        regions_us=regions_us,
        rest_us=None if rest is None else sum(each.time_us for each in rest),
        verdict=coverage(metadata.placements).verdict(),
    )


def kind_of(region: RegionInfo) -> TimeKind:
    """Return the kind of a region's time, according to the text of its origin."""
    for kind in (TimeKind.MEASURED, TimeKind.MODELLED, TimeKind.PREDICTED):
        if region.time_us is not None and region.origin.startswith(kind.value):
            return kind
    return TimeKind.UNKNOWN


def _region(metadata: Metadata, region: RegionInfo, total_us: float) -> RegionFacts:
    workload = _workload(metadata, region)
    return RegionFacts(
        info=region,
        kind=kind_of(region),
        share=(region.time_us or 0.0) / total_us if total_us else 0.0,
        flops=None if workload is None else workload.flops,
        moved_bytes=None if workload is None else _moved_bytes(workload),
    )


def _workload(metadata: Metadata, region: RegionInfo) -> Workload | None:
    """Return a region's workload from its kernel's trials, or None if sizes are dynamic."""
    trials: Iterator[Trial] = (
        trial
        for kernel in metadata.kernels
        if kernel.symbol == region.kernel
        for trial in kernel.trials
    )
    for trial in trials:
        layers = trial.workload.layers
        if "; ".join(describe(layer.problem) for layer in layers) == region.problem:
            return trial.workload
    return None


def _moved_bytes(workload: Workload) -> int:
    first, last = workload.first, workload.last
    weights = sum(layer.problem.b_bytes for layer in workload.layers if layer.problem.has_b)
    loads = sum(map(_bytes_of_loads, workload.layers))
    d = _elements(last.problem.d_shape) * last.problem.out_dtype.size_bytes
    further = sum(
        _elements(store_shape(last.problem, store)) * dtype.size_bytes
        for store, dtype in last.further
    )
    a = _elements(first.problem.a_shape) * first.problem.in_dtype.size_bytes
    if gathered(first.problem) is not None:
        a = first.problem.a_bytes
    return a + weights + loads + d + further


def _bytes_of_loads(layer: Layer) -> int:
    problem = layer.problem
    total = 0
    for load, columns in zip(layer.loads, layer.columns_of_loads, strict=True):
        is_shared = load.kind not in {LoadKind.TENSOR, LoadKind.COLUMN}
        shape = (1 if is_shared else problem.batch, *loaded_shape(problem, load.kind, columns))
        total += _elements(shape) * load.parts * load.dtype.size_bytes
    return total


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _steps(metadata: Metadata, regions: dict[str, RegionFacts]) -> Iterator[Step]:
    """Yield the model's operators in order; a region is at the place of its last operator."""
    inside: dict[str, list[PlacementInfo]] = {}
    last: dict[str, int] = {}
    for index, placement in enumerate(metadata.placements):
        if placement.region is not None:
            inside.setdefault(placement.region, []).append(placement)
            last[placement.region] = index
    for index, placement in enumerate(metadata.placements):
        symbol = placement.region
        if symbol is None:
            yield Step(region=None, operators=(placement,))
        elif last[symbol] == index and symbol in regions:
            yield Step(region=regions[symbol], operators=tuple(inside[symbol]))


def _kernel(folder: Path, metadata: Metadata, kernel: KernelInfo) -> KernelFacts:
    path = folder / kernel.source
    try:
        source = path.read_text(encoding="utf-8", errors="replace") if kernel.source else None
    except OSError:  # the sources may be missing; a model runs without them
        source = None
    regions = sum(region.runs(kernel.symbol) for region in metadata.regions)
    return KernelFacts(info=kernel, source=source, regions=regions)
