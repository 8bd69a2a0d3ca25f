"""Libraries of many kernels, compiled to PTX through the user's cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness.kernel_launch import KernelLibrary
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.source import KernelSource, kernel_symbol, render_library
from boltgen.ir.kernel import KernelSpec
from boltgen.settings import settings_from

# About half a minute of nvcc each, a third of it for CUTLASS's headers. A kernel of wgmma takes
# nvcc 0.7 GB, and libraries are compiled at once.
_KERNELS_PER_LIBRARY, _WGMMA_KERNELS_PER_LIBRARY = 24, 6


def build_libraries(specs: Sequence[KernelSpec], folder: Path) -> dict[KernelSpec, KernelLibrary]:
    """Compile the kernels to PTX, in libraries by arch, through the user's cache."""
    settings = settings_from()
    tools = find_toolchain(settings)
    groups = list(_groups(specs))
    units = [
        kernel_unit(_library_source(group, f"kernels_{i}"), tools, DeviceCode.PTX)
        for i, group in enumerate(groups)
    ]
    objects = objects_or_raise(compile_all(units, Cache(settings.cache_dir), jobs=settings.jobs))
    libraries: dict[KernelSpec, KernelLibrary] = {}
    for i, (group, compiled) in enumerate(zip(groups, objects, strict=True)):
        path = link_shared([compiled.path], folder / f"libkernels_{i}.so", tools)
        libraries |= dict.fromkeys(group, KernelLibrary(path))
    return libraries


def _groups(specs: Sequence[KernelSpec]) -> Iterator[tuple[KernelSpec, ...]]:
    by_arch = sorted(specs, key=lambda spec: (spec.arch, kernel_symbol(spec)))
    for arch, same_arch in itertools.groupby(by_arch, key=lambda spec: spec.arch):
        has_wgmma = arch_named(arch).cutlass_api >= 3
        most = _WGMMA_KERNELS_PER_LIBRARY if has_wgmma else _KERNELS_PER_LIBRARY
        remaining = list(same_arch)
        while remaining:
            yield tuple(remaining[:most])
            del remaining[:most]


def _library_source(specs: Sequence[KernelSpec], name: str) -> KernelSource:
    return KernelSource(
        spec=specs[0],
        symbol=name,
        workspace_symbol="",
        text=render_library(specs),
    )
