"""`boltgen why` says what the passes did with an operator, and why no kernel computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from boltgen.cli.why import why
from boltgen.errors import BoltgenError
from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.passes.partition import partition_graphs
from boltgen.passes.run import Partitioned, Passes
from boltgen.passes.trace import read_trace
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload


def explained(folder: Path, operator: str) -> list[str]:
    """The lines about relu(x W + b), its floor, and a sine of x, which no kernel computes."""
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(16, 64), dtype="float32"))
    w = builder.constant(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    y = builder.matmul(x, w, "float32")
    y = builder.elementwise("add", y, builder.constant(np.ones(64, np.float32)))
    relu = builder.elementwise("nn.relu", y)
    floored = builder.elementwise("floor", relu)
    sine = builder.elementwise("sin", x)
    graph = builder.graph((floored, sine))
    made: Partitioned = partition_graphs({"main": graph}, (), Passes(trace=folder), lambda *_: None)
    return list(why(made, read_trace(folder), operator))


def test_an_operator_in_a_region_names_the_region_and_the_passes(tmp_path: Path) -> None:
    lines = explained(tmp_path, "relu")
    assert lines[:2] == ["passes that changed relu:", "  imported: 1 operator"]
    assert "  set_precision: 1 went, 1 came" in lines
    assert "    - v: float32[16, 64] = nn.relu(v)" in lines
    assert "    + v: float16[16, 64] = nn.relu(v)" in lines
    assert "  outline_regions: 1 went, 0 came" in lines
    assert "  boltgen_0_matmul (matmul+add+relu, 16x64)" in lines
    assert lines[-1] == "relu that TVM computes: 0"
    assert explained(tmp_path, "nn.relu") == lines


def test_an_operator_that_no_epilogue_has_is_refused_by_name(tmp_path: Path) -> None:
    lines = explained(tmp_path, "floor")
    assert lines[-1] == (
        "  outline_regions refused 1 x 16x64: the kernel of the matmul before it cannot compute "
        "it: no epilogue has this operator"
    )
    assert "floor that TVM computes: 1" in lines


def test_an_operator_that_no_kernel_reaches_is_said_to_be_so(tmp_path: Path) -> None:
    lines = explained(tmp_path, "sin")
    assert lines[-1] == "  1 x 16x64: no kernel computes sin"


def test_an_anchor_with_a_reason_of_its_own_gets_no_other_reason(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(1, 8, 6, 6), dtype="float32"))
    w = builder.constant(np.ones((8, 4, 3, 3), np.float32))
    layouts = {"data_layout": "NCHW", "kernel_layout": "IOHW", "out_layout": "NCHW"}
    window = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 2}
    shape = (1, 8, 6, 6)
    more = {"output_padding": (0, 0)}
    y = builder.operator(
        "nn.conv2d_transpose", [x, w], shape, "float32", **window, **layouts, **more
    )
    made = partition_graphs(
        {"main": builder.graph(y)},
        (),
        Passes(trace=tmp_path),
        lambda *_: None,
    )
    lines = list(why(made, read_trace(tmp_path), "conv2d_transpose"))
    reason = "a transposed convolution with groups=2: kernels exist for one group only"
    assert lines[-3:] == [
        "conv2d_transpose that TVM computes: 1",
        "  1 x 1x8x6x6",
        f"  set_precision refused 1 x 1x8x6x6: {reason}",
    ]


@pytest.mark.parametrize("asked", ["boltgen_0_matmul", "matmul+add+relu", "matmul + add + relu"])
def test_a_region_is_asked_for_by_symbol_or_operators(tmp_path: Path, asked: str) -> None:
    lines = explained(tmp_path, asked)
    assert lines[0] == "boltgen_0_matmul (matmul+add+relu, 16x64)"
    changed = [line for line in lines if line.startswith("passes that changed")]
    assert changed == [f"passes that changed {name}:" for name in ("matmul", "add", "relu")]


def test_an_unknown_operator_is_refused_with_names_that_are_near(tmp_path: Path) -> None:
    with pytest.raises(BoltgenError, match=r"no operator or region 'flor': .* such as floor$"):
        explained(tmp_path, "flor")
    with pytest.raises(BoltgenError, match=r"such as add, astype, floor, matmul, relu, sin$"):
        explained(tmp_path, "zzzzz")


def test_the_rules_that_fired_are_counted(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(4, 8), dtype="float32"))
    for number in (1.0, 2.0, 3.0):
        x = builder.elementwise("add", x, builder.constant(np.full(8, number, np.float32)))
    made: Partitioned = partition_graphs(
        {"main": builder.graph(x)},
        (),
        Passes(trace=tmp_path),
        lambda *_: None,
    )
    lines = list(why(made, read_trace(tmp_path), "add"))
    at = lines.index("  fold_constant_sums: 2 went, 2 came")
    assert "    rule 'add constants to each other' fired 2 times" in lines[at : at + 6]


@dataclass(frozen=True)
class Costs:
    """A kernel takes 1 us, and `wide` us more for each 64 columns of a matmul's result."""

    wide: float
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = (1.0 + self.wide * (one.first.problem.d_shape[-1] // 64) for one in workloads)
        return KernelTimes(times_us=tuple(times), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        raise AssertionError((bytes_moved, launches))


@pytest.mark.parametrize(("wide", "is_joined"), [(0.5, True), (4.0, False)])
def test_a_choice_by_times_is_shown_with_the_times_of_both(
    tmp_path: Path, wide: float, is_joined: bool
) -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(2, 6, 16), dtype="float32"))
    heads = []
    for number in range(3):
        weight = np.random.default_rng(number).standard_normal((16, 32)).astype(np.float32)
        made = builder.matmul(x, builder.constant(weight), "float32")
        apart = builder.reshape(made, (2, 6, 4, 8))
        heads.append(builder.permute_dims(apart, (0, 2, 1, 3)))
    partitioned: Partitioned = partition_graphs(
        {"main": builder.graph(tuple(heads))},
        (),
        Passes(trace=tmp_path, joining=Costs(wide)),
        lambda *_: None,
    )
    lines = list(why(partitioned, read_trace(tmp_path), "matmul"))
    at = lines.index("choices about matmul:")
    once = 1.0 + wide
    times = f"gemm 12x96x16: {once:.1f} us instead of 3.0 us, made up"
    said = (
        f"rewrote 1 x 2x6x32: 3 products of one tensor are one, {times}"
        if is_joined
        else f"left 1 x 2x6x32: 3 products of one tensor stay apart: they would be one, {times}"
    )
    assert lines[at + 1] == f"  fuse_qkv {said}"
    assert list(partitioned.notes) == ([said.partition(": ")[2]] if is_joined else [])
    assert "regions with matmul:" in lines[at + 2]
