"""Count the compilations that each area of the tests asks for: `pytest --kernels-report`.

Child processes (the command line, the Relay environment) are not seen: only their new entries in
the cache are counted, together with all others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boltgen.build.cache import Cache
from boltgen.settings import settings_from

# Kinds of the cache's entries that a compiler makes.
KINDS = ("kernel", "library", "fatbin", "adapter")
_KEY = "boltgen_compilations"


class KernelsReport:
    """Notes each (area, kind, key) that a test asks the cache for; prints a table at the end."""

    def __init__(self) -> None:
        self._began = time.time()
        self._area = ""
        self._asked: set[tuple[str, str, str]] = set()
        asked_for = Cache.get_or_build

        def noting(cache: Cache, kind: str, key: str, *args: Any, **named: Any) -> Any:
            self._asked.add((self._area, kind, key))
            return asked_for(cache, kind, key, *args, **named)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Cache, "get_or_build", noting)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note which area the running test belongs to."""
        parts = Path(item.location[0]).parts
        self._area = parts[1] if len(parts) > 2 else Path(parts[-1]).stem
        return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what a worker has noted to the process that prints."""
        self._patch.undo()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = sorted(self._asked)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker has noted."""
        self._asked.update(map(tuple, getattr(node, "workeroutput", {}).get(_KEY, ())))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print how many distinct compilations each area asked for."""
        write = terminalreporter.write_line
        terminalreporter.section("distinct compilations, by area")
        write(f"{'area':28}" + "".join(f"{kind:>10}" for kind in KINDS))
        counts = Counter((area, kind) for area, kind, _ in self._asked)
        for area in sorted({area for area, _, _ in self._asked}):
            write(f"{area:28}" + "".join(f"{counts[area, kind]:10}" for kind in KINDS))
        whole = Counter(kind for kind, _ in {(kind, key) for _, kind, key in self._asked})
        write(f"{'all, each once':28}" + "".join(f"{whole[kind]:10}" for kind in KINDS))
        made = {kind: self._made(kind) for kind in KINDS}
        write(f"{'compiled now':28}" + "".join(f"{made[kind]:10}" for kind in KINDS))

    def _made(self, kind: str) -> int:
        """Return how many entries of a kind are newer than the session."""
        entries = (settings_from().cache_dir / kind).glob("??/*")
        return sum(entry.stat().st_mtime >= self._began for entry in entries)
