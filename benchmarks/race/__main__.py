"""Race other people's kernels and ours on the virtual GPU, and record the table.

    python -m benchmarks.race --only matmul

Each row is recorded before the next one starts. Contestants that a row has already are kept, unless
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
from benchmarks.race.tvm_cutlass import TvmCutlass
from benchmarks.race.tvm_schedules import Tvm

_NAME = "race"
_TARGET = (
    f"ours first or level in {SHARE_WANTED:.0%} of the rows, never worse than {WORST_ALLOWED}x; "
    "facts about programs, no predictions of a GPU"
)
# Packages whose wheels were tried, and why they do not race.
ABSENT = {
    "Hidet 0.6.1": "a symbolic input on cuda asks the driver for a device: error 35 without a GPU",
    "TileLang 0.1.15": "it writes CUDA without a GPU, but its tvm-ffi is older than TVM 0.27's",
    "FlashInfer 0.7.2.post1": "its headers are in the wheel, but no problem here is a decoding",
}
CONTESTANTS = (Boltgen(), Triton(), Cutlass(), Tvm(), TvmCutlass())


def main() -> int:
    """Run the rows that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has the word")
    parser.add_argument(
        "--again", action="store_true", help="contestants that are recorded already, too"
    )
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
            found = {} if options.again or name not in recorded else recorded[name]["contestants"]
            missing = [each for each in CONTESTANTS if each.name not in found]
            if not missing:
                continue
            started = time.monotonic()
            arch, problem = rows[name]
            row = race(machine, problem, arch, missing)
            found = found | row["contestants"]
            ordered = {each.name: found[each.name] for each in CONTESTANTS}
            recorded[name] = row | {"contestants": ordered}
            kept = {each: recorded[each] for each in rows if each in recorded}
            record.keep(_NAME, {"rows": kept, "absent": ABSENT}, _TARGET)
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    print(markdown(recorded))
    for name, reason in ABSENT.items():
        print(f"{name} does not race: {reason}")
    print(summary(recorded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
