"""Golden texts of kernels: compared, then compiled by nvcc for every arch."""

from __future__ import annotations

from collections.abc import Callable

from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import DeviceCode, kernel_unit
from boltgen.families.source import render_kernel
from boltgen.settings import settings_from
from tests.cases import golden_specs
from tests.chain_cases import golden_chain_specs

SPECS = {**golden_specs(), **golden_chain_specs()}


def test_kernels_are_rendered_as_recorded(golden: Callable[[str, str], None]) -> None:
    for name, spec in SPECS.items():
        golden(f"{name}.cu", render_kernel(spec, "tests/golden").text)


def test_recorded_kernels_compile() -> None:
    chosen = settings_from()
    tools = find_toolchain(chosen)
    units = [
        kernel_unit(render_kernel(spec, "tests/golden"), tools, DeviceCode.PTX)
        for spec in SPECS.values()
    ]
    outcomes = compile_all(units, Cache(chosen.cache_dir), jobs=chosen.jobs)
    for compiled in objects_or_raise(outcomes):
        assert "warning" not in compiled.log.read_text()
