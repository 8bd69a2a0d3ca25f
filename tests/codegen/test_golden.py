"""Golden texts of kernels: compared, then compiled by nvcc for every arch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.cases.attention import golden_attention_specs
from benchmarks.cases.attention_sm90 import golden_attention_sm90_specs
from benchmarks.cases.chains import golden_chain_specs
from benchmarks.cases.kernels import golden_specs, move_spec
from benchmarks.cases.separable import golden_separable_specs
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.source import render_kernel
from boltgen.ir.dtypes import DType
from boltgen.problems.layout_transform.problem import NHWC_F16, Form, ImageLayout, Move
from boltgen.settings import settings_from

NCHW_F32 = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
SPECS = {
    **golden_specs(),
    **golden_chain_specs(),
    **golden_attention_specs(),
    **golden_attention_sm90_specs(),
    **golden_separable_specs(),
    "move_sm90a": move_spec(Move(source=NCHW_F32, target=NHWC_F16), "sm_90a"),
}


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


@pytest.mark.parametrize("name", ["gemm_sm75", "move_sm90a"])
def test_a_source_says_the_flags_that_it_is_compiled_with(name: str) -> None:
    source = render_kernel(SPECS[name])
    comment = " ".join(line.lstrip("/ ") for line in source.text.splitlines() if line[:2] == "//")
    command = comment[comment.index("nvcc ") : comment.index(".cu", comment.index("nvcc "))].split()
    unit = kernel_unit(source, find_toolchain(settings_from()), DeviceCode.SASS_AND_PTX)
    folders = ["-I", "templates/include", "-I", "$CUTLASS"]
    assert command[1:-1] == [*unit.flags, *folders]
    assert command[:1] == ["nvcc"]
