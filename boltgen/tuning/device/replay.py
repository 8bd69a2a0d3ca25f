"""A device that replays measurements from a file: the whole session loop without a GPU."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from boltgen.errors import TuningError
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceKind, Failure, Fault, Outcome
from boltgen.tuning.database.exchange import read_records
from boltgen.tuning.database.query import EPOCH


class RecordedBench:
    """A bench that answers with the newest outcomes in a file of records.

    Its device has the kind `RECORDED`, unlike the device that measured the times: replayed times
    are no new evidence.

    Raises:
        RecordError: the file cannot be read or has an invalid record.
        TuningError: the file has no records for `arch`, or records of several devices or
            toolchains.
    """

    lock_name = None

    def __init__(self, path: Path, arch: str) -> None:
        self._path = path
        self._outcomes: dict[Trial, Outcome] = {}
        self._kernels: dict[Trial, str] = {}
        newest: dict[Trial, datetime] = {}
        benches: dict[tuple[object, str], str] = {}
        for record in read_records(path):
            if record.device.arch != arch:
                continue
            shown = f"{record.device.name} (driver {record.device.driver}), {record.toolchain}"
            benches[record.device, record.toolchain] = shown
            self.device, self.toolchain = record.device, record.toolchain
            if record.measured_at >= newest.get(record.trial, EPOCH):
                newest[record.trial] = record.measured_at
                self._outcomes[record.trial] = record.outcome
                self._kernels[record.trial] = record.kernel
        if len(benches) != 1:
            found = "\n  ".join(["several:", *benches.values()]) if benches else "none"
            raise TuningError(
                f"{path} must have records of one {arch} device and one toolchain to be replayed; "
                f"it has {found}"
            )
        self.device = replace(self.device, kind=DeviceKind.RECORDED)

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Yield the recorded outcome of each trial, or a failure if there is none."""
        absent = Failure(fault=Fault.NOT_RECORDED, reason=f"{self._path} has no such record")
        for trial in trials:
            yield trial, self._outcomes.get(trial, absent)

    def kernel(self, trial: Trial) -> str:
        """Return the kernel's content in the trial's record."""
        return self._kernels[trial]

    def close(self) -> None:
        """Do nothing: no process runs."""
