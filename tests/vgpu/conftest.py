"""The virtual GPU in this process, in its first state before and after every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.driver import Driver
from boltgen.build.vgpu import vgpu_libraries
from boltgen.device.vgpu import Vgpu, load
from boltgen.settings import settings_from
from tests.virtual_gpu import all_checks, reset


@pytest.fixture(scope="session")
def library_folder() -> Path:
    return vgpu_libraries(settings_from())


@pytest.fixture(scope="session")
def loaded(library_folder: Path) -> Vgpu:
    return load(library_folder)


@pytest.fixture
def vgpu(loaded: Vgpu) -> Iterator[Vgpu]:
    reset(loaded)
    yield loaded
    reset(loaded)


@pytest.fixture
def driver(vgpu: Vgpu, library_folder: Path) -> Iterator[Driver]:
    device = Driver(vgpu, library_folder)
    yield device
    vgpu.clear_error()
    device.close()


@pytest.fixture
def hopper(driver: Driver, vgpu: Vgpu) -> Driver:
    """A device that executes sm_90a."""
    vgpu.set_option("device", "sm_90")
    return driver


@pytest.fixture
def checked(driver: Driver, vgpu: Vgpu) -> Iterator[Driver]:
    with all_checks(vgpu):
        yield driver


@pytest.fixture
def checked_hopper(hopper: Driver, checked: Driver) -> Driver:
    return checked
