"""Times the two commands of the suite for a GPU against the virtual GPU.

    python -m benchmarks.gpu_rehearsal [--pack]

Packs the bundle for sm_90a from this checkout, with an empty cache of kernels, for its time and
size. Then packs a few small items for the virtual GPU's sm_80, and runs them: seconds until the
first result is on disk, and until all are, on this machine's cores. The times are of packing and
compiling, and say nothing of a GPU. `--pack` packs for sm_90a alone, and keeps the other figures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, earlier, write
from boltgen.bench.results import FILE
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from

_TARGET = "bundle within 120 s and 60 MB; first number within 180 s of the second command"
_POLL_S = 0.2


def pack(folder: Path, *words: str, environment: dict[str, str]) -> dict[str, Any]:
    """Pack a bundle: seconds, bytes, and how many kernels it has, of which some are compiled."""
    python = "{}.{}".format(*sys.version_info)
    command = [sys.executable, "-m", "benchmarks.gpu.bundle", "--out", str(folder)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, "--python", python, *words], cwd=ROOT, env=environment, check=True)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((folder / "manifest.json").read_text())
    arch = manifest["arch"]
    plan = json.loads((folder / f"plan-{arch}.json").read_text())
    return {
        "seconds": round(seconds, 1),
        "processor_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "load_average": round(os.getloadavg()[0], 1),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "items": {title: len(keys) for title, keys in plan.items()},
        "compiled": len(json.loads((folder / f"kernels-{arch}.json").read_text())),
        "unreachable": len(manifest["unreachable"]),
    }


def run(bundle: Path, out: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run a bundle on the virtual GPU: seconds until the first result, and until all."""
    command = [sys.executable, "run_gpu_suite.py", "--virtual", "--out", str(out)]
    command += ["--work", str(out / "work"), "--minutes", "30"]
    started, first = time.monotonic(), 0.0
    with subprocess.Popen(command, cwd=bundle, env=environment) as process:
        while process.poll() is None:
            path = out / FILE
            if not first and path.is_file() and json.loads(path.read_text())["items"]:
                first = time.monotonic() - started
            time.sleep(_POLL_S)
    if process.returncode:
        sys.exit(f"the suite ended with status {process.returncode}")
    items = json.loads((out / FILE).read_text())["items"]
    return {
        "load_average": round(os.getloadavg()[0], 1),
        "seconds_to_first_result": round(first, 1),
        "seconds": round(time.monotonic() - started, 1),
        "items": len(items),
        "failed": sum(item["status"] != "done" for item in items.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pack", action="store_true", help="time packing for sm_90a alone")
    options = parser.parse_args()
    settings = settings_from()
    libraries = vgpu_libraries(settings)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        # No kernel and no model was compiled before; the virtual GPU runs PTX alone.
        fresh = {"BOLTGEN_CACHE_DIR": str(work / "cache"), "BOLTGEN_DEVICE_CODE": "ptx"}
        here = {**os.environ, **fresh}
        figures = {**earlier("gpu_rehearsal"), "pack_sm_90a": pack(work / "full", environment=here)}
        if not options.pack:
            quick, there = (
                work / "quick",
                vgpu_environment(settings, libraries, {"device": "sm_80"}),
            )
            figures["pack_quick"] = pack(quick, "--quick", "--arch", "sm_80", environment=here)
            figures["run_quick_on_the_virtual_gpu"] = run(quick, work / "out", {**there, **fresh})
    write("gpu_rehearsal", figures, _TARGET)


if __name__ == "__main__":
    main()
