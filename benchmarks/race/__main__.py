"""Race other people's kernels and ours on the virtual GPU, and record the table.

    python -m benchmarks.race --only matmul

Each row is recorded before the next one starts; rows that are recorded already are kept, unless
`--again` is given.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks import record
from benchmarks.race.cutlass import Cutlass
from benchmarks.race.machine import Machine
from benchmarks.race.ours import Boltgen
from benchmarks.race.rows import ROWS
from benchmarks.race.run import race
from benchmarks.race.table import SHARE_WANTED, WORST_ALLOWED, markdown, summary
from benchmarks.race.triton import Triton

_NAME = "race"
_TARGET = (
    f"ours first or level in {SHARE_WANTED:.0%} of the rows, never worse than {WORST_ALLOWED}x; "
    "facts about programs, no predictions of a GPU"
)
CONTESTANTS = (Boltgen(), Triton(), Cutlass())


def main() -> int:
    """Run the rows that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has the word")
    parser.add_argument("--again", action="store_true", help="rows that are recorded already, too")
    parser.add_argument("--table", action="store_true", help="print the recorded table, run none")
    options = parser.parse_args()
    recorded = record.earlier(_NAME).get("rows", {})
    rows = {f"{problem.name}, {arch}": (arch, problem) for arch, problem in ROWS}
    recorded = {name: recorded[name] for name in rows if name in recorded}
    if not options.table:
        chosen = [name for name in rows if options.only in name]
        if not chosen:
            parser.error(f"no row has {options.only!r} in its name; rows are {', '.join(rows)}")
        machine = Machine()
        for name in chosen:
            if name in recorded and not options.again:
                continue
            started = time.monotonic()
            arch, problem = rows[name]
            recorded[name] = race(machine, problem, arch, CONTESTANTS)
            ordered = {each: recorded[each] for each in rows if each in recorded}
            record.keep(_NAME, {"rows": ordered}, _TARGET)
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    print(markdown(recorded))
    print(summary(recorded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
