"""Libraries of kernels, right and wrong, as a compiled model has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import DeviceCode, kernel_unit
from boltgen.families.source import KernelSource
from boltgen.settings import settings_from

Link = Callable[[Sequence[KernelSource]], Path]


@pytest.fixture
def link(tmp_path: Path) -> Link:
    """Compiles sources for the virtual GPU and links them to one library."""

    def linked(sources: Sequence[KernelSource]) -> Path:
        settings = settings_from()
        tools = find_toolchain(settings)
        units = [kernel_unit(source, tools, DeviceCode.PTX) for source in sources]
        objects = objects_or_raise(compile_all(units, Cache(settings.cache_dir), jobs=2))
        return link_shared([each.path for each in objects], tmp_path / "model.so", tools)

    return linked
