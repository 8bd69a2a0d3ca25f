"""The worker of a check: a process with the virtual GPU as CUDA, which runs kernels one by one.

`boltgen.check.client` starts it as `python -m boltgen.check.worker`; `protocol` defines its input
and output. A kernel that crashes the worker does not affect the client.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import BinaryIO

from boltgen.check.launch import Device, LaunchError, run_job
from boltgen.check.protocol import Job, Ready, Setup, Verdict
from boltgen.device import vgpu
from boltgen.device.vgpu import RUNTIMES, Vgpu
from boltgen.families.family import CHECKED_SMS
from boltgen.measure.lines import from_line, to_line, work

# Options of every check, regardless of the environment; see vgpu/README.md. A seed fixes the order
# in which warps run, and the order exposes missing barriers.
_OPTIONS: dict[str, str | int] = {
    "threads": 1,
    "copies": "late",
    "fresh": "nan",
    "slack": 0,
    "times": "host",
    "seed": 1,
}
# Limit for one launch, in seconds; a launch takes far less than a second.
_MOST_SECONDS = 60
# Enough: a missing barrier shows in every access to shared memory.
_MOST_FINDINGS = 4


class Worker:
    """The virtual GPU, and the library to check."""

    def __init__(self, setup: Setup) -> None:
        self._vgpu: Vgpu = vgpu.load(Path(setup.vgpu), setup.arch)
        for name, value in _OPTIONS.items():
            self._vgpu.set_option(name, value)
        self._vgpu.set_option("timeout", _MOST_SECONDS)
        self._vgpu.set_option("check", setup.checks)
        # Lazy binding: the library also refers to TVM's functions, which are never called.
        self._library = ctypes.CDLL(setup.library, os.RTLD_LAZY)
        self._device = Device(ctypes.CDLL(RUNTIMES[0]), self._vgpu.last_error)

    def judge(self, job: Job) -> Verdict:
        """Run a launch; any failure becomes part of the verdict."""
        started = time.monotonic()
        worst, wrong = None, ""
        # A multiprocessor runs at least one of the threadblocks that wait for each other.
        self._vgpu.set_option("sms", max(CHECKED_SMS, job.launch.threadblocks_at_once))
        try:
            worst = run_job(self._device, self._library, job)
            self._device.free_all()
        except LaunchError as error:
            wrong = str(error)
        except AttributeError:
            wrong = "the library has no such kernel"
        # `findings` has the fault, too.
        found = [each for each in self._vgpu.findings() if each.message != wrong]
        findings = [f"{each.check}: {each.message}" for each in found[:_MOST_FINDINGS]]
        if len(found) > _MOST_FINDINGS:
            findings.append(f"and {len(found) - _MOST_FINDINGS} more findings")
        if wrong:
            self._vgpu.clear_error()
            self._device.free_all()
        self._vgpu.clear_findings()
        seconds = round(time.monotonic() - started, 3)
        return Verdict(wrong=wrong, worst_error=worst, findings=tuple(findings), seconds=seconds)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Load the library, and judge every launch that is asked for."""

    def say(message: Ready | Verdict) -> None:
        answers.write(to_line(type(message), message))
        answers.flush()

    setup = from_line(Setup, requests.readline())
    assert isinstance(setup, Setup)
    worker = Worker(setup)
    say(Ready())
    for line in iter(requests.readline, b""):
        job = from_line(Job, line)
        assert isinstance(job, Job)
        say(worker.judge(job))


if __name__ == "__main__":
    work(serve)
