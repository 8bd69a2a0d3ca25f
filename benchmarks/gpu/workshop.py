"""The tools that pack a bundle, and the error of packing."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.settings import Settings


class BundleError(Exception):
    """A bundle that cannot be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Compilers, the cache of compiled kernels, and who hears of progress."""

    settings: Settings
    tools: Toolchain
    cache: Cache
    jobs: int
    reporter: Reporter
