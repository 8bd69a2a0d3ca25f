"""Compile many units in parallel. Compilers are processes, so threads are enough to run them.

The longest unit starts first, so that none runs alone at the end. A unit starts when its compilers
fit into the memory that is free: wgmma kernels take gigabytes each, and a machine has more cores
than memory for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.compile import Outcome, compile_unit
from boltgen.build.nvcc.children import Children
from boltgen.build.nvcc.estimate import Estimate, expected_bytes, expected_seconds
from boltgen.build.progress import Reporter, Silent
from boltgen.build.unit import CompiledObject, CompileFailure, TranslationUnit
from boltgen.errors import CompileError

_MEMORY = Path("/proc/meminfo")
# The share of free memory for compilers.
_SHARE = 0.9


def available_bytes() -> float:
    """Return the memory that new processes can have."""
    for line in _MEMORY.read_text(encoding="ascii").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return 1024.0 * int(amount.split()[0])
    raise OSError(f"{_MEMORY} names no MemAvailable")


class Memory:
    """Bytes that compilers may have together; each takes its part before it starts."""

    def __init__(self, total: float) -> None:
        self._free = self._total = total
        self._changed = threading.Condition()

    @contextmanager
    def part(self, wanted: float) -> Iterator[None]:
        """Wait until `wanted` bytes are free, or all are, and hold them in the `with` block."""
        taken = min(wanted, self._total)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= taken)
            self._free -= taken
        try:
            yield
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


def compile_all(
    units: Sequence[TranslationUnit],
    cache: Cache,
    *,
    jobs: int,
    reporter: Reporter | None = None,
    title: str = "compiling",
) -> list[Outcome]:
    """Return the outcomes of all units in their order; equal units are compiled once.

    An interrupt (Ctrl-C) or an error first stops every compiler, then is passed on.

    Raises:
        CacheError: the disk is full or the cache cannot be written.
        ToolchainError: a compiler cannot be started.
    """
    told = reporter or Silent()
    distinct = {unit.key: unit for unit in units}
    outcomes: dict[str, Outcome] = {}
    for key, unit in distinct.items():
        if cache.has(unit.kind, key):
            outcomes[key] = compile_unit(unit, cache)
    missing = {key: unit for key, unit in distinct.items() if key not in outcomes}
    if missing:
        seconds = {key: expected_seconds(unit) for key, unit in missing.items()}
        estimate = Estimate(seconds, jobs)
        missing = dict(sorted(missing.items(), key=lambda each: -seconds[each[0]]))
        told.start(title, len(missing), estimate.left)
        try:
            outcomes |= _compile_missing(missing, cache, estimate, told)
        finally:
            told.end()
    return [outcomes[unit.key] for unit in units]


def _compile_missing(
    missing: dict[str, TranslationUnit], cache: Cache, estimate: Estimate, reporter: Reporter
) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    children = Children()
    memory = Memory(_SHARE * available_bytes())

    def compiled(key: str, unit: TranslationUnit) -> Outcome:
        with memory.part(expected_bytes(unit)):
            estimate.begin(key)
            try:
                return compile_unit(unit, cache, children)
            finally:
                estimate.done(key)

    workers = min(estimate.jobs, len(missing))
    with ThreadPoolExecutor(max_workers=workers) as pool, _stopping(children):
        futures: dict[Future[Outcome], str] = {
            pool.submit(compiled, key, unit): key for key, unit in missing.items()
        }
        try:
            for future in as_completed(futures):
                outcome = future.result()
                outcomes[futures[future]] = outcome
                reporter.step(_describe(outcome))
        finally:
            for future in futures:
                future.cancel()
    return outcomes


@contextmanager
def _stopping(children: Children) -> Iterator[None]:
    """Stop the children if an exception leaves the block, so that the pool does not wait."""
    try:
        yield
    except BaseException:
        children.stop()
        raise


def _describe(outcome: Outcome) -> str:
    match outcome:
        case CompiledObject(cached=True):
            return f"{outcome.unit.name} (from the cache)"
        case CompiledObject():
            return f"{outcome.unit.name} in {outcome.seconds:.1f} s"
        case CompileFailure():
            return f"{outcome.unit.name} failed"


def objects_or_raise(outcomes: Sequence[Outcome]) -> list[CompiledObject]:
    """Return the objects if all units compiled.

    Raises:
        CompileError: a unit failed; the message describes the first failure and counts the others.
    """
    failures = [outcome for outcome in outcomes if isinstance(outcome, CompileFailure)]
    if failures:
        more = f"\n{len(failures) - 1} more failed to compile" if len(failures) > 1 else ""
        raise CompileError(f"{failures[0].message}{more}")
    return [outcome for outcome in outcomes if isinstance(outcome, CompiledObject)]
