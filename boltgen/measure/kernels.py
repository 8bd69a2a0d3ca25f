"""Arrow: from trials to kernels that a worker can load, from a library or newly compiled.

A missing kernel with the plain epilogue is compiled as in a library, several per unit, and stays in
the library. A kernel with its own epilogue is compiled alone, as `boltgen compile` does, which then
finds the winner's object in the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.library.kernels import KernelStore, chunks, kernel_key, unit_of
from boltgen.build.link import linked
from boltgen.build.nvcc.children import Children
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompiledObject, CompileFailure, kernel_unit
from boltgen.families.source import render_kernel
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import Failure, Fault

# The shared library with a kernel, or the compiler's failure.
Made: TypeAlias = Path | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMaker:
    """Finds kernels in libraries, and compiles missing ones."""

    tools: Toolchain
    cache: Cache

    def on_shelf(self, shared: Collection[KernelSpec]) -> dict[KernelSpec, Path]:
        """Return the shared library of each of the `shared` kernels that a library holds."""
        store = KernelStore(self.cache)
        found = {spec: store.find(kernel_key(spec, self.tools)) for spec in shared}
        return {spec: path for spec, path in found.items() if path}

    def start(
        self,
        specs: Sequence[KernelSpec],
        shared: Collection[KernelSpec],
        pool: ThreadPoolExecutor,
        children: Children,
    ) -> set[Future[dict[KernelSpec, Made]]]:
        """Start to compile kernels, the `shared` ones in units of a library.

        Each future returns some of the kernels.
        """
        return {
            pool.submit(self._make if part[0] in shared else self._make_alone, part, children)
            for part in _together(specs, shared)
        }

    def _make(self, specs: Sequence[KernelSpec], children: Children) -> dict[KernelSpec, Made]:
        first = specs[0]
        outcome = compile_unit(unit_of(specs, self.tools), self.cache, children)
        if isinstance(outcome, CompiledObject):
            return dict.fromkeys(specs, outcome.path)
        if len(specs) == 1:
            return {first: _failure(outcome)}
        # Compile one by one, so that a bad kernel costs only itself.
        return {spec: made for one in specs for spec, made in self._make([one], children).items()}

    def _make_alone(
        self, specs: Sequence[KernelSpec], children: Children
    ) -> dict[KernelSpec, Made]:
        (spec,) = specs
        unit = kernel_unit(render_kernel(spec), self.tools)
        outcome = compile_unit(unit, self.cache, children)
        if isinstance(outcome, CompileFailure):
            return {spec: _failure(outcome)}
        return {spec: linked(outcome, self.cache, self.tools)}


def _failure(failed: CompileFailure) -> Failure:
    log = failed.log.read_text(encoding="utf-8", errors="replace")
    return Failure(fault=Fault.COMPILE, reason=failed.message, log=log[:4000])


def _together(
    specs: Sequence[KernelSpec], shared: Collection[KernelSpec]
) -> Iterator[tuple[KernelSpec, ...]]:
    """Group kernels for units: `shared` ones that differ only in their configuration together.

    Each other kernel is alone. Groups keep the order of their first kernels.
    """
    groups: dict[KernelSpec, list[KernelSpec]] = {}
    for spec in specs:
        groups.setdefault(replace(spec, config=None) if spec in shared else spec, []).append(spec)
    parts = [tuple(part) for group in groups.values() for part in chunks(group)]
    place = {spec: index for index, spec in enumerate(specs)}
    yield from sorted(parts, key=lambda part: place[part[0]])
