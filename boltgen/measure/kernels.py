"""Arrow: trials to kernels that a worker can load. From a library, else compiled.

A kernel with the plain epilogue that no library holds is compiled as a library would hold it, many
to a unit, and stays for next time. One with an epilogue of its own is compiled by itself: as
`boltgen compile` does it, which then finds the winner's object in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from boltgen.build.cache import Cache
from boltgen.build.children import Children
from boltgen.build.compile import compile_unit
from boltgen.build.library import Shelf, chunks, kernel_key, unit_of
from boltgen.build.link import linked
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompileFailure, kernel_unit
from boltgen.codegen.kernel import render_kernel
from boltgen.space.kernel import KernelSpec
from boltgen.tune.outcome import Failure, Fault

# The shared library that holds a kernel, or why there is none.
Made: TypeAlias = Path | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMaker:
    """Where kernels come from."""

    tools: Toolchain
    cache: Cache

    def on_shelf(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, Path]:
        """Those of the kernels that a library holds."""
        shelf = Shelf(self.cache)
        found = {spec: shelf.find(kernel_key(spec, self.tools)) for spec in specs}
        return {spec: path for spec, path in found.items() if path}

    def start(
        self, specs: Sequence[KernelSpec], pool: ThreadPoolExecutor, children: Children
    ) -> dict[Future[Made], tuple[KernelSpec, ...]]:
        """Begin to compile kernels; each future is of the kernels that it tells of."""
        started: dict[Future[Made], tuple[KernelSpec, ...]] = {}
        for together in _together(specs):
            started[pool.submit(self._make, together, children)] = together
        return started

    def _make(self, specs: tuple[KernelSpec, ...], children: Children) -> Made:
        if specs[0].epilogue.is_identity:
            outcome = compile_unit(unit_of(specs, self.tools), self.cache, children)
            if isinstance(outcome, CompileFailure):
                return _failure(outcome)
            return outcome.path
        unit = kernel_unit(render_kernel(specs[0]), self.tools)
        outcome = compile_unit(unit, self.cache, children)
        if isinstance(outcome, CompileFailure):
            return _failure(outcome)
        return linked(outcome, self.cache, self.tools)


def _failure(failed: CompileFailure) -> Failure:
    log = failed.log.read_text(encoding="utf-8", errors="replace")
    return Failure(fault=Fault.COMPILE, reason=failed.message, log=log[:4000])


def _together(specs: Sequence[KernelSpec]) -> Iterator[tuple[KernelSpec, ...]]:
    """Kernels of a library by what they have in common but their configuration; others alone."""

    def family(spec: KernelSpec) -> str:
        return repr(replace(spec, config=specs[0].config))

    plain = sorted((s for s in specs if s.epilogue.is_identity), key=family)
    for _, group in groupby(plain, key=family):
        for part in chunks(list(group)):
            yield tuple(part)
    for spec in specs:
        if not spec.epilogue.is_identity:
            yield (spec,)
