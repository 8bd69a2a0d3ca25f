"""The structs that are read from the C interface: as the C compiler has them, filled by name."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pytest

from boltgen.build.toolchain import find_host_compiler
from boltgen.errors import BoltgenError, InvalidProblemError
from boltgen.ir.elementwise import MAX_OPERANDS
from boltgen.measure.abi import arguments, structs
from boltgen.measure.native import EXTENTS
from boltgen.measure.operands import extents_of
from boltgen.paths import resource_dir
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import NHWC_F16, LayoutTransform, Move
from boltgen.problems.workload import MAX_LAYERS
from boltgen.settings import settings_from

NAMES = {
    "boltgen_status",
    "boltgen_operand",
    "boltgen_gemm_args",
    "boltgen_grouped_gemm_args",
    "boltgen_conv2d_args",
    "boltgen_conv3d_args",
    "boltgen_depthwise_args",
    "boltgen_move_args",
    "boltgen_chain_layer",
    "boltgen_gemm_chain_args",
    "boltgen_attention_layer",
    "boltgen_attention_args",
    "boltgen_norm_args",
    "boltgen_recurrent_args",
    "boltgen_conv2d_chain_args",
    "boltgen_image_norm_args",
}


def compiled_layout(folder: Path) -> dict[str, int]:
    """Sizes of the structs, offsets and sizes of their fields, and constants, of the compiler."""
    asked = [f'printf("{name} %zu\\n", sizeof({name}));\n' for name in structs()] + [
        f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));\n'
        f'printf("{name}.{field}_size %zu\\n", sizeof((({name}*)0)->{field}));\n'
        for name, struct in structs().items()
        for field, *_ in struct._fields_
    ]
    asked += [f'printf("{name} %zu\\n", (size_t){name});\n' for name in
              ("BOLTGEN_MAX_LAYERS", "BOLTGEN_MAX_OPERANDS")]  # fmt: skip
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(
        '#include <stdio.h>\n#include "boltgen/abi.h"\n'
        f"int main(void) {{\n{''.join(asked)}return 0;\n}}\n"
    )
    include = resource_dir("templates") / "include"
    compiler = find_host_compiler(settings_from()).path
    command = [str(compiler), "-x", "c", f"-I{include}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in map(str.split, printed.splitlines())}


def test_structs_are_laid_out_as_the_compiler_has_them(tmp_path: Path) -> None:
    layout = compiled_layout(tmp_path)
    assert structs().keys() == NAMES
    for name, struct in structs().items():
        assert ctypes.sizeof(struct) == layout[name], name
        for field, *_ in struct._fields_:
            place: Any = getattr(struct, field)
            assert place.offset == layout[f"{name}.{field}"], f"{name}.{field}"
            assert place.size == layout[f"{name}.{field}_size"], f"{name}.{field}"
    assert layout["BOLTGEN_MAX_LAYERS"] == MAX_LAYERS
    assert layout["BOLTGEN_MAX_OPERANDS"] == MAX_OPERANDS


def test_no_field_of_the_header_is_passed_over() -> None:
    text = (resource_dir("templates") / "include/boltgen/abi.h").read_text()
    for name, struct in structs().items():
        body = text.partition(f"typedef struct {name} {{")[2].partition(f"}} {name};")[0]
        fields = [line for line in body.splitlines() if ";" in line]
        assert len(struct._fields_) == len(fields), name


def test_fields_are_set_by_their_names() -> None:
    made: Any = arguments(
        "boltgen_gemm_chain_args",
        {"m": 7, "a": 0x1000, "layers[1].n": 5, "layers[1].operands[0].ld": 2**40},
    )
    assert (made.m, made.a, made.layers[1].n) == (7, 0x1000, 5)
    assert made.layers[1].operands[0].ld == 2**40
    assert (made.k, made.layers[0].n, made.layers[1].operands[1].ld) == (0, 0, 0)


@pytest.mark.parametrize(
    ("struct", "field", "message"),
    [
        ("boltgen_gemm_args", "depth", "boltgen_gemm_args of abi.h has no field 'depth'"),
        ("boltgen_gemm_args", "operands[0].lda", r"no field 'operands\[0\].lda'"),
        (
            "boltgen_softmax_args",
            "m",
            "no struct 'boltgen_softmax_args'; it has boltgen_status",
        ),
    ],
)
def test_what_the_header_does_not_have_is_named(struct: str, field: str, message: str) -> None:
    with pytest.raises(BoltgenError, match=message):
        arguments(struct, {field: 1})


def test_a_type_that_nobody_knows_is_named(tmp_path: Path) -> None:
    header = tmp_path / "abi.h"
    header.write_text("typedef struct odd {\n  int32_t n;\n  __int128 wide;\n} odd;\n")
    with pytest.raises(BoltgenError, match=r"odd\.wide is a __int128"):
        structs(header)


@pytest.mark.parametrize(
    "problem",
    [
        Gemm(m=3, n=5, k=7),
        Gemm(batch=2, m=3, n=5, k=7, a_batched=False),
        Gemm(m=3, n=6, k=7, paired=True),
        Conv2d(n=1, h=9, w=8, c=3, k=4, r=3, s=2, stride=(2, 1), padding=(1, 2, 0, 1)),
        Depthwise(n=1, h=9, w=8, c=3, r=3, s=2, multiplier=2, padding=(1, 2, 0, 1)),
    ],
    ids=lambda problem: problem.short,
)
def test_a_problem_gives_every_extent_that_the_reference_takes(problem: Any) -> None:
    names = [name for name, *_ in EXTENTS[problem.kind]._fields_]
    # What is no pair has no run, which the reference takes as 0.
    absent = {"run": 0} if isinstance(problem, Gemm) and not problem.paired else {}
    assert sorted({*problem.extents, *absent}) == sorted(names)
    made = extents_of(problem)
    assert {name: getattr(made, name) for name in names} == problem.extents | absent


def test_a_problem_without_a_reference_is_refused_by_name() -> None:
    move = Move(source=NHWC_F16, target=NHWC_F16)
    transform = LayoutTransform(move=move, images=1, pixels=4, source_channels=3, target_channels=4)
    with pytest.raises(InvalidProblemError, match=r"for nhwc_f16_to_nhwc_f16 of 1x4x3; .*gemm and"):
        extents_of(transform)
