"""Builds all kernels of the numeric tests, a few dozen to a library, and the device they run on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.device.choose import DEFAULT_ARCH, activate
from boltgen.families.source import KernelSource, kernel_symbol, render_library
from boltgen.ir.kernel import KernelSpec
from boltgen.settings import settings_from
from tests.cases import all_cases
from tests.chain_cases import all_chain_cases
from tests.kernels.launch import Cuda, KernelLibrary
from tests.virtual_gpu import all_checks

# About half a minute of nvcc each, a third of it for CUTLASS's headers. A kernel of wgmma takes
# nvcc 0.7 GB, and libraries are compiled at once.
_KERNELS_PER_LIBRARY, _WGMMA_KERNELS_PER_LIBRARY = 24, 6


@pytest.fixture(scope="session")
def cuda() -> Iterator[Cuda]:
    """The virtual GPU's runtime."""
    device = activate("vgpu")
    assert device.vgpu is not None
    yield Cuda(device.vgpu)
    device.vgpu.set_option("device", DEFAULT_ARCH)


@pytest.fixture
def checking(cuda: Cuda) -> Iterator[Cuda]:
    """The virtual GPU's runtime with every check on."""
    with all_checks(cuda.vgpu):
        yield cuda


@pytest.fixture(scope="session")
def kernels(
    request: pytest.FixtureRequest, cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    """The library of each kernel in `tests/cases.py` that a test of this session launches."""
    specs = launched(request, [case.spec for case in all_cases()])
    return build_libraries(specs, tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def chain_kernels(
    request: pytest.FixtureRequest, cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    """The library of each kernel in `tests/chain_cases.py` that a test of this session launches."""
    specs = launched(request, [case.spec for case in all_chain_cases()])
    return build_libraries(specs, tmp_path_factory.mktemp("chains"))


def launched(
    request: pytest.FixtureRequest,
    every: Sequence[KernelSpec],
    kernel_of: Callable[[Mapping[str, Any]], KernelSpec | None] = lambda params: (
        params["case"].spec if "case" in params else None
    ),
) -> list[KernelSpec]:
    """The kernels that the session's tests launch from the fixture of `request`.

    `kernel_of` tells a test's kernel by its parameters; one without may launch each of `every`.
    """
    found: dict[KernelSpec, None] = {}
    for item in request.session.items:
        if request.fixturename in getattr(item, "fixturenames", ()):
            spec = kernel_of(item.callspec.params if hasattr(item, "callspec") else {})
            found |= dict.fromkeys(every if spec is None else [spec])
    return list(found)


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


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on nothing but the test's name."""
    return np.random.default_rng(list(request.node.name.encode()))
