"""Check a compiled library: execute each of its kernels on the virtual GPU.

Arrow: from an artifact's folder to the outcome in its metadata.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from boltgen.arch import arch_named
from boltgen.artifact.checked import KernelCheck, LibraryCheck
from boltgen.artifact.metadata import Metadata
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.client import run_launches
from boltgen.check.plan import jobs_of
from boltgen.check.protocol import Job, Setup, Verdict
from boltgen.errors import RecordError
from boltgen.families.json_form import decode, encode
from boltgen.intake.choices import CheckLevel
from boltgen.intake.json_text import JsonError, read_json
from boltgen.ir.key import digest
from boltgen.running.artifact import LIBRARY, file_digest
from boltgen.settings import Settings
from boltgen.tvm_build.model_key import own_code

# All checks of the virtual GPU; boundary shapes are small enough for them.
_CHECKS = "all"
# The cache's folder of kernels that passed, and the file of an entry.
_KIND, _FILE = "check", "check.json"
_SHOWN = 12  # digits of the virtual GPU's version in the outcome


def check_kernels(
    folder: Path,
    metadata: Metadata,
    settings: Settings,
    *,
    reporter: Reporter,
    workers: int | None = None,
    objects: Mapping[str, Path] | None = None,
    cache: Cache | None = None,
) -> LibraryCheck:
    """Execute every kernel of the library in `folder` at boundary shapes.

    `objects` are the object files from which the library was linked, by kernel. A kernel with the
    same object and launches that passed before is not run again. Without `objects` all kernels are
    run.

    Raises:
        ArtifactError: the metadata does not say what a kernel computes.
        ToolchainError: the virtual GPU cannot be built.
        DeviceError: the library cannot be loaded.
        CacheError: the cache folder cannot be used.
    """
    started = time.monotonic()
    cache = cache or Cache(settings.cache_dir)
    vgpu = vgpu_libraries(settings, cache, reporter)
    jobs = jobs_of(metadata)
    keys = _keys(metadata, jobs, objects or {}, vgpu.name)
    known = {symbol: found for symbol in keys if (found := _earlier(cache, keys[symbol]))}
    wanted = {symbol: jobs[symbol] for symbol in jobs if symbol not in known}
    setup = Setup(
        library=str((folder / LIBRARY).resolve()),
        vgpu=str(vgpu),
        arch=arch_named(metadata.arch).name,
        checks=_CHECKS,
    )
    verdicts = (
        run_launches(setup, wanted, workers=workers or settings.jobs, reporter=reporter)
        if wanted
        else {}
    )
    now = datetime.now(timezone.utc).replace(microsecond=0)
    for symbol, judged in verdicts.items():
        known[symbol] = check = _kernel_check(symbol, jobs[symbol], judged, now)
        if check.passed and symbol in keys:
            _remember(cache, keys[symbol], check)
    return LibraryCheck(
        level=CheckLevel.KERNELS,
        vgpu=vgpu.name[:_SHOWN],
        kernels=tuple(known[symbol] for symbol in jobs),
        seconds=round(time.monotonic() - started, 3),
    )


def _keys(
    metadata: Metadata,
    jobs: Mapping[str, tuple[Job, ...]],
    objects: Mapping[str, Path],
    vgpu: str,
) -> dict[str, str]:
    """Return the key of each kernel's check: a digest of everything that decides its result."""
    own = own_code() if objects else ""
    common = (metadata.arch, vgpu, _CHECKS, own)
    return {
        symbol: digest(file_digest(path), jobs[symbol], *common) for symbol, path in objects.items()
    }


def _kernel_check(
    symbol: str, jobs: Sequence[Job], verdicts: Sequence[Verdict], now: datetime
) -> KernelCheck:
    errors = [verdict.worst_error for verdict in verdicts]
    faults = []
    for job, verdict in zip(jobs, verdicts, strict=True):
        if not verdict.passed:
            said = (verdict.wrong, *verdict.findings)
            faults += [f"{job}: {each}" for each in said if each]
    return KernelCheck(
        symbol=symbol,
        launches=tuple(map(str, jobs)),
        worst_error=max((error for error in errors if error is not None), default=None),
        faults=tuple(faults),
        seconds=round(sum(verdict.seconds for verdict in verdicts), 3),
        checked_at=now,
    )


def _earlier(cache: Cache, key: str) -> KernelCheck | None:
    """Return the cached result for the same object and launches, or None."""
    found = cache.find(_KIND, key, [_FILE])
    if found is None:
        return None
    try:
        check: KernelCheck = decode(KernelCheck, read_json(found / _FILE))
    except (OSError, JsonError, RecordError):
        return None  # so that the kernel is checked again
    return replace(check, earlier=True)


def _remember(cache: Cache, key: str, check: KernelCheck) -> None:
    def write(folder: Path) -> None:
        (folder / _FILE).write_text(json.dumps(encode(KernelCheck, check), indent=1) + "\n")

    cache.get_or_build(_KIND, key, write, [_FILE])
