"""Runs cases in a child process with limits, and says which seeds went wrong and how."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.errors import BoltgenError
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
# Imports of TVM and PyTorch take some seconds, a case takes milliseconds.
START_SECONDS, CASE_SECONDS = 120.0, 20.0
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Result:
    """One case: `wrong` says what happened that must not, and is empty where all was well."""

    target: str
    seed: int
    wrong: str


def results(
    target: str, seeds: Sequence[int], case_seconds: float = CASE_SECONDS
) -> Iterator[Result]:
    """Run the cases of `seeds`, one after another; a child that was lost is started again."""
    left = list(seeds)
    with tempfile.TemporaryDirectory(prefix="boltgen-fuzz-") as folder:
        while left:
            for result in _child(target, tuple(left), Path(folder), case_seconds):
                left.remove(result.seed)
                yield result


def _child(
    target: str, seeds: Sequence[int], folder: Path, case_seconds: float
) -> Iterator[Result]:
    """Results of one child, which ends early where it is lost to a case."""
    arguments = (target, str(folder), *map(str, seeds))
    log = folder / "child.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.runner", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        lines = _lines(process, case_seconds)
        if next(lines, "") != _READY:
            raise RuntimeError(f"{target} cannot be prepared: {log.read_text()[-3000:]}")
        for seed in seeds:
            line = next(lines, None)
            if line is None:
                how = process.poll()
                said = f"no end within {case_seconds:g} s" if how is None else f"ended: {how}"
                yield Result(target, seed, f"{said}; {log.read_text()[-1000:]}")
                return
            yield Result(target, seed, line.encode().decode("unicode_escape"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lines(process: subprocess.Popen[bytes], case_seconds: float) -> Iterator[str]:
    """The child's lines, until it ends or is silent for too long."""
    assert process.stdout is not None
    waited = START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        held = b""
        while selector.select(waited):
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                process.wait()
                return
            *whole, held = (held + chunk).split(b"\n")
            yield from (line.decode() for line in whole)
            waited = case_seconds


def _serve(name: str, folder: Path, seeds: Sequence[int]) -> None:
    """The child: a line for each case."""
    # What a library prints is no result.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    target = TARGETS[name]
    made = folder / "made"
    if not made.exists():
        made.mkdir()
        target.prepare(made)
    if target.needs_tvm:
        import tvm  # noqa: F401
    resource.setrlimit(resource.RLIMIT_AS, (target.memory_bytes,) * 2)
    answers.write(f"{_READY}\n")
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            wrong = ""
            try:
                target.run(made, Path(own), random.Random(f"{name}/{seed}"))
            except BoltgenError:
                pass
            except BaseException:
                wrong = traceback.format_exc()[-3000:]
        answers.write(wrong.encode("unicode_escape").decode() + "\n")


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), [int(text) for text in sys.argv[3:]])
