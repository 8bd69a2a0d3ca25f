"""One kernel serves every swizzle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.swizzles import render_swizzled, with_swizzle
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, kernel_unit
from boltgen.codegen.kernel import kernel_symbol, render_kernel
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.settings import settings_from
from boltgen.space.kernel import KernelSpec, kernel_spec
from boltgen.space.knobs import SWIZZLES
from tests.cases import CONFIGS

PROBLEMS = (Gemm(m=64, n=64, k=64), Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3))


def spec_of(problem: Problem, swizzle: int) -> KernelSpec:
    config = replace(CONFIGS["sm80_small"][1], swizzle=swizzle)
    return kernel_spec(problem, Epilogue(), config, "sm_80")


@pytest.mark.parametrize("problem", PROBLEMS, ids=["gemm", "conv"])
def test_device_code_is_the_same_for_all_swizzles(problem: Problem):
    settings = settings_from()
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    texts = []
    for swizzle in (1, 8):
        spec = spec_of(problem, swizzle)
        unit = kernel_unit(render_kernel(spec), tools)
        flags = tuple("-ptx" if flag == "-c" else flag for flag in unit.flags)
        unit = replace(unit, kind="ptx", output="kernel.ptx", flags=flags)
        outcome = compile_unit(unit, cache)
        assert isinstance(outcome, CompiledObject)
        text = outcome.path.read_text()
        symbol = kernel_symbol(spec)
        # What stands before it are declarations, whose names have a hash of the file in them.
        kernel = text[text.index(f".entry {symbol}_device") :]
        texts.append(kernel.replace(symbol, "kernel"))
    assert texts[0] == texts[1]


def test_a_unit_has_an_entry_for_every_swizzle():
    specs = [spec_of(problem, 1) for problem in PROBLEMS]
    text = render_swizzled(specs)
    for spec in specs:
        assert text.count(f"{kernel_symbol(spec)}_device(\n") == 1
        for swizzle in SWIZZLES:
            symbol = kernel_symbol(with_swizzle(spec, swizzle))
            assert text.count(f'extern "C" int {symbol}(') == 1
            assert text.count(f'extern "C" size_t {symbol}_workspace(') == 1
