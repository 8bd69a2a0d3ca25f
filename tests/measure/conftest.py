"""The profiler's library in this process, on the virtual GPU."""

from __future__ import annotations

import pytest

from boltgen.build.cache import Cache
from boltgen.build.profiler import profiler_library
from boltgen.build.toolchain import find_toolchain
from boltgen.device.choose import DEFAULT_ARCH, activate
from boltgen.measure.native import Profiler
from boltgen.settings import settings_from
from tests.measure.device_arrays import Device


@pytest.fixture(scope="session")
def profiler() -> Profiler:
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("device", DEFAULT_ARCH)
    settings = settings_from()
    library = profiler_library(find_toolchain(settings), Cache(settings.cache_dir))
    return Profiler(library, 0, with_nvml=False)


@pytest.fixture
def device(profiler):
    made = Device(profiler)
    yield made
    made.close()
