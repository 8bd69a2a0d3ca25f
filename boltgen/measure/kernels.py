"""Arrow: trials to kernels that a worker can load. From a library, else compiled.

A kernel with the plain epilogue that no library holds is compiled as a library would hold it, many
to a unit, and stays for next time. One with an epilogue of its own is compiled by itself: as
`boltgen compile` does it, which then finds the winner's object in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeGuard

from boltgen.build.cache import Cache
from boltgen.build.children import Children
from boltgen.build.compile import compile_unit
from boltgen.build.library import Shelf, chunks, kernel_key, unit_of
from boltgen.build.link import linked
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompiledObject, CompileFailure, kernel_unit
from boltgen.codegen.kernel import render_kernel
from boltgen.space.b2b_kernel import AnyKernelSpec
from boltgen.space.kernel import KernelSpec
from boltgen.tune.outcome import Failure, Fault

# The shared library that holds a kernel, or why there is none.
Made: TypeAlias = Path | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMaker:
    """Where kernels come from."""

    tools: Toolchain
    cache: Cache

    def on_shelf(self, specs: Sequence[AnyKernelSpec]) -> dict[AnyKernelSpec, Path]:
        """Those of the kernels that a library holds: none with an epilogue of its own."""
        shelf = Shelf(self.cache)
        plain = (spec for spec in specs if _is_plain(spec))
        found = {spec: shelf.find(kernel_key(spec, self.tools)) for spec in plain}
        return {spec: path for spec, path in found.items() if path}

    def start(
        self, specs: Sequence[AnyKernelSpec], pool: ThreadPoolExecutor, children: Children
    ) -> set[Future[dict[AnyKernelSpec, Made]]]:
        """Begin to compile kernels; each future tells of some of them."""
        return {pool.submit(self._make, part, children) for part in _together(specs)}

    def _make(
        self, specs: Sequence[AnyKernelSpec], children: Children
    ) -> dict[AnyKernelSpec, Made]:
        first = specs[0]
        plain = [spec for spec in specs if _is_plain(spec)]
        if not plain:
            return {first: self._make_alone(first, children)}
        outcome = compile_unit(unit_of(plain, self.tools), self.cache, children)
        if isinstance(outcome, CompiledObject):
            return dict.fromkeys(specs, outcome.path)
        if len(specs) == 1:
            return {first: _failure(outcome)}
        # One by one, so that a bad kernel costs only itself.
        return {spec: made for one in specs for spec, made in self._make([one], children).items()}

    def _make_alone(self, spec: AnyKernelSpec, children: Children) -> Made:
        unit = kernel_unit(render_kernel(spec), self.tools)
        outcome = compile_unit(unit, self.cache, children)
        if isinstance(outcome, CompileFailure):
            return _failure(outcome)
        return linked(outcome, self.cache, self.tools)


def _is_plain(spec: AnyKernelSpec) -> TypeGuard[KernelSpec]:
    """Whether a library may hold it."""
    return isinstance(spec, KernelSpec) and spec.epilogue.is_identity


def _failure(failed: CompileFailure) -> Failure:
    log = failed.log.read_text(encoding="utf-8", errors="replace")
    return Failure(fault=Fault.COMPILE, reason=failed.message, log=log[:4000])


def _together(specs: Sequence[AnyKernelSpec]) -> Iterator[tuple[AnyKernelSpec, ...]]:
    """Kernels of a library by what they have in common but their configuration; others alone.

    What is wanted first comes first.
    """
    plain = [spec for spec in specs if _is_plain(spec)]
    groups: dict[AnyKernelSpec, list[AnyKernelSpec]] = {}
    for spec in specs:
        family = replace(spec, config=plain[0].config) if _is_plain(spec) else spec
        groups.setdefault(family, []).append(spec)
    parts = [tuple(part) for group in groups.values() for part in chunks(group)]
    place = {spec: index for index, spec in enumerate(specs)}
    yield from sorted(parts, key=lambda part: place[part[0]])
