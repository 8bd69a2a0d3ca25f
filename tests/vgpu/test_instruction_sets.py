"""The variants of the executor that the libraries have."""

from __future__ import annotations

import pytest

from benchmarks.harness.driver import Driver
from boltgen.build.vgpu import host_isas
from boltgen.errors import VgpuError
from boltgen.settings import settings_from
from tests.vgpu.fragments import instruction_sets


def test_they_are_those_that_were_asked_for(driver: Driver) -> None:
    asked = settings_from().vgpu_isas or host_isas()[:1]
    assert instruction_sets(driver) == [isa for isa in host_isas() if isa in asked]


def test_another_one_is_refused_by_name(driver: Driver) -> None:
    with pytest.raises(VgpuError, match="isa=sse2: this CPU or this build has no such"):
        driver.vgpu.set_option("isa", "sse2")
