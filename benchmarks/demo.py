"""The demo's seconds with an empty cache, and again; what pip downloads is not counted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from time import perf_counter

from benchmarks.record import ROOT, write


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"BOLTGEN_CACHE_DIR": cache}
        command = [sys.executable, "-m", "models.demo"]
        seconds = []
        for _ in range(2):
            started = perf_counter()
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
            seconds.append(perf_counter() - started)
    write("demo", {"first_seconds": seconds[0], "again_seconds": seconds[1]}, "5 min; again 40 s")


if __name__ == "__main__":
    main()
