"""Measures boltgen's kernels on this machine's GPU: correctness, and speed beside the vendor's.

    python3 run_gpu_suite.py --minutes 9 --out results

compiles with all cores and measures at once, the most valuable first. It needs the Python that the
bundle was made for, with NumPy, Jinja, filelock and rich, nvcc 13, g++, and a driver for CUDA 13;
no network. With PyTorch it compares. A run that was cut short goes on where it was: give the same
command again. `python -m benchmarks.gpu.apply results`, in the checkout, makes tables and records.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

# Packages that the GPU's machine lacks.
PACKAGES = "packages"
BUNDLE = Path(__file__).resolve().parent
# CUDA 13 wants this driver. Source: CUDA Toolkit 13.0 release notes, table 3.
OLDEST_DRIVER = 580
# A GPU that nobody uses has little memory taken, and does nothing.
_MOST_USED_SHARE, _MOST_BUSY_PERCENT = 0.05, 5
_MOST_ASKED, _ASKED_AGAIN_S = 4, 0.5
# PyTorch looks here for a user's name, which its caches have in theirs.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
# The statuses that worker.py ends with.
_FINISHED, _OUT_OF_TIME, _UNUSABLE, _AGAIN = 0, 3, 4, 5
_RESULTS, _CURRENT = "suite-results.json", "current-item.json"
_MOST_RESTARTS = 20
_POLL_SECONDS = 0.2
_MOST_NAMED = 6


class SuiteError(Exception):
    """Why the suite cannot run here, and what to do."""


class BusyError(SuiteError):
    """Somebody uses the GPU."""


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


def check_python(version: str) -> None:
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
    for package in ("numpy", "jinja2", "filelock", "rich"):
        if importlib.util.find_spec(package) is None:
            raise SuiteError(f"{sys.executable} has no {package}: install it")


def check_gpu() -> None:
    """Check by nvidia-smi, where there is one, that the driver is new enough and the GPU free.

    What ran a second ago still counts as use, so it is asked several times.

    Raises:
        SuiteError: the driver is too old, or somebody uses the GPU.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return
    for _ in range(_MOST_ASKED - 1):
        try:
            _check_gpu(tool)
        except BusyError:
            time.sleep(_ASKED_AGAIN_S)
        else:
            return
    _check_gpu(tool)


