"""PyTorch's operators for CUDA: the table in docs/torch-operators.md.

`python -m benchmarks.torch_operators [OPERATOR]...` exports each operator of `torch_operator_cases`
on its own, compiles it for sm_80, runs it on the virtual GPU and compares it with PyTorch. It keeps
what it finds in results/torch_operators.json and writes the table. With `--table` it writes the
table alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from benchmarks.record import RESULTS, ROOT, dumped

TABLE = ROOT / "docs" / "torch-operators.md"
KEPT = RESULTS / "torch_operators.json"
_TOGETHER = 48


def outcomes(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Return the status of each operator; run a batch that fails again, one by one."""
    alone: list[str] = []
    for at in range(0, len(names), _TOGETHER):
        group = names[at : at + _TOGETHER]
        found = {each["name"]: each for each in _run(group)}
        yield from (each for each in found.values() if each["status"] != "failed")
        alone += [
            name for name in group if found.get(name, {"status": "failed"})["status"] == "failed"
        ]
    for name in alone:
        found = {each["name"]: each for each in _run([name])}
        yield found.get(name, {"name": name, "status": "failed", "why": "its process ended"})


def _run(names: Sequence[str]) -> list[dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.torch_operator_runner", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read_kept() -> dict[str, Any]:
    """The record in the repository."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def table(kept: Mapping[str, Any]) -> str:
    """The document."""
    operators: Mapping[str, Mapping[str, str]] = kept["operators"]
    counts = Counter(each["status"] for each in operators.values())
    rows = [f"| `{name}` | {_cell(operators[name])} |" for name in sorted(operators)]
    return "\n".join(
        [
            "# PyTorch operators",
            "",
            f"{len(operators)} operators of PyTorch, each exported on its own, compiled for sm_80,",
            f"run on the virtual GPU and compared with PyTorch. Recorded on {kept['date']} by",
            "`python -m benchmarks.torch_operators`, which writes this page.",
            "",
            f"Right: {counts['ok']}. Refused by name before anything is compiled: "
            f"{counts['refused']}.",
            f"Wrong: {counts['wrong']}. Failed: {counts['failed']}.",
            "",
            "| operator | for CUDA |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _cell(found: Mapping[str, str]) -> str:
    return {"ok": "right"}.get(found["status"], found["status"])


def main() -> None:
    """Run the operators unless only the table is wanted, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="run these alone")
    parser.add_argument("--table", action="store_true", help="write the table, and run no operator")
    asked = parser.parse_args()
    if not asked.table:
        from benchmarks.torch_operator_cases import CASES  # noqa: PLC0415  which loads PyTorch

        kept: dict[str, Any] = read_kept() if KEPT.exists() else {"date": "", "operators": {}}
        kept["operators"] = {k: v for k, v in kept["operators"].items() if k in CASES}
        for each in outcomes(asked.operators or list(CASES)):
            kept["operators"][each["name"]] = {"status": each["status"], "why": each["why"]}
            if each["status"] in {"wrong", "failed"}:
                print(f"{each['name']}: {each['status']}, {each['why']}", flush=True)
            kept["date"] = datetime.now(timezone.utc).date().isoformat()
            KEPT.write_text(dumped(kept, sort_keys=True) + "\n")
    TABLE.write_text(table(read_kept()))


if __name__ == "__main__":
    main()
