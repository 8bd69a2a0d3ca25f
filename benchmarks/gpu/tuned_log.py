"""Logs of MetaSchedule's, TVM's tuner: where they lie, and what they say of themselves.

A log is `recorded/<gpu>/metaschedule/<model>/`: the workloads and the best record of each as TVM's
`JSONDatabase` has them, compressed, and `about.json`. `metaschedule` writes them; `bundle` takes
those of the GPUs of its archs. Needs no TVM.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.gpu.results import device_folder
from boltgen.errors import BoltgenError

RECORDED = Path(__file__).resolve().parent.parent / "recorded"
COMMAND = "python -m benchmarks.gpu.metaschedule"
_LOGS = "metaschedule"
_ABOUT = "about.json"
# As `JSONDatabase(work_dir=...)` names its files, and so compressed.
DATABASE = ("database_workload.json", "database_tuning_record.json")
_PACKED = ".xz"


class LogError(BoltgenError):
    """A log that cannot be recorded or used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """How a log was recorded.

    `virtual`: on the virtual GPU, so that its times are none of a GPU's. `tuning_s` is all of the
    tuner's wall time, in seconds. Of the model's distinct `kernels` so many are `tuned`: for the
    others nothing was found that runs.
    """

    model: str
    gpu: str
    arch: str
    virtual: bool
    tvm: str
    search: str
    trials: int
    tuning_s: float
    kernels: int
    tuned: int
    date: str
    by: str
    commit: str


@dataclass(frozen=True, slots=True)
class TunedLog:
    """A log on disk."""

    folder: Path
    about: About

    @property
    def digest(self) -> str:
        """Of its schedules.

        Raises:
            LogError: a file is missing or damaged.
        """
        state = hashlib.sha256()
        for content in self._contents().values():
            state.update(hashlib.sha256(content).digest())
        return state.hexdigest()

    def unpack(self, folder: Path) -> None:
        """Write the files of the `JSONDatabase`.

        Raises:
            LogError: one is missing or damaged.
        """
        for name, content in self._contents().items():
            (folder / name).write_bytes(content)

    def _contents(self) -> dict[str, bytes]:
        found = {}
        for name in DATABASE:
            try:
                found[name] = lzma.decompress((self.folder / f"{name}{_PACKED}").read_bytes())
            except (OSError, EOFError, lzma.LZMAError) as error:
                raise self.unusable(f"{name}{_PACKED} cannot be read ({error})") from error
        return found

    def unusable(self, why: str) -> LogError:
        """What to say of a log that is of no use."""
        return LogError(
            f"{self.folder}: {why}; record it anew where its GPU is (`{COMMAND} "
            f"{self.about.model} --arch {self.about.arch}`), or remove it"
        )


def write_log(recorded: Path, about: About, database: Path) -> TunedLog:
    """Keep the files of a `JSONDatabase` in the folder `database`, in place of an older log."""
    folder = recorded / device_folder(about.gpu) / _LOGS / about.model
    folder.mkdir(parents=True, exist_ok=True)
    for name in DATABASE:
        (folder / f"{name}{_PACKED}").write_bytes(lzma.compress((database / name).read_bytes()))
    (folder / _ABOUT).write_text(json.dumps(asdict(about), indent=1) + "\n")
    return TunedLog(folder, about)


def find_logs(
    recorded: Path, arch: str, *, virtual: bool = False, gpu: str = ""
) -> Mapping[str, TunedLog]:
    """The logs of a GPU of `arch` by model; with `virtual`, those of the virtual GPU instead.

    `gpu` is the name of a folder of `recorded`, for where several GPUs of an arch have logs.

    Raises:
        LogError: one cannot be read; two GPUs have logs of a model; there is no folder `gpu`.
    """
    if gpu and not (recorded / gpu).is_dir():
        there = ", ".join(sorted(path.name for path in recorded.iterdir() if path.is_dir()))
        raise LogError(f"{recorded} has no folder {gpu}; it has {there or 'none'}")
    found: dict[str, TunedLog] = {}
    for path in sorted(recorded.glob(f"{gpu or '*'}/{_LOGS}/*/{_ABOUT}")):
        log = TunedLog(path.parent, _read(path))
        about = log.about
        if (about.arch, about.virtual) != (arch, virtual):
            continue
        if other := found.get(about.model):
            raise LogError(
                f"{about.model} was tuned on two GPUs of {arch}: {other.about.gpu} and "
                f"{about.gpu}; give `--gpu {device_folder(about.gpu)}`, or that of the other"
            )
        found[about.model] = log
    return found


def _read(path: Path) -> About:
    try:
        form = json.loads(path.read_text())
        about = About(**{one.name: form[one.name] for one in fields(About)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path} describes no log ({error!r}); remove {path.parent}") from error
    return about
