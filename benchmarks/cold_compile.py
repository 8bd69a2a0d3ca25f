"""Compile models with an empty cache, and find where the time goes.

    python -m benchmarks.cold_compile [--label now] [MODEL:ARCH ...]

Every compilation is a process of its own whose cache holds the virtual GPU alone, as an installed
wheel does. The figures are processor seconds of all its processes: by phase, and by program, as
/proc shows it 20 times a second; and the most memory that they had at once. Wall seconds stand
beside them: other work on the machine makes them longer. Figures of another label are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from benchmarks.record import ROOT, earlier, write
from boltgen.build.cache import Cache
from boltgen.build.vgpu import vgpu_libraries
from boltgen.settings import settings_from

MODELS = ("resnet50:sm_80", "bert_base:sm_80")
_NAME = "cold_compile"
_POLL_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CHILD = "--compile"


class Watch(threading.Thread):
    """Sample a process and its descendants: processor seconds by program, and memory."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._seconds: dict[int, tuple[str, float]] = {}
        self._ended = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        """Sample until `stop`."""
        while not self._ended.wait(_POLL_S):
            self._sample()

    def stop(self) -> dict[str, float]:
        """Return the seconds by program, the most first."""
        self._ended.set()
        self.join()
        found: defaultdict[str, float] = defaultdict(float)
        for program, seconds in self._seconds.values():
            found[program] += seconds
        most_first = sorted(found.items(), key=lambda each: -each[1])
        return {name: round(seconds, 2) for name, seconds in most_first if seconds > 0}

    def _sample(self) -> None:
        total = 0
        for process in _descendants(self._root):
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / _TICKS
                known = self._seconds.get(process)
                # A process is `python` until it is another program.
                program = _program(process) if known is None or seconds < 1 else known[0]
                self._seconds[process] = program, seconds
                total += int(fields[21]) * _PAGE
        self.peak_bytes = max(self.peak_bytes, total)


def _descendants(process: int) -> Iterator[int]:
    yield process
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _descendants(int(child))


def _program(process: int) -> str:
    words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
    name = Path(words[0]).name
    if name == "cc1plus":
        return "cc1plus, preprocessing" if "-E" in words else "cc1plus"
    if name.startswith("python"):
        return "python: boltgen" if _CHILD in words else "python: workers of the check"
    return name


def _used() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _compile(path: Path, arch: str) -> None:
    """Compile in this process, and print the figures that only it knows."""
    import boltgen  # noqa: PLC0415 (its import is a phase)
    from boltgen.pipeline import Phases  # noqa: PLC0415

    phases: dict[str, float] = {"import of boltgen": _used()}
    timed = Phases.phase

    @contextlib.contextmanager
    def phase(self: Phases, name: str) -> Iterator[None]:
        before = _used()
        try:
            with timed(self, name):
                yield
        finally:
            phases[name] = phases.get(name, 0.0) + _used() - before

    Phases.phase = phase  # type: ignore[method-assign]
    artifact = boltgen.compile(path, arch=arch)
    phases["other"] = _used() - sum(phases.values())
    metadata = artifact.metadata
    print(
        json.dumps(
            {
                "kernels": len(metadata.kernels),
                "phase_cpu_s": {name: round(seconds, 2) for name, seconds in phases.items()},
                "phase_wall_s": {each.name: each.seconds for each in metadata.phases},
                "predicted_us": round(sum(each.time_us or 0.0 for each in metadata.regions), 1),
            }
        )
    )


def measure(model: Path, arch: str, vgpu: Path) -> dict[str, Any]:
    """Compile `model` in a process of its own with an empty cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = Cache(folder / "cache")
        kept = cache.folder("vgpu", vgpu.name)
        kept.parent.mkdir(parents=True)
        shutil.copytree(vgpu, kept)
        environment = os.environ | {
            "BOLTGEN_CACHE_DIR": str(cache.root),
            "BOLTGEN_DATA_DIR": str(folder / "data"),
        }
        before, started = _used(), time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{_NAME}", _CHILD, str(model), arch],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
        )
        watch = Watch(child.pid)
        watch.start()
        told, _ = child.communicate()
        programs = watch.stop()
        if child.returncode:
            raise SystemExit(f"{model.stem} for {arch} does not compile; see above")
        sources = [path.parent for path in (cache.root / "kernel").glob("??/*/kernel.o")]
        return {
            "cpu_s": round(_used() - before, 2),
            "wall_s": round(time.monotonic() - started, 2),
            "peak_mb": round(watch.peak_bytes / 1e6),
            "objects": len(sources),
            **json.loads(told.splitlines()[-1]),
            "program_cpu_s": programs,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL:ARCH")
    parser.add_argument("--label", default="now", help="the name of these figures in the record")
    options = parser.parse_args()
    from models import build  # noqa: PLC0415 (the process that compiles needs none)

    figures = earlier(_NAME)
    kept = figures.setdefault(options.label, {})
    settings = settings_from()
    vgpu = vgpu_libraries(settings, Cache(settings.cache_dir))
    for each in options.models:
        model, _, arch = each.partition(":")
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / f"{model}.onnx"
            onnx.save(build(model), path)
            kept[each] = measure(path, arch, vgpu)
        print(each, json.dumps(kept[each], indent=1), flush=True)
        write(_NAME, figures, target="half the processor seconds of the first record")


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        _compile(Path(sys.argv[2]), sys.argv[3])
    else:
        main()
