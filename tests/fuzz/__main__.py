"""The long fuzzing: `python -m tests.fuzz --seed N --seconds S [--target NAME]...`.

Ends with status 1 where a case went wrong; each is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from tests.fuzz.runner import Result, results
from tests.fuzz.targets import TARGETS

_ROUND = 100


def rounds(targets: Sequence[str], first: int, cases: int | None) -> Iterator[Result]:
    """The cases from `first` on, so many or without end: a hundred of each target in turn."""
    for start in itertools.count(first, _ROUND):
        stop = start + _ROUND if cases is None else min(start + _ROUND, first + cases)
        if stop <= start:
            return
        for name in targets:
            yield from results(name, range(start, stop))


def main() -> int:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first case of each target")
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long")
    parser.add_argument("--cases", type=int, help="at most so many of each target")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only these")
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    done = wrong = 0
    for result in rounds(asked.target or [*TARGETS], asked.seed, asked.cases):
        done += 1
        if result.wrong:
            wrong += 1
            again = f"--target {result.target} --seed {result.seed} --cases 1"
            print(f"{result.target}, seed {result.seed}: {result.wrong}", flush=True)
            print(f"  python -m tests.fuzz {again}", flush=True)
        if time.monotonic() > deadline:
            break
    print(f"{done} cases, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
