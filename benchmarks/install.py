"""A newcomer's first minutes: wheel, fresh environment, first checked model, by phases.

The wheel is installed from the index into an environment of its own; home, cache and data folders
are empty. With `--prebuilt` the wheel has the virtual GPU in it. `wall` is the time that passed;
`cpu` is the processor time of all processes, which says more on a machine that does other work.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.harness.empty_machine import DIGITS, ROOT, build_wheel, empty_machine, output_of
from benchmarks.record import earlier, write
from boltgen.build.progress import reporter_for
from boltgen.build.vgpu import prebuild
from boltgen.settings import settings_from

TARGET = "120 s without pip; the virtual GPU in 60 s on two cores"
# Builds the virtual GPU and nothing else.
VGPU = "import boltgen; boltgen.activate('vgpu')"

Phases = dict[str, dict[str, float]]


@contextmanager
def phase(name: str, phases: Phases) -> Iterator[None]:
    """Measure what the children of this process take."""
    started, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    phases[name] = {"wall_s": round(perf_counter() - started, 2), "cpu_s": round(cpu, 2)}
    print(f"{name:24}{phases[name]['wall_s']:8.1f} s wall{cpu:8.1f} s cpu", flush=True)


def measure(folder: Path, *, with_libraries: bool) -> Phases:
    """Go the way of a newcomer in `folder`; the seconds of each step."""
    phases: Phases = {}
    libraries = folder / "vgpu" if with_libraries else None
    if libraries:
        with phase("prebuild", phases):
            prebuild(libraries, settings_from(), reporter_for())
    with phase("wheel", phases):
        wheel = build_wheel(ROOT, folder, libraries)
    with phase("pip", phases):
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env" / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, f"{wheel}[relax,onnx]"], check=True, cwd=folder)
    env = empty_machine(folder / "home")
    boltgen = str(folder / "env" / "bin" / "boltgen")
    for name in ("digits.onnx", "heldout.npz"):
        shutil.copy(DIGITS / name, folder)
    script = "import numpy; numpy.savez('x', input=numpy.load('heldout.npz')['images'][:40])"
    output_of([python, "-c", script], env, folder)
    steps = {
        "virtual GPU": [python, "-c", VGPU],
        "compile and check": [boltgen, "compile", "digits.onnx", "--arch", "sm_80", "-o", "d"],
        "inspect": [boltgen, "inspect", "d"],
        "check again": [boltgen, "check", "d"],
        "run": [boltgen, "run", "d", "--inputs", "x.npz", "--device", "vgpu", "-o", "y.npz"],
    }
    for name, command in steps.items():
        with phase(name, phases):
            printed = output_of(command, env, folder)
        if name == "inspect":
            print(printed)
    return phases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--prebuilt", action="store_true", help="with the virtual GPU in the wheel (`make wheel`)"
    )
    with_libraries = parser.parse_args().prebuilt
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        phases = measure(Path(folder), with_libraries=with_libraries)
    users = ("virtual GPU", "compile and check")
    figures = {
        "phases": phases,
        "to_first_checked_model": {
            kind: round(sum(phases[name][kind] for name in users), 2)
            for kind in ("wall_s", "cpu_s")
        },
        "load_average": {"before": load, "after": os.getloadavg()},
    }
    name = "prebuilt" if with_libraries else "from_sources"
    write("install", earlier("install") | {name: figures}, TARGET)


if __name__ == "__main__":
    main()
