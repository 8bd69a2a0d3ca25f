"""Arrow: from a translation unit to its object or to a failure with a reason, through the cache."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import TypeAlias

from boltgen.build.cache import Cache, disk_error
from boltgen.build.nvcc.children import Children
from boltgen.build.unit import CompiledObject, CompileFailure, TranslationUnit

ABOUT = "about.json"
LOG = "compile.log"
_COMMAND = "command.txt"
# If less is free on the disk, a failure is blamed on the disk, not on the compiler.
_FULL_DISK_BYTES = 1 << 20

Outcome: TypeAlias = CompiledObject | CompileFailure


class _FailedError(Exception):
    """Carries a failure out of the cache's build function, so that no entry is made."""

    def __init__(self, failure: CompileFailure) -> None:
        super().__init__(failure.error)
        self.failure = failure


def compile_unit(unit: TranslationUnit, cache: Cache, children: Children | None = None) -> Outcome:
    """Compile `unit`, or return its object from the cache.

    Source, log and command are stored beside the object, or in `failed/` after a failure.

    Raises:
        CacheError: the disk is full or the cache cannot be written.
        ToolchainError: the compiler cannot be started.
    """
    started = time.monotonic()
    runner = children or Children()
    try:
        entry = cache.get_or_build(
            unit.kind,
            unit.key,
            lambda folder: _build(unit, folder, cache, runner),
            [unit.output, unit.source_name],
        )
    except _FailedError as failed:
        return failed.failure
    return CompiledObject(
        unit=unit,
        path=entry.folder / unit.output,
        source=entry.folder / unit.source_name,
        log=entry.folder / LOG,
        cached=not entry.built,
        seconds=time.monotonic() - started if entry.built else 0.0,
    )


def _build(unit: TranslationUnit, folder: Path, cache: Cache, children: Children) -> None:
    (folder / unit.source_name).write_text(unit.text, encoding="utf-8")
    if unit.about:
        (folder / ABOUT).write_text(unit.about, encoding="utf-8")
    (folder / _COMMAND).write_text(shlex.join(unit.command) + "\n", encoding="utf-8")
    # Temporary files lie in the build's folder, so that a killed build leaves none elsewhere.
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / LOG
    status = children.run(
        unit.command,
        folder=folder,
        environment=dict(unit.environment) | {"TMPDIR": str(temporary)},
        log=log,
    )
    shutil.rmtree(temporary, ignore_errors=True)
    output = folder / unit.output
    if status == 0 and output.is_file() and output.stat().st_size:
        return
    text = log.read_text(encoding="utf-8", errors="replace")
    if _disk_is_full(text, cache.root):
        raise disk_error(cache.root, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    error = _first_error(text, status)
    output.unlink(missing_ok=True)
    kept = folder if children.stopped else cache.keep_failed(folder, unit.key)
    raise _FailedError(
        CompileFailure(
            unit=unit,
            error=error,
            command=unit.command,
            source=kept / unit.source_name,
            log=kept / LOG,
        )
    )


def _disk_is_full(log: str, root: Path) -> bool:
    return "No space left on device" in log or shutil.disk_usage(root).free < _FULL_DISK_BYTES


def _first_error(log: str, status: int) -> str:
    """Return the line of `log` that explains the failure best."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    killed = next((line for line in lines if "died due to signal" in line), None)
    if status < 0 or killed:
        how = killed or f"killed by signal {signal.Signals(-status).name}"
        return f"{how}: too little memory? fewer jobs need less (--jobs, BOLTGEN_JOBS)"
    first = next((line for line in lines if re.search(r"\b(error|fatal)\s*:", line)), None)
    if first:
        return first
    if status == 0:
        return "it reports success but wrote no output"
    last = f": {lines[-1]}" if lines else ""
    return f"it ends with status {status}{last}"
