"""The table of the race: ratios of each row, how often ours is first or level, and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

OURS = "boltgen"
# Times that differ by less are level.
LEVEL = 1.03
WORST_ALLOWED = 1.15
SHARE_WANTED = 0.9
_MOST_WORDS = 15

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The comparison of our entry with the others, over all rows in which both ran.

    `level` counts the rows in which ours is first or level. `worst` is the largest ratio of ours
    to the best of the others, and `where` its row. In `absent` rows ours did not run and another
    contestant did. The last fields are for DRAM bytes: rows where ours is first or level, and the
    median of ours over the least possible.
    """

    rows: int
    absent: tuple[str, ...]
    level: int
    worst: float
    where: str
    dram_level: int
    dram_median: float


def ratio(row: Row, figure: str) -> float | None:
    """Return ours over the least of the others; None where ours or all others did not run."""
    found = {name: each[figure] for name, each in row["contestants"].items() if "fault" not in each}
    others = [value for name, value in found.items() if name != OURS]
    if OURS not in found or not others:
        return None
    return float(found[OURS] / min(others))


def summary(rows: Mapping[str, Row]) -> Summary:
    """Summarise the rows."""
    times = {name: value for name, row in rows.items() if (value := ratio(row, "modelled_us"))}
    bytes_ = [value for row in rows.values() if (value := ratio(row, "dram_over_least"))]
    own = [
        row["contestants"][OURS]["dram_over_least"]
        for row in rows.values()
        if "fault" not in row["contestants"][OURS]
    ]
    where = max(times, key=lambda name: times[name], default="")
    absent = [
        name
        for name, row in rows.items()
        if "fault" in row["contestants"][OURS]
        and not all("fault" in each for each in row["contestants"].values())
    ]
    return Summary(
        rows=len(times),
        absent=tuple(absent),
        level=sum(value <= LEVEL for value in times.values()),
        worst=times.get(where, 0.0),
        where=where,
        dram_level=sum(value <= LEVEL for value in bytes_),
        dram_median=median(own) if own else 0.0,
    )


_HEADER = (
    "problem",
    "contestant",
    "modelled us",
    "instructions per 1024",
    "mma share",
    "sectors / least",
    "DRAM / least",
    "wavefronts",
    "conflicts",
    "barriers",
    "registers (spilled bytes)",
    "shared KiB",
    "occupancy",
)


def markdown(rows: Mapping[str, Row]) -> str:
    """Write the rows as a table; the contestants of a problem follow each other."""
    lines = ["| " + " | ".join(_HEADER) + " |", "|" + "---|" * len(_HEADER)]
    for name, row in rows.items():
        first = name
        for contestant, each in row["contestants"].items():
            cells = [first, contestant, *_cells(each)]
            lines.append("| " + " | ".join(cells) + " |")
            first = ""
    return "\n".join(lines)


def _cells(each: Mapping[str, Any]) -> list[str]:
    if "fault" in each:
        words = str(each["fault"]).split()
        told = " ".join(words[:_MOST_WORDS]) + (" ..." if len(words) > _MOST_WORDS else "")
        return [f"did not run: {told}", *[""] * (len(_HEADER) - 3)]
    per = each["per_1024"]
    total = sum(per.values())
    used = each["registers"]
    return [
        f"{each['modelled_us']:.2f} ({each['bound_by']})",
        f"{total:.3g}",
        f"{per['mma'] / total:.0%}",
        f"{each['sectors_over_least']:.2f}",
        f"{each['dram_over_least']:.2f}",
        f"{each['shared_wavefronts']:,}",
        f"{each['conflict_share']:.1%}",
        f"{each['barriers']:,}",
        "unknown" if used is None else f"{used} ({each['spilled_bytes']})",
        f"{each['shared_bytes'] / 1024:.0f}",
        "unknown" if each["occupancy"] is None else f"{each['occupancy']:.0%}",
    ]
