"""The state that the builder and the worker share: a file for each kernel that was built or failed.

    <folder>/built/<symbol>.json    a library, or why there is none
    <folder>/builders.json          how many compilers run, and how much is left

A file is there whole or not at all, so both may be killed at any time.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import end_tree, is_alive, resume_tree, running_below, stop_tree
from boltgen.bench.results import ResultsError
from boltgen.build.compile import LOG
from boltgen.build.nvcc.usage import usage_of

_PROGRESS = "builders.json"
# The programs that nvcc starts one after another: one of them runs for each nvcc.
COMPILERS = frozenset({"cicc", "ptxas", "cudafe++", "cc1plus"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel's library, or why there is none (`error`).

    `content` and `toolchain` are as records have them.
    """

    path: str = ""
    content: str = ""
    toolchain: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Compilers that run, things that are not built yet, and whether the builder has ended."""

    running: int = 0
    left: int = 0
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The files in `folder`."""

    folder: Path

    def find(self, symbol: str) -> Built | None:
        """Read what became of a kernel; None while it is not built.

        A library that is gone, with the machine that it was built on, is not built.
        """
        path = self._file(symbol)
        if not path.is_file():
            return None
        found = Built(**json.loads(path.read_text()))
        return found if found.error or Path(found.path).is_file() else None

    def keep(self, symbol: str, built: Built) -> None:
        """Say what became of a kernel."""
        self._write(self._file(symbol), asdict(built))

    def progress(self) -> Progress:
        """Read what the builder does."""
        path = self.folder / _PROGRESS
        return Progress(**json.loads(path.read_text())) if path.is_file() else Progress()

    def tell(self, progress: Progress) -> None:
        """Say what the builder does."""
        self._write(self.folder / _PROGRESS, asdict(progress))

    def _file(self, symbol: str) -> Path:
        return self.folder / "built" / f"{symbol}.json"

    def _write(self, path: Path, form: dict[str, Any]) -> None:
        """Replace a file whole.

        Raises:
            ResultsError: the disk is full, or the folder cannot be written.
        """
        staged = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            staged.write_text(json.dumps(form))
            staged.replace(path)
        except OSError as error:
            raise no_room(path, error) from error


@dataclass(slots=True)
class Builders:
    """The builder's process with its `jobs` compilers; `pid` is 0 where there is none.

    `may_overlap`: measuring need not stop them.
    """

    pid: int
    state: State
    jobs: int = 1
    may_overlap: bool = False
    is_stopped: bool = False

    def stop(self) -> None:
        """Let no compiler run, until `resume`."""
        if self.pid and not self.is_stopped:
            stop_tree(self.pid)
            self.is_stopped = True

    def resume(self) -> None:
        """Let compilers go on."""
        if self.pid and self.is_stopped:
            resume_tree(self.pid)
            self.is_stopped = False

    def end(self) -> None:
        """Kill them."""
        if self.pid:
            end_tree(self.pid)

    @property
    def have_ended(self) -> bool:
        """Whether nothing more will be built, for the builder is done or was killed."""
        return not self.pid or self.state.progress().has_ended or not is_alive(self.pid)

    def running(self) -> int:
        """Count the compilers that run now."""
        return running_below(self.pid, COMPILERS) if self.pid and not self.is_stopped else 0


def fault_of(library: Path, symbol: str) -> str:
    """Return why boltgen would not ship a kernel that was compiled to `library`; empty if it would.

    ptxas's report stands beside the library.
    """
    used = usage_of(library.with_name(LOG), symbol)
    return f"boltgen ships no such kernel: {'; '.join(used.faults)}" if used and used.faults else ""


def no_room(path: Path, error: OSError) -> ResultsError:
    """Say that a file cannot be written, and what to do."""
    return ResultsError(
        f"{path} cannot be written ({error.strerror or error}): free some space, or name another "
        "folder with --work"
    )
