"""Adapters of regions whose sizes are known when they are called."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.codegen.adapter import Choice, RegionLaunch, render_adapter
from boltgen.codegen.adapter_memory import CallMemory
from boltgen.errors import InvalidProblemError
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.grouped.config import GroupedConfig
from boltgen.families.norm.config import NormConfig
from boltgen.families.registry import launch
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import SOFTMAX
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.cells import cells, localised
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.problem import Problem
from boltgen.problems.region import Convention, LayerRoles, Operand, Region
from boltgen.problems.workload import Layer, Workload
from boltgen.settings import settings_from

CONFIG = CONFIGS["sm80_small"][1]
IMAGES = symbolic(Symbol("images", 1, 8))
ROWS = symbolic(Symbol("rows", 1, 100))


def _region(*problems: Problem) -> Region:
    layers = [Layer(problem=problem) for problem in problems]
    layers[1:] = [replace(layer, prologue=SOFTMAX) for layer in layers[1:]]
    workload, _ = localised(Workload(layers=tuple(layers)))
    return Region(
        symbol="region_0",
        label="matmul",
        workload=workload,
        parameter_count=1 + len(layers),
        a=0,
        layers=tuple(LayerRoles(b=1 + index) for index in range(len(layers))),
    )


def _launch(region: Region, kernels: dict[int, Cutlass2Config]) -> RegionLaunch:
    """A launch whose cells up to a size have the kernel of that size."""
    choices = []
    for cell in cells(region.workload):
        high = cell.symbols[-1].high
        most = min(size for size in kernels if size >= high)
        args = launch(cell, kernels[most])
        choices.append(Choice(cell=cell, kernel=f"kernel_{most}", launch=args))
    return RegionLaunch(region=region, choices=tuple(choices), memory=CallMemory())


def test_sizes_come_from_a_and_choose_the_kernel() -> None:
    region = _region(Gemm(m=ROWS, n=64, k=32))
    kernels = {64: CONFIG, 128: replace(CONFIG, split_k=4)}
    text = render_adapter([_launch(region, kernels)])
    assert 'int64_t const m = call.rows("m", p0, 0, "A", 1, 1, 100);' in text
    assert "args.m = m;" in text
    assert "{m, 32}, Rank::kMatrix" in text
    assert "{m, 64}, Rank::kMatrix" in text
    found = re.findall(r"      \{(\d+), (kernel_\d+), (\d+)\},", text)
    assert [int(rows) for rows, _, _ in found] == [16, 23, 33, 47, 66, 93, 100]
    for rows, kernel, split_k in found:
        is_small = int(rows) <= 64
        assert (kernel, split_k) == (("kernel_64", "1") if is_small else ("kernel_128", "4"))
    assert "while (m > row->m) {" in text
    assert "args.split_k = row->split_k;" in text
    assert text.count("args.swizzle") == 1


def test_a_table_has_no_name_that_an_extent_has() -> None:
    """Those of a norm are called rows."""
    norm = Norm(rows=ROWS, columns=64, function=NormFunction.SOFTMAX)
    region = Region(
        symbol="region_0",
        label="softmax",
        workload=localised(Workload.of(norm))[0],
        parameter_count=1,
        a=0,
        layers=(LayerRoles(b=None),),
    )
    configs = [NormConfig(threads=32, vectors=1, rows=rows) for rows in (1, 4)]
    choices = tuple(
        Choice(cell=cell, kernel=f"kernel_{config.rows}", launch=launch(cell, config))
        for cell, config in zip(cells(region.workload), itertools.cycle(configs), strict=False)
    )
    made = RegionLaunch(region=region, choices=choices, memory=CallMemory())
    text = render_adapter([made])
    names = re.findall(r"(?:int64_t const|Row const\*?) (\w+)", text)
    assert "rows" in names
    assert len(names) == len(set(names))


def test_one_kernel_for_all_sizes_needs_no_table() -> None:
    region = _region(Gemm(m=ROWS, n=64, k=32))
    choice = Choice(cell=region.workload, kernel="kernel", launch=launch(region.workload, CONFIG))
    text = render_adapter([RegionLaunch(region=region, choices=(choice,), memory=CallMemory())])
    assert "kTable" not in text
    assert "call.run(args, kernel);" in text


def test_images_are_the_first_dimension() -> None:
    region = _region(Conv2d(n=IMAGES, h=8, w=8, c=8, k=16, r=3, s=3))
    text = render_adapter([_launch(region, {8: CONFIG})])
    assert 'int64_t const n = call.rows("n", p0, 0, "A", 3, 1, 8);' in text
    assert "{n, 8, 8, 8}, Rank::kExact" in text


def test_each_symbol_comes_from_the_first_tensor_that_has_it() -> None:
    batch, rows = symbolic(Symbol("batch", 2, 8)), symbolic(Symbol("rows", 1, 16))
    columns = symbolic(Symbol("columns", 1, 32))
    scores = Gemm(batch=batch, m=rows, n=columns, k=16, b_layout=Layout.COLUMN, out_dtype=DType.F32)
    context = Gemm(batch=batch, m=rows, n=16, k=columns)
    region = _region(scores, context)
    config = AttentionConfig(rows=64, keys=32, depth=16, columns=16, warps=4, stages=2)
    args = launch(region.workload, config)
    choices = (Choice(cell=region.workload, kernel="kernel", launch=args),)
    text = render_adapter([RegionLaunch(region=region, choices=choices, memory=CallMemory())])
    assert 'batch = call.rows("batch", p0, 0, "A", 2, 2, 8);' in text
    assert 'm = call.extent("m", p0, 0, "A", 1, 1, 16);' in text
    assert 'n = call.extent("n", p1, 1, "B", 1, 1, 32);' in text
    assert "args.layers[0].n = n;" in text
    assert "args.batch_stride_a = 16*m;" in text


def test_two_symbols_choose_in_the_order_of_the_cells() -> None:
    batch, rows = symbolic(Symbol("batch", 2, 4)), symbolic(Symbol("rows", 1, 40))
    region = _region(Gemm(batch=batch, m=rows, n=64, k=32))
    text = render_adapter([_launch(region, {32: CONFIG, 64: replace(CONFIG, swizzle=2)})])
    assert "int64_t batch, m;" in text
    assert "while (batch > row->batch || m > row->m) {" in text
    found = re.findall(r"      \{(\d+), (\d+), kernel_(\d+), (\d)\},", text)
    sizes = [(int(b), int(m)) for b, m, _, _ in found]
    assert sizes == sorted(sizes) and sizes[-1] == (4, 40)
    assert all(swizzle == ("1" if kernel == "32" else "2") for _, _, kernel, swizzle in found)


def test_kernels_of_one_region_take_one_struct() -> None:
    region = _region(Gemm(m=ROWS, n=64, k=32))
    one, *_, last = _launch(region, {100: CONFIG}).choices
    other = replace(last, launch=replace(last.launch, struct="boltgen_conv2d_args"))
    with pytest.raises(InvalidProblemError, match="boltgen_conv2d_args and boltgen_gemm_args"):
        RegionLaunch(region=region, choices=(one, other), memory=CallMemory())


@pytest.mark.parametrize("convention", Convention)
def test_the_text_compiles(convention: Convention) -> None:
    settings = settings_from()
    tools = find_toolchain(settings)
    region = _region(Conv2d(n=IMAGES, h=8, w=8, c=8, k=16, r=3, s=3))
    kernels = {4: CONFIG, 8: replace(CONFIG, swizzle=2)}
    text = render_adapter([_launch(region, kernels)], convention)
    unit = adapter_unit("symbolic", text, tools)
    assert isinstance(compile_unit(unit, Cache(settings.cache_dir)), CompiledObject)


def test_rows_that_are_taken_say_how_many_they_are() -> None:
    """A has the tokens, and the integers the rows that are computed."""
    tokens = symbolic(Symbol("tokens", 1, 50))
    problem = GroupedGemm(
        groups=4, m=2 * tokens, n=64, k=32, a_rows=tokens, rows_dtype=IndexType.INT64
    )
    workload, _ = localised(Workload.of(problem, EPILOGUES["bias_relu"]))
    region = Region(
        symbol="region_0",
        label="grouped_matmul",
        workload=workload,
        parameter_count=5,
        a=0,
        layers=(LayerRoles(b=1, ends=2, rows=3, operands=(Operand(parameter=4),)),),
    )
    config = GroupedConfig(gemm=CONFIG)
    choices = [
        Choice(cell=cell, kernel="kernel", launch=launch(cell, config))
        for cell in cells(region.workload)
    ]
    made = RegionLaunch(region=region, choices=tuple(choices), memory=CallMemory())
    text = render_adapter([made])
    assert 'int64_t const a_rows = call.rows("a_rows", p0, 0, "A", 1, 1, 50);' in text
    assert 'int64_t const m = call.rows("m", p3, 3, "rows of A", 0, 2, 100);' in text
    assert "{a_rows, 32}, Rank::kMatrix" in text
    rows = 'call.data(p3, 3, "rows of A", boltgen::kInt64, {m}, Rank::kVector)'
    assert rows in text
    assert text.index("args.taken") < text.index(rows)
    assert "args.a_rows = a_rows;" in text
    assert "args.m = m;" in text
    with pytest.raises(InvalidProblemError, match="layer 0 has rows=None; its problem is grouped"):
        replace(region, layers=(replace(region.layers[0], rows=None),))
