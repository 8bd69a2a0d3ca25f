"""How candidates of MetaSchedule's are compiled and timed.

TVM's own builder starts Python and TVM anew for each few candidates. Here the process at hand
compiles them, with boltgen's nvcc; they are run in a process of its own, which a candidate may take
with it, and which alone talks to the device.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerInput, RunnerResult

from benchmarks.gpu.device_process import DeviceProcess, time_library
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.runtime.link import export_library


class Deadline:
    """When tuning is to end, by `time.monotonic`; `has_ended_it` says that it has.

    It is looked at before candidates are compiled, of which the search may take minutes to think.
    """

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s
        self.has_ended_it = False

    def check(self) -> None:
        """End it if it is time.

        Raises:
            TimeoutError: it is. TVM passes on the message, not the exception.
        """
        if time.monotonic() >= self._at_s:
            self.has_ended_it = True
            raise TimeoutError("tuning has taken as long as it may")


@derived_object
class CandidateBuilder(PyBuilder):  # type: ignore[misc]
    """Compiles candidates to libraries in `folder`, `jobs` at a time, until `deadline`.

    Each has a folder of its own, which TVM removes once it has run.
    """

    def __init__(
        self, folder: Path, tools: Toolchain, jobs: int, deadline: Deadline, reporter: Reporter
    ) -> None:
        super().__init__()
        self._folder, self._tools, self._jobs = folder, tools, jobs
        self._deadline, self._count, self._reporter = deadline, 0, reporter

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        """Of each candidate its library, or why it has none."""
        self._deadline.check()
        first, self._count = self._count, self._count + len(build_inputs)
        paths = [
            self._folder / str(first + index) / "candidate.so" for index in range(len(build_inputs))
        ]
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            return list(pool.map(self._build, build_inputs, paths))

    def _build(self, candidate: BuilderInput, path: Path) -> BuilderResult:
        path.parent.mkdir()
        try:
            with candidate.target:
                executable = tvm.compile(candidate.mod, target=candidate.target)
            export_library(executable, path, self._tools)
        except Exception as error:  # TVM's own, of whatever kind: the candidate is none
            self._reporter.step("a candidate does not compile")
            return BuilderResult(None, str(error)[-2000:])
        return BuilderResult(str(path), None)


@derived_object
class _Measured(PyRunnerFuture):  # type: ignore[misc]
    """A candidate's times in seconds, or why it has none."""

    def __init__(self, times: list[float] | None, error: str | None) -> None:
        super().__init__()
        self._times, self._error = times, error

    def done(self) -> bool:
        """Always: candidates are run when they are handed over."""
        return True

    def result(self) -> RunnerResult:
        """What TVM is told."""
        return RunnerResult(self._times, self._error)


@derived_object
class CandidateRunner(PyRunner):  # type: ignore[misc]
    """Times candidates on a device, one at a time."""

    def __init__(self, device: DeviceProcess, reporter: Reporter) -> None:
        super().__init__()
        self._device, self._reporter = device, reporter

    def run(self, runner_inputs: list[RunnerInput]) -> list[_Measured]:
        """Of each candidate its times."""
        return [self._run(one) for one in runner_inputs]

    def _run(self, candidate: RunnerInput) -> _Measured:
        arguments = [one.as_json() for one in candidate.args_info]
        library = str(candidate.artifact_path)
        times, error = self._device.ask(time_library, self._device.kind, library, arguments)
        told = f"{1e6 * times[0]:.1f} us" if times else f"a candidate fails: {error}"
        self._reporter.step(told)
        return _Measured(times, error)
