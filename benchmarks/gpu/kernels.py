"""Compiles the kernels that a bundle holds, or finds them in boltgen's cache.

Arrow: kernel specs -> shared libraries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.kernel_library import chunks, unit_of
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import library_unit
from boltgen.families.source import kernel_symbol
from boltgen.ir.kernel import KernelSpec
from boltgen.settings import Settings

_EXAMPLE = "13_two_tensor_op_fusion"


class BundleError(Exception):
    """A bundle that cannot be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The tools that compiling needs."""

    settings: Settings
    tools: Toolchain
    cache: Cache
    jobs: int
    reporter: Reporter


def compile_kernels(specs: Mapping[str, KernelSpec], shop: Workshop) -> dict[str, Path]:
    """Compile kernels in units of their own, which hold nothing else; the libraries by symbol.

    Raises:
        CompileError: one does not compile.
    """
    groups = defaultdict(list)
    for spec in specs.values():
        groups[spec.family].append(spec)
    parts = [part for group in groups.values() for part in chunks(group)]
    units = [unit_of(part, shop.tools) for part in parts]
    outcomes = compile_all(
        units, shop.cache, jobs=shop.jobs, reporter=shop.reporter, title="kernels"
    )
    built = zip(objects_or_raise(outcomes), parts, strict=True)
    return {kernel_symbol(spec): compiled.path for compiled, part in built for spec in part}


def compile_programs(sources: Mapping[str, str], arch: str, shop: Workshop) -> dict[str, Path]:
    """Compile each source, which stands for no spec, to a shared library; these by symbol.

    Raises:
        CompileError: one does not compile.
    """
    example = shop.tools.cutlass.include.parent / "examples" / _EXAMPLE
    units = [
        replace(unit, include=(*unit.include, example))
        for unit in (
            library_unit(symbol, text, arch, "", shop.tools) for symbol, text in sources.items()
        )
    ]
    outcomes = compile_all(
        units, shop.cache, jobs=shop.jobs, reporter=shop.reporter, title="small kernels"
    )
    built = zip(sources, objects_or_raise(outcomes), strict=True)
    return {symbol: compiled.path for symbol, compiled in built}
