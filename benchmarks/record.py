"""Record a benchmark's figures: one JSON file each, with the machine, the commit and the date."""

from __future__ import annotations

import json
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_LINE = 160


def repeat_seconds(run: Callable[[], object], repeats: int, warm_ups: int = 1) -> list[float]:
    """Wall seconds of each of `repeats` calls, after `warm_ups` that are not counted."""
    for _ in range(warm_ups):
        run()
    seconds = []
    for _ in range(repeats):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
    return seconds


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median and range of repeated measurements, and all of them."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "all": list(values),
    }


def earlier(name: str) -> dict[str, Any]:
    """Return the figures that `write` kept last, or none."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def write(name: str, figures: dict[str, Any], target: str) -> Path:
    """Do as `keep`, and print the file."""
    path = keep(name, figures, target)
    print(path.read_text(), end="")
    return path


def keep(name: str, figures: dict[str, Any], target: str) -> Path:
    """Keep `figures` in `benchmarks/results/NAME.json`.

    `target` says in words what the figures are to reach.
    """
    record = {
        "benchmark": name,
        "command": f"python -m benchmarks.{name} " + " ".join(sys.argv[1:]),
        "target": target,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": {"cpu": _cpu(), "cores": _cores(), "python": platform.python_version()},
        "figures": figures,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(dumped(record) + "\n")
    return path


def dumped(form: object, *, sort_keys: bool = False) -> str:
    """Return `form` as JSON; a list or object of plain values is on one line if it is short."""
    text = json.dumps(form, indent=2, sort_keys=sort_keys)
    inner = re.compile(r"([\[{])\n\s+((?:[^\[\]{}\"]|\"(?:[^\"\\]|\\.)*\")+?)\n\s+([\]}])")

    def joined(found: re.Match[str]) -> str:
        line = found[1] + re.sub(r",\n\s+", ", ", found[2]) + found[3]
        return line if len(line) <= _LINE else found[0]

    return inner.sub(joined, text)


def commit() -> str:
    """Return this checkout's `git describe`; empty outside of a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _cores() -> int:
    return len([x for x in Path("/proc/cpuinfo").read_text().splitlines() if "processor" in x])
