"""Time a compiled model from its folder to its first inference, in processes of their own.

    python -m benchmarks.first_inference [--label now] [DIR ...]

Steps, in milliseconds of wall and processor time: the import of boltgen and the one of TVM, `load`
with boltgen imported, `load` again, `open`, which copies the weights to the device, the first run,
and the median of later runs. What the first run takes beyond a later one is its own; a later run is
the virtual GPU's time. By default the models are digits and ResNet-18 at 64 x 64 pixels. Figures of
another label are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import onnx

from benchmarks.record import ROOT, earlier, write

_NAME = "first_inference"
_CHILD = "--steps"
_REPEATS = 3
_LATER_RUNS = 3


def _steps(folder: str) -> None:
    """Take the steps in this process, and print their milliseconds."""
    found: dict[str, list[float]] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        wall, cpu = perf_counter(), process_time()
        result = step()
        found[name] = [1e3 * (perf_counter() - wall), 1e3 * (process_time() - cpu)]
        return result

    def imported() -> Any:
        import boltgen  # noqa: PLC0415 (its import is a step)

        return boltgen.load

    load = timed("import of boltgen", imported)
    timed("load", lambda: load(folder))
    artifact = timed("load again", lambda: load(folder))

    def tvm() -> None:
        import boltgen  # noqa: PLC0415

        boltgen.activate("vgpu")  # comes before TVM
        import tvm  # noqa: F401, PLC0415
        from tvm import relax  # noqa: F401, PLC0415

    timed("import of TVM", tvm)
    session = timed("open", artifact.open)
    inputs = session.zeros()
    timed("first run", lambda: session.run(inputs))
    for number in range(_LATER_RUNS):
        timed(f"run {number}", lambda: session.run(inputs))
    print(json.dumps(found))


def measure(folder: Path) -> dict[str, Any]:
    """Return the median of each step of a compiled model."""
    seen: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(_REPEATS):
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{_NAME}", _CHILD, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        for name, both in json.loads(done.stdout.splitlines()[-1]).items():
            seen["later run" if name.startswith("run ") else name].append(both)
    steps = {
        name: {
            "wall_ms": round(statistics.median(wall for wall, _ in both), 2),
            "least_wall_ms": round(min(wall for wall, _ in both), 2),
            "cpu_ms": round(statistics.median(cpu for _, cpu in both), 2),
        }
        for name, both in seen.items()
    }
    beyond = {
        key: round(steps["first run"][key] - steps["later run"][key], 2) for key in ("cpu_ms",)
    }
    library = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return {
        "bytes": library,
        "steps": steps,
        "first_run_beyond_a_later_one": {
            "least_wall_ms": round(
                steps["first run"]["least_wall_ms"] - steps["later run"]["least_wall_ms"], 2
            ),
            **beyond,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--label", default="now", help="the name of these figures in the record")
    options = parser.parse_args()
    figures = earlier(_NAME)
    kept = figures.setdefault(options.label, {})
    with tempfile.TemporaryDirectory() as name:
        for folder in options.folders or _compiled(Path(name)):
            kept[folder.name] = measure(folder)
    write(_NAME, figures, target="load 50 ms; the first run 20 ms beyond a later one")


def _compiled(folder: Path) -> list[Path]:
    import boltgen  # noqa: PLC0415
    from models import build  # noqa: PLC0415

    onnx.save(build("resnet18", batch=1, image_size=64), folder / "resnet18.onnx")
    paths = (ROOT / "models/digits/digits.onnx", folder / "resnet18.onnx")
    return [boltgen.compile(path).save(folder / f"{path.stem}.boltgen") for path in paths]


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        _steps(sys.argv[2])
    else:
        main()