def _check_gpu(tool: str) -> None:
    fields = "name,driver_version,utilization.gpu,memory.used,memory.total"
    command = [tool, "--id=0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [one.strip() for one in done.stdout.strip().split(",")]
    if done.returncode or len(found) != len(fields.split(",")):
        raise SuiteError(
            f"nvidia-smi sees no GPU: {(done.stderr or done.stdout).strip()[:300]}; start the "
            "suite where it does"
        )
    name, driver, percent, used, total = found
    version = re.match(r"\d+", driver)
    if version and int(version[0]) < OLDEST_DRIVER:
        raise SuiteError(
            f"{name} has driver {driver}, and CUDA 13 needs {OLDEST_DRIVER} or newer: update the "
            "driver, or use another machine"
        )
    numbers = [int(text) if text.isdigit() else 0 for text in (percent, used, total)]
    if numbers[0] > _MOST_BUSY_PERCENT or numbers[1] > _MOST_USED_SHARE * max(numbers[2], 1):
        raise BusyError(
            f"{name} is busy: {percent} % used, {used} of {total} MiB taken; end what uses it "
            "(`nvidia-smi` lists it), or give --busy to measure all the same"
        )


def work_folder(given: Path | None) -> Path:
    """The folder of what is built: of this bundle's own, for kernels of another are others."""
    if given:
        return given.absolute()
    digest = hashlib.sha256((BUNDLE / "manifest.json").read_bytes()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "boltgen-gpu-suite" / digest


def unpack_packages(work: Path) -> None:
    """Unpack the bundle's packages and headers, unless that was done before.

    Raises:
        SuiteError: there is no room.
    """
    done, staged = work / PACKAGES, work / f"{PACKAGES}.{os.getpid()}"
    if done.is_dir():
        return
    try:
        work.mkdir(parents=True, exist_ok=True)
        with tarfile.open(BUNDLE / f"{PACKAGES}.tar.xz") as archive:
            archive.extractall(staged, filter="data")
        (staged / PACKAGES).rename(done)
    except OSError as error:
        raise SuiteError(
            f"{work} cannot be filled ({error.strerror or error}): free some space, or name "
            "another folder with --work"
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def environment(work: Path) -> dict[str, str]:
    """The environment of builder and workers."""
    found = dict(os.environ)
    found["PYTHONPATH"] = os.pathsep.join((str(BUNDLE), str(work / PACKAGES)))
    if not any(found.get(name) for name in _NAMES):
        # In a container the user may have a number only, and PyTorch would compile nothing.
        found["LOGNAME"] = f"user-{os.getuid()}"
    return found


def supervise(options: argparse.Namespace, work: Path) -> int:
    """Run the builder, and workers until all is done or time is up; how the last one ended."""
    from benchmarks.gpu.processes import end_tree, resume_tree  # noqa: PLC0415 (in the bundle)

    deadline = time.monotonic() + 60.0 * options.minutes
    (options.out / _CURRENT).unlink(missing_ok=True)
    (work / "builders.json").unlink(missing_ok=True)
    for path in (work / "built").glob("*.json"):
        if json.loads(path.read_text())["error"]:
            path.unlink()  # it is tried again
    there = environment(work)
    common = ["--bundle", str(BUNDLE), "--work", str(work), "--jobs", str(options.jobs)]
    common += ["--sections", options.sections, "--only", options.only]
    builder = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.building", *common], env=there
    )
    try:
        for _ in range(_MOST_RESTARTS):
            command = [sys.executable, "-m", "benchmarks.gpu.worker", *common]
            command += ["--out", str(options.out)]
            command += ["--seconds", f"{deadline - time.monotonic():.1f}"]
            command += ["--builder", str(builder.pid)]
            command += [word for folder in options.before for word in ("--before", str(folder))]
            command += ["--virtual"] if options.virtual else []
            command += ["--no-vendor"] if options.no_vendor else []
            command += ["--no-compile"] if options.no_compile else []
            worker = subprocess.Popen(command, env=there)
            status = _wait(worker, builder, options.out / _CURRENT, deadline)
            resume_tree(builder.pid)
            if status in (_FINISHED, _OUT_OF_TIME, _UNUSABLE):
                return status
            if time.monotonic() >= deadline:
                return _OUT_OF_TIME
            if status != _AGAIN and not _blame(options.out, status):
                raise SuiteError(
                    f"the worker ended with status {status} before it measured anything; what it "
                    "printed is above"
                )
        raise SuiteError(f"{_MOST_RESTARTS} workers died one after another: the GPU is not usable")
    finally:
        end_tree(builder.pid)
        builder.wait()


def _wait(
    worker: subprocess.Popen[bytes],
    builder: subprocess.Popen[bytes],
    current: Path,
    deadline: float,
) -> int:
    """The worker's status; killed where an item takes too long, or time is up."""
    from benchmarks.gpu.processes import end_tree  # noqa: PLC0415 (in the bundle)

    try:
        while True:
            try:
                return worker.wait(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                builder.poll()  # so that it is reaped
            is_late = time.monotonic() >= deadline
            if is_late or time.time() > _latest(current):
                end_tree(worker.pid)
                worker.wait()
                return _OUT_OF_TIME if is_late else -9
    except KeyboardInterrupt:
        end_tree(worker.pid)
        worker.wait()
        raise


def _latest(current: Path) -> float:
    """When the item at hand has to be done; without one, no time is too late."""
    try:
        form = json.loads(current.read_text())
        return float(form["began"]) + float(form["most_s"])
    except (OSError, ValueError, KeyError):
        return float("inf")


def _blame(out: Path, status: int) -> bool:
    """Write the item that the worker died of into the results; whether there was one."""
    try:
        item = json.loads((out / _CURRENT).read_text())
        key, most_s = item["key"], item["most_s"]
        path = out / _RESULTS
        form = json.loads(path.read_text())
    except (OSError, ValueError, KeyError):
        return False
    said = f"the worker died of it (status {status}; -9: it took over {most_s:.0f} s)"
    form["items"][key] = {"status": "failed", "error": said, "seconds": 0.0}
    staged = path.with_suffix(".tmp")
    staged.write_text(json.dumps(form, indent=1))
    staged.replace(path)
    (out / _CURRENT).unlink()
    return True


def summary(
    out: Path, plan: dict[str, list[str]], before: list[Path], absent: dict[str, str]
) -> str:
    """Count the results by the parts of the plan, and name what is wrong and was not reached.

    `plan` has the keys of each part's items, and `absent` why items are not in the bundle.
    """
    items: dict[str, Any] = {}
    for folder in (*before, out):
        path = folder / _RESULTS
        items.update(json.loads(path.read_text())["items"] if path.is_file() else {})
    lines = []
    for title, keys in plan.items():
        missing = [key for key in keys if key not in items]
        fine = sum(key in items and not _trouble(items[key]) for key in keys)
        told = f"{title}: {fine} of {len(keys)} are fine"
        if missing:
            named = ", ".join(missing[:_MOST_NAMED])
            more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
            told += f"; not reached: {named}{more}"
        lines.append(told)
    troubles = {key: _trouble(item) for key, item in items.items()}
    lines += [f"{key}: {said[:80]}" for key, said in troubles.items() if said]
    return "\n".join(
        [*lines, *(f"{key} is not in the bundle: {why}" for key, why in absent.items())]
    )


def _trouble(item: dict[str, Any]) -> str:
    """Describe the fault of a result; return an empty text if it has none."""
    if item["status"] != "done":
        return str(item["error"])
    verdict = str(item.get("verdict", ""))
    return verdict if verdict.startswith("wrong") else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after so long; default 9")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for results")
    parser.add_argument(
        "--before", type=Path, action="append", default=[], help="results of an earlier run: go on"
    )
    parser.add_argument("--work", type=Path, help="folder for what is built; default: in ~/.cache")
    parser.add_argument(
        "--jobs", type=int, default=_cores(), help="compilers at once; default: all cores"
    )
    parser.add_argument("--sections", default="", help="only these, with commas between")
    parser.add_argument("--only", default="", help="only these items, with commas between")
    parser.add_argument("--no-vendor", action="store_true", help="measure ours alone")
    parser.add_argument(
        "--no-compile", action="store_true", help="without torch.compile, which takes minutes"
    )
    parser.add_argument("--busy", action="store_true", help="measure though the GPU is in use")
    parser.add_argument(
        "--virtual", action="store_true", help="on boltgen's virtual GPU: modelled times, no vendor"
    )
    options = parser.parse_args()
    try:
        manifest = check_bundle()
        check_python(manifest["python"])
        if not (options.virtual or options.busy):
            check_gpu()
        options.out.mkdir(parents=True, exist_ok=True)
        work = work_folder(options.work)
        unpack_packages(work)
        sys.path.insert(0, str(BUNDLE))
        status = supervise(options, work)
    except (SuiteError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nthe run was interrupted; give the same command again to go on")
        return 130
    if status == _UNUSABLE:
        return 2
    plan = json.loads((BUNDLE / f"plan-{manifest['arch']}.json").read_text())
    print(summary(options.out, plan, options.before, manifest["unreachable"]))
    unfinished = "time is up: give the same command again to go on"
    print(unfinished if status == _OUT_OF_TIME else "finished")
    return 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


if __name__ == "__main__":
    sys.exit(main())
