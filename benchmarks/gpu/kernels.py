"""Compiles the kernels that a bundle holds, or finds them in boltgen's cache.

Arrow: kernel specs -> shared libraries.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.library import Shelf, build_library, chunks, kernel_key, unit_of
from boltgen.build.link import linked
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompileFailure, DeviceCode, device_flags, kernel_unit
from boltgen.families.move import MoveSource
from boltgen.families.source import kernel_symbol, render_library
from boltgen.ir.kernel import KernelSpec
from boltgen.tuning.select import SAME_CONFIG

# As many as keep sixteen cores busy, where parsing CUTLASS is still shared.
_PER_SOURCE = 4
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_EXAMPLE = "13_two_tensor_op_fusion"


class BundleError(Exception):
    """A bundle that cannot be made; the message says why."""


def compile_kernels(
    specs: Iterable[KernelSpec],
    tools: Toolchain,
    cache: Cache,
    *,
    jobs: int,
    reporter: Reporter,
) -> tuple[dict[str, Path], tuple[CompileFailure, ...]]:
    """The shared library of each kernel by symbol, and what did not compile."""
    plain, others = [], []
    for spec in specs:
        if isinstance(spec, KernelSpec) and spec.epilogue.is_identity:
            plain.append(spec)
        else:
            others.append(spec)
    found, failed = _compile_plain(plain, tools, cache, jobs=jobs, reporter=reporter)
    more, failed_too = _compile_others(others, tools, cache, jobs=jobs, reporter=reporter)
    return found | more, (*failed, *failed_too)


def _alike(specs: Iterable[KernelSpec]) -> Iterable[list[KernelSpec]]:
    """Kernels that differ in nothing but their tiles, together."""
    groups: dict[KernelSpec, list[KernelSpec]] = defaultdict(list)
    for spec in specs:
        groups[replace(spec, config=SAME_CONFIG)].append(spec)
    return groups.values()


def _compile_plain(
    specs: Iterable[KernelSpec], tools: Toolchain, cache: Cache, *, jobs: int, reporter: Reporter
) -> tuple[dict[str, Path], list[CompileFailure]]:
    """Units are of kernels that are alike, so that more kernels of another alignment or layout
    leave them as they are.
    """
    found: dict[str, Path] = {}
    failures = []
    parts = [
        part
        for group in _alike(specs)
        for part in chunks(sorted(group, key=lambda spec: spec.config))
    ]
    units = [unit_of(part, tools) for part in parts]
    outcomes = compile_all(units, cache, jobs=jobs, reporter=reporter, title="plain kernels")
    for outcome, part in zip(outcomes, parts, strict=True):
        if isinstance(outcome, CompileFailure):
            failures.append(outcome)
        else:
            found |= {kernel_symbol(spec): outcome.path for spec in part}
    return found, failures


def _compile_others(
    specs: Sequence[KernelSpec],
    tools: Toolchain,
    cache: Cache,
    *,
    jobs: int,
    reporter: Reporter,
) -> tuple[dict[str, Path], tuple[CompileFailure, ...]]:
    """Kernels that some unit of the cache has are taken from there, whatever else it has."""
    keys = {kernel_symbol(spec): kernel_key(spec, tools) for spec in specs}
    shelf = Shelf(cache)
    groups = defaultdict(list)
    for spec in specs:
        if shelf.find(keys[kernel_symbol(spec)]) is None:
            groups[spec.family].append(spec)
    built = build_library(groups.values(), tools, cache, jobs=jobs, reporter=reporter)
    shelf = Shelf(cache)
    places = {symbol: shelf.find(key) for symbol, key in keys.items()}
    return {symbol: place for symbol, place in places.items() if place}, built.failures


def beyond_sources(specs: Iterable[KernelSpec]) -> list[tuple[str, list[str]]]:
    """Texts that are compiled on the GPU's machine, each with the symbols of its kernels."""
    return [
        (render_library(part), [kernel_symbol(spec) for spec in part])
        for group in _alike(specs)
        for part in chunks(group, _PER_SOURCE)
    ]


def included_headers(texts: Iterable[str], arch: str, tools: Toolchain) -> dict[str, bytes]:
    """boltgen's and CUTLASS's headers that `texts` include, directly or not, as nvcc tells.

    Raises:
        BundleError: nvcc finds one of them missing.
    """
    folders = (tools.templates, tools.cutlass.include)
    lines = dict.fromkeys(line for text in texts for line in _INCLUDE.findall(text))
    flags = device_flags(arch, DeviceCode.SASS_AND_PTX)
    command = [str(tools.nvcc.path), "-M", "-x", "cu", *flags, "-ccbin", str(tools.cxx.path)]
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "all.cu"
        source.write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [*command, *(f"-I{folder}" for folder in folders), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BundleError(f"nvcc cannot tell which headers kernels include: {done.stderr[-2000:]}")
    found = {}
    for path in map(Path, done.stdout.replace("\\\n", " ").split()[1:]):
        for folder in folders:
            if path.is_relative_to(folder):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return dict(sorted(found.items()))


def link_sources(
    sources: Mapping[str, MoveSource],
    tools: Toolchain,
    cache: Cache,
    *,
    jobs: int,
    reporter: Reporter,
) -> dict[str, Path]:
    """The shared library of each small kernel by symbol.

    Raises:
        CompileError: one does not compile.
    """
    example = tools.cutlass.include.parent / "examples" / _EXAMPLE
    units = [
        replace(unit, include=(*unit.include, example))
        for unit in (kernel_unit(source, tools) for source in sources.values())
    ]
    outcomes = compile_all(units, cache, jobs=jobs, reporter=reporter, title="small kernels")
    objects = objects_or_raise(outcomes)
    return {
        symbol: linked(compiled, cache, tools)
        for symbol, compiled in zip(sources, objects, strict=True)
    }
