from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, all_cases, move_spec, with_traits
from boltgen.arch import ARCHES
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.families.registry import candidates, kernel_spec
from boltgen.families.source import kernel_symbol, render_kernel, render_library
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.paths import resource_dir
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    LayoutTransform,
    Move,
)
from boltgen.problems.workload import Workload
from tests.codegen.test_cpp_text import NASTY

CONFIG = CONFIGS["sm80_small"][1]
SPEC = kernel_spec(Workload.of(Gemm(m=64, n=64, k=64), EPILOGUES["bias_relu"]), CONFIG, "sm_80")


def _changed() -> list[KernelSpec]:
    """The spec with one thing changed at a time."""
    config = SPEC.config
    return [
        replace(SPEC, arch="sm_86"),
        with_traits(SPEC, epilogue=EPILOGUES["residual_after"]),
        with_traits(SPEC, acc_dtype=DType.F16),
        with_traits(SPEC, out_dtype=DType.F32),
        with_traits(SPEC, b_layout=Layout.COLUMN),
        with_traits(SPEC, alignment_a=4),
        with_traits(SPEC, alignment_b=4),
        with_traits(SPEC, alignment_d=4),
        replace(SPEC, config=replace(config, stages=4)),
        replace(SPEC, config=replace(config, threadblock=Shape(128, 64, 32))),
        replace(SPEC, config=replace(config, warp=Shape(32, 64, 32))),
    ]


def test_symbols_tell_all_kernels_apart() -> None:
    specs = [SPEC, *_changed()]
    assert len({kernel_symbol(spec) for spec in specs}) == len(specs)


def test_a_kernel_does_not_depend_on_the_sizes() -> None:
    workload = Workload.of(Gemm(m=999, n=640, k=1280), SPEC.traits.epilogue)
    other = kernel_spec(workload, CONFIG, "sm_80")
    assert other == SPEC


def test_symbol_is_readable_and_a_c_identifier() -> None:
    symbol = kernel_symbol(SPEC)
    assert re.fullmatch(r"boltgen_gemm_sm80_64x64x32_32x32_s3_rr888_[0-9a-f]{10}", symbol)


def test_rendering_is_pure() -> None:
    assert render_kernel(SPEC, "x") == render_kernel(SPEC, "x")


@pytest.mark.parametrize("note", NASTY)
def test_no_note_changes_the_code(note: str) -> None:
    def code(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("//")]

    assert code(render_kernel(SPEC, note).text) == code(render_kernel(SPEC).text)


def test_header_says_what_and_how() -> None:
    text = render_kernel(SPEC, "layer1.0.conv1").text
    for expected in (
        "accumulated in float32",
        "D = relu(add(acc, row0))",
        "threadblock 64x64x32, warp 32x32x32, instruction 16x8x16, 3 stages",
        "A 8, B 8, D 8 elements",
        "sm_80",
        "CUTLASS    2.x API, checked with 4.2",
        "layer1.0.conv1",
        "nvcc -c",
    ):
        assert expected in text


def test_kernels_of_all_cases_fit_the_page() -> None:
    for case in all_cases():
        for line in render_kernel(case.spec).text.splitlines():
            assert len(line) <= 100 or case.spec.arch in line, line


def test_library_renders_every_kernel_once() -> None:
    other = with_traits(SPEC, epilogue=ElementwiseGraph())
    text = render_library([SPEC, other, SPEC])
    for spec in (SPEC, other):
        assert text.count(f'extern "C" int {kernel_symbol(spec)}(') == 1
    assert text.count("#include") == 2


def test_a_layout_transform_is_rendered_like_any_kernel() -> None:
    nchw = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
    transform = LayoutTransform(
        move=Move(source=nchw, target=NHWC_F16),
        images=1,
        pixels=56 * 56,
        source_channels=3,
        target_channels=8,
    )
    workload = Workload.of(transform)
    (config,) = candidates(workload, ARCHES["sm_80"])
    spec = kernel_spec(workload, config, "sm_80")
    assert spec == move_spec(transform.move, "sm_80")
    source = render_kernel(spec)
    assert re.fullmatch(r"boltgen_move_nchw_f32_to_nhwc_f16_[0-9a-f]{10}", source.symbol)
    assert re.search(rf"int {source.symbol}\(\s+boltgen_move_args const\*", source.text)
    assert re.search(rf"size_t {source.workspace_symbol}\(\s*boltgen_move_args", source.text)
    assert "NchwToNhwc<boltgen::Half, float>" in source.text
    assert '#include "boltgen/move.h"' in source.text


def test_every_unary_function_is_defined_for_the_device() -> None:
    header = (resource_dir("templates") / "include/boltgen/activations.h").read_text()
    for op in UnaryOp:
        assert f" float {op.value}(float x" in header


def _with_scalars() -> ElementwiseGraph:
    b = ElementwiseBuilder()
    x = b.binary(BinaryOp.MULTIPLY, 0, b.scalar(0.1))
    x = b.binary(BinaryOp.MAXIMUM, x, b.scalar(-0.75))
    x = b.binary(BinaryOp.MINIMUM, b.scalar(1.5), x)
    b.unary(UnaryOp.RELU6, b.unary(UnaryOp.EXP, x))
    return b.build()


@pytest.mark.parametrize(
    ("epilogue", "statements"),
    [
        (EPILOGUES["identity"], ()),
        (
            EPILOGUES["bias_relu"],
            ("float const add2 = acc + row0;", "float const relu3 = boltgen::relu(add2);"),
        ),
        (
            _with_scalars(),
            (
                "float const multiply2 = acc * 0x1.99999ap-4f;  // 0.1",
                "float const maximum4 = boltgen::maximum(multiply2, -0x1.8p-1f);  // -0.75",
                "float const minimum6 = boltgen::minimum(0x1.8p+0f, maximum4);  // 1.5",
                "float const exp7 = boltgen::exp(minimum6);",
                "float const relu6_8 = boltgen::relu6(exp7);",
            ),
        ),
    ],
)
def test_epilogues_are_emitted_a_line_a_node(
    epilogue: ElementwiseGraph, statements: tuple[str, ...]
) -> None:
    code = emit_epilogue(epilogue)
    assert code.statements == statements
    assert code.result == (statements[-1].split()[2] if statements else "acc")


def test_names_of_values_differ() -> None:
    b, x = ElementwiseBuilder(), 0
    for op in (UnaryOp.RELU, UnaryOp.RELU6) * 40:
        x = b.unary(op, x)
    names = [statement.split()[2] for statement in emit_epilogue(b.build()).statements]
    assert len(set(names)) == 80


def test_operands_come_in_the_order_of_loads() -> None:
    code = emit_epilogue(EPILOGUES["residual_after"])
    assert code.parameters == "float acc, float row0, float tensor0"
    assert (
        code.operands == "boltgen::Operands<boltgen::Row<float>, boltgen::Tensor<cutlass::half_t>>"
    )
    assert code.is_long == "false"
    assert emit_epilogue(EPILOGUES["bias_silu"]).is_long == "true"
