"""The demo's seconds with an empty cache, and again; pip's downloads are not counted.

`cpu` is the processor time of all processes: on a machine that does other work it says more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from benchmarks.install import Phases, phase
from benchmarks.record import ROOT, write


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    phases: Phases = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"BOLTGEN_CACHE_DIR": cache}
        command = [sys.executable, "-m", "models.demo"]
        for name in ("first", "again"):
            with phase(name, phases):
                subprocess.run(command, cwd=ROOT, env=environment, check=True)
    write("demo", {**phases, "load_average": os.getloadavg()}, "180 s; again 40 s")


if __name__ == "__main__":
    main()
