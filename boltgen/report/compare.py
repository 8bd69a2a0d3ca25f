"""Compare two compiled models: their times, regions and versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from boltgen.report.facts import Facts, RegionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A region of one or both artifacts."""

    label: str
    problem: str
    ours: RegionFacts | None
    theirs: RegionFacts | None

    @property
    def ratio(self) -> float | None:
        """Our time divided by theirs, if both times are of one kind."""
        if self.ours is None or self.theirs is None or self.ours.kind is not self.theirs.kind:
            return None
        ours, theirs = self.ours.info.time_us, self.theirs.info.time_us
        return ours / theirs if ours and theirs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison with another artifact; `versions` has (ours, theirs) for differing ones."""

    theirs: Facts
    rows: tuple[Row, ...]
    versions: dict[str, tuple[str, str]]


def compared(ours: Facts, theirs: Facts) -> Comparison:
    """Pair the regions with equal computations, and list the others."""
    left = _numbered(theirs)
    rows = []
    for key, region in _numbered(ours).items():
        rows.append(Row(label=key[0], problem=key[1], ours=region, theirs=left.pop(key, None)))
    rows += [Row(label=k[0], problem=k[1], ours=None, theirs=each) for k, each in left.items()]
    mine, other = ours.metadata.versions, theirs.metadata.versions
    return Comparison(
        theirs=theirs,
        rows=tuple(rows),
        versions={
            name: (mine.get(name, ""), other.get(name, ""))
            for name in sorted({*mine, *other})
            if mine.get(name) != other.get(name)
        },
    )


def _numbered(facts: Facts) -> dict[tuple[str, str, int], RegionFacts]:
    """Key the regions by their computation; equal computations are numbered."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, int], RegionFacts] = {}
    for region in facts.regions:
        label, problem = region.info.label, region.info.problem
        found[label, problem, seen[label, problem]] = region
        seen[label, problem] += 1
    return found
