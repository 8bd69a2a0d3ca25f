"""Builds all kernels of the numeric tests, a few dozen to a library, and the device they run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import all_cases
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.device.choose import DEFAULT_ARCH, activate
from boltgen.ir.kernel import KernelSpec
from tests.virtual_gpu import all_checks


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
    """The library of each kernel of `all_cases` that a test of this session launches."""
    specs = launched(request, [case.spec for case in all_cases()])
    return build_libraries(specs, tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def chain_kernels(
    request: pytest.FixtureRequest, cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    """The library of each kernel of `all_chain_cases` that a test of this session launches."""
    specs = launched(request, [case.spec for case in all_chain_cases()])
    return build_libraries(specs, tmp_path_factory.mktemp("chains"))


def launched(
    request: pytest.FixtureRequest,
    every: Sequence[KernelSpec],
    kernel_of: Callable[[Mapping[str, Any]], KernelSpec | None] = lambda params: (
        params["case"].spec if "case" in params else None
    ),
) -> list[KernelSpec]:
    """The kernels that the session's tests, or a module's, launch from the fixture of `request`.

    `kernel_of` tells a test's kernel by its parameters; one without may launch each of `every`.
    """
    found: dict[KernelSpec, None] = {}
    for item in request.session.items:
        if request.scope == "module" and item.path != request.path:
            continue  # its fixture of that name is another
        if request.fixturename in getattr(item, "fixturenames", ()):
            spec = kernel_of(item.callspec.params if hasattr(item, "callspec") else {})
            found |= dict.fromkeys(every if spec is None else [spec])
    return list(found)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on nothing but the test's name."""
    return np.random.default_rng(list(request.node.name.encode()))
