"""Measures boltgen's kernels on this machine's GPU: correctness, and speed beside the vendor's.

    python3 run_gpu_suite.py --slice 1/4 --minutes 8 --out results

needs the Python that the bundle was made for, with PyTorch, Jinja and filelock, and a driver for
CUDA 13; no network. A slice that was cut short goes on where it was: give the same command again.
`boltgen bench report results`, where boltgen is installed, makes tables and plots of all slices.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Packages that the GPU's machine has not.
PACKAGES = "packages"
BUNDLE = Path(__file__).resolve().parent
# The variables in which PyTorch looks for a user's name for its caches.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
# The exit statuses of worker.py.
_FINISHED, _OUT_OF_TIME, _UNUSABLE, _AGAIN = 0, 3, 4, 5
_MOST_RESTARTS = 20
_POLL_SECONDS = 0.2


class SuiteError(Exception):
    """Why the suite cannot run here, and what to do."""


def parse_slice(text: str) -> tuple[int, int]:
    """Read `2/4` as (2, 4).

    Raises:
        SuiteError: it is no such thing.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise SuiteError(f"--slice {text!r} is not K/N with 1 <= K <= N: give 2/4 for the second")
    return int(match[1]), int(match[2])


def check_bundle(bundle: Path = BUNDLE) -> dict[str, Any]:
    """Compare every file with the manifest, which is returned.

    Raises:
        SuiteError: the bundle is incomplete or damaged.
    """
    path = bundle / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        files = manifest["files"]
    except (OSError, ValueError, KeyError) as error:
        raise SuiteError(
            f"{bundle} is no bundle: {path.name} cannot be read ({error}); copy all of the folder "
            "that `make gpu-bundle` made"
        ) from error
    for name, digest in files.items():
        file = bundle / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise SuiteError(f"the bundle is damaged: {name} is missing or another; copy it again")
    return manifest


def check_python(version: str, *, vendor: bool) -> None:
    """Check that this is the bundle's Python, with the packages that are not in the bundle.

    Raises:
        SuiteError: it is another, or a package is missing.
    """
    here = "{}.{}".format(*sys.version_info)
    if here != version:
        raise SuiteError(
            f"this is Python {here}, and the bundle is for {version}: start the suite with that "
            f"one, or make a bundle with `--python {here}`"
        )
    for package in ("numpy", "jinja2", "filelock", *(("torch",) if vendor else ())):
        if importlib.util.find_spec(package) is None:
            hint = ", or give --no-vendor" if package == "torch" else ""
            raise SuiteError(f"{sys.executable} has no {package}: install it{hint}")


def worker_command(
    options: argparse.Namespace, number: int, count: int, left: float, unpacked: str
) -> list[str]:
    """The command line of a worker, which unpacks libraries in `unpacked`."""
    command = [sys.executable, "-m", "benchmarks.gpu.worker", "--bundle", str(BUNDLE)]
    command += ["--out", str(options.out), "--number", str(number), "--count", str(count)]
    command += ["--unpacked", unpacked]
    command += ["--seconds", f"{left:.1f}", "--sections", options.sections]
    command += ["--virtual"] if options.virtual else []
    return command + (["--no-vendor"] if options.no_vendor else [])


def worker_environment() -> dict[str, str]:
    """Return the environment of workers."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join((str(BUNDLE), str(BUNDLE / PACKAGES)))
    if not any(environment.get(name) for name in _NAMES):
        # In a container the user may have a number only, and PyTorch would compile nothing.
        environment["LOGNAME"] = f"user-{os.getuid()}"
    return environment


def supervise(options: argparse.Namespace, number: int, count: int) -> int:
    """Run workers until the slice is done or time is up; return the last one's exit status."""
    deadline = time.monotonic() + 60.0 * options.minutes
    current = options.out / f"current-{number}-of-{count}.json"
    current.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-suite-", ignore_cleanup_errors=True) as unpacked:
        for _ in range(_MOST_RESTARTS):
            left = deadline - time.monotonic()
            command = worker_command(options, number, count, left, unpacked)
            process = subprocess.Popen(command, env=worker_environment())
            status = _wait(process, current, deadline)
            if status in (_FINISHED, _OUT_OF_TIME, _UNUSABLE):
                return status
            if time.monotonic() >= deadline:
                return _OUT_OF_TIME
            if status != _AGAIN and not _blame(options.out, number, count, current, status):
                raise SuiteError(
                    f"the worker ended with status {status} before it measured anything; what it "
                    "printed is above"
                )
    raise SuiteError(f"{_MOST_RESTARTS} workers died one after another: the GPU is not usable")


