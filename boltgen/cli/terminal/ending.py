"""The end of a command: an exception becomes a sentence, an exit status, and maybe a report.

0     done
1     refused: a file, folder, model, name or value that cannot be used
2     the command line cannot be parsed
3     a check failed: a kernel is wrong, or results differ
4     a compiler is missing or failed
5     no such device, or a device that cannot be used
6     the system refused: no space, no permission, no memory
70    an internal error, described in a report file
130   interrupted (Ctrl-C)
141   nobody reads the output any more
143   ended by SIGTERM

Every command ends so; `vgpu run` ends with the status of the program that it runs.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import re
import shlex
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from boltgen.errors import (
    BoltgenError,
    CheckError,
    CompileError,
    DeviceError,
    GraphError,
    ToolchainError,
)
from boltgen.settings import settings_from

REFUSED, CHECK_FAILED, SYSTEM, INTERNAL, INTERRUPTED, UNREAD = 1, 3, 6, 70, 130, 141
# The status of each type of error; `REFUSED` for all others.
_KINDS: tuple[tuple[type[BoltgenError], int], ...] = (
    (CheckError, CHECK_FAILED),
    (ToolchainError, 4),
    (CompileError, 4),
    (DeviceError, 5),
)
# The table above, for the program's help.
STATUSES = {int(each): said for each, said in re.findall(r"^(\d+)\s+(.*)$", __doc__, re.MULTILINE)}

# Errors of the operating system that concern the user's disk, paths and rights; any other error is
# a fault of boltgen.
_ENVIRONMENT = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left within your quota",
    errno.EFBIG: "the file would be too large",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "the symbolic links lead round in a circle",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.EIO: "the disk or the terminal cannot be read or written",
    errno.EBADF: "a standard stream is closed",
    errno.ENOMEM: "not enough memory",
}
_PACKAGES = (
    "boltgen",
    "apache-tvm",
    "apache-tvm-ffi",
    "nvidia-cutlass",
    "nvidia-cuda-nvcc",
    "numpy",
    "onnx",
    "torch",
    "typer",
    "rich",
)
_MOST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Ending:
    """The exit status of a command, and its last message, which may be empty."""

    status: int
    message: str = ""


def ending_of(error: BaseException, interrupted: str) -> Ending:
    """Return the ending of a command that raised `error`; `interrupted` says what Ctrl-C left."""
    match error:
        case GraphError():
            return Ending(INTERNAL, _internal(error))
        case BoltgenError():
            status = next((each for kind, each in _KINDS if isinstance(error, kind)), REFUSED)
            return Ending(status, f"error: {error}")
        case KeyboardInterrupt():
            # A second Ctrl-C ends the process at once.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return Ending(INTERRUPTED, f"interrupted; {interrupted}")
        case BrokenPipeError():
            return Ending(UNREAD)
        case MemoryError():
            return Ending(SYSTEM, "error: not enough memory; close other programs, or use less")
        case OSError(errno=number) if number in _ENVIRONMENT:
            where = f" ({error.filename})" if error.filename else ""
            return Ending(SYSTEM, f"error: {_ENVIRONMENT[number]}{where}")
        case _:
            return Ending(INTERNAL, _internal(error))


def _internal(error: BaseException) -> str:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    said = said if len(said) <= _MOST_SHOWN else said[: _MOST_SHOWN - 3] + "..."
    path = write_report(error)
    kept = f"{path} describes it" if path else "no report could be written"
    return (
        f"internal error, which is boltgen's fault: {said}\n"
        f"{kept}; please report it, with what you did"
    )


def write_report(error: BaseException) -> Path | None:
    """Describe an internal error in a new file; return None if no folder is writable."""
    text = _report(error).encode(errors="backslashreplace")
    for folder in (_reports, lambda: Path(tempfile.gettempdir())):
        try:
            made = folder()
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
            day = datetime.now(timezone.utc).strftime("%Y%m%d")
            number, name = tempfile.mkstemp(".txt", f"boltgen-error-{day}-", made)
            with os.fdopen(number, "wb") as file:
                file.write(text)
            return Path(name)
        except (OSError, BoltgenError):  # not writable; try the next folder
            continue
    return None


def _reports() -> Path:
    return settings_from().cache_dir / "reports"


def _report(error: BaseException) -> str:
    lines = [
        f"command   {shlex.join(sys.argv)}",
        f"python    {sys.version.split()[0]} on {platform.platform()}",
        *(f"package   {name} {_version(name)}" for name in _PACKAGES),
        "",
        *traceback.format_exception(error),
    ]
    return "\n".join(lines)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def flush_streams() -> bool:
    """Flush the standard streams; return whether that was possible.

    Unwritable data is dropped, because Python would report it at its end.
    """
    done = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            done = False
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return done
