"""Compare two compiled models: their times, regions and versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from boltgen.report.facts import Facts, RegionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A region of one artifact, of the other, or of both."""

    label: str
    problem: str
    ours: RegionFacts | None
    theirs: RegionFacts | None

    @property
    def ratio(self) -> float | None:
        """Our time over theirs, if both are of one kind."""
        if self.ours is None or self.theirs is None or self.ours.kind is not self.theirs.kind:
            return None
        ours, theirs = self.ours.info.time_us, self.theirs.info.time_us
        return ours / theirs if ours and theirs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two artifacts; `versions` has the differing versions: of ours, and of theirs."""

    theirs: Facts
    rows: tuple[Row, ...]
    versions: dict[str, tuple[str, str]]


def compared(ours: Facts, theirs: Facts) -> Comparison:
    """Pair the regions that compute the same, and name the others."""
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
    """Key the regions by their computation, and number equal ones."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, int], RegionFacts] = {}
    for region in facts.regions:
        label, problem = region.info.label, region.info.problem
        found[label, problem, seen[label, problem]] = region
        seen[label, problem] += 1
    return found