def _wait(process: subprocess.Popen[bytes], current: Path, deadline: float) -> int:
    """The worker's status; killed where an item takes too long, or time is up."""
    while True:
        try:
            return process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            process.kill()
            process.wait()
            raise
        is_late = time.monotonic() >= deadline
        if is_late or time.time() > _latest(current):
            process.kill()
            process.wait()
            return _OUT_OF_TIME if is_late else -9


def _latest(current: Path) -> float:
    """When the item at hand has to be done; without one, no time is too late."""
    try:
        form = json.loads(current.read_text())
        return float(form["began"]) + float(form["most_s"])
    except (OSError, ValueError, KeyError):
        return float("inf")


def _blame(out: Path, number: int, count: int, current: Path, status: int) -> bool:
    """Write the item that the worker died of into the results; whether there was one."""
    try:
        item = json.loads(current.read_text())
        key, most_s = item["key"], item["most_s"]
        path = out / f"slice-{number}-of-{count}.json"
        form = json.loads(path.read_text())
    except (OSError, ValueError, KeyError):
        return False
    said = f"the worker died of it (status {status}; -9: it took over {most_s:.0f} s)"
    form["items"][key] = {"status": "failed", "error": said, "seconds": 0.0}
    staged = path.with_suffix(".tmp")
    staged.write_text(json.dumps(form, indent=1))
    staged.replace(path)
    current.unlink()
    return True


def table(out: Path, number: int, count: int) -> str:
    """Count a slice's results by section; a failed or wrong item has a line of its own."""
    path = out / f"slice-{number}-of-{count}.json"
    items = json.loads(path.read_text())["items"] if path.is_file() else {}
    counts: dict[str, list[bool]] = {}
    lines = [] if items else ["nothing was measured"]
    for key, item in sorted(items.items()):
        verdict = item.get("verdict", "") if item["status"] == "done" else item["error"]
        is_fine = item["status"] == "done" and not verdict.startswith("wrong")
        counts.setdefault(key.partition("/")[0], []).append(is_fine)
        lines += [] if is_fine else [f"{key}: {verdict[:80]}"]
    said = [f"{section}: {sum(fine)} of {len(fine)} are fine" for section, fine in counts.items()]
    return "\n".join([*said, *lines])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slice", default="1/1", metavar="K/N", help="which part; default 1/1")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so long; default 8")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for results")
    parser.add_argument("--sections", default="", help="only these, with commas between")
    parser.add_argument("--no-vendor", action="store_true", help="measure ours alone")
    parser.add_argument(
        "--virtual", action="store_true", help="on boltgen's virtual GPU: modelled times, no vendor"
    )
    options = parser.parse_args()
    try:
        number, count = parse_slice(options.slice)
        manifest = check_bundle()
        vendor = not (options.no_vendor or options.virtual)
        check_python(manifest["python"], vendor=vendor)
        options.out.mkdir(parents=True, exist_ok=True)
        status = supervise(options, number, count)
    except (SuiteError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nslice {options.slice} was interrupted; give the same command again to go on")
        return 130
    if status == _UNUSABLE:
        return 2
    print(table(options.out, number, count))
    unfinished = "; time is up: give the same command again to go on"
    print(f"slice {options.slice}{unfinished if status == _OUT_OF_TIME else ': finished'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
