"""The family of products with a prologue: what it computes, and what it says of registers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.kernels import CONFIGS
from boltgen.arch import arch_named
from boltgen.families.prologue import FAMILY
from boltgen.families.prologue.config import PrologueConfig
from boltgen.families.registry import FAMILIES, predict
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    SOFTMAX,
    Accumulator,
    Binary,
    BinaryOp,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Reduction,
    Store,
    Unary,
)
from boltgen.ir.functions import UnaryOp
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

SM80 = arch_named("sm_80")
PROBLEM = Gemm(m=2048, n=1024, k=512)
RELU = ElementwiseGraph((Accumulator(), Unary(UnaryOp.RELU, 0)))
SUMS = ElementwiseGraph(
    (Accumulator(),),
    (Store(0), Store(0, LoadKind.COLUMN, DType.F32, Reduction.SUM)),
)
TILES = replace(CONFIGS["sm80_square"][1], stages=2, swizzle=1)


def _loading(kind: LoadKind, count: int = 1, dtype: DType = DType.F16) -> ElementwiseGraph:
    """The sum of A and so many loads."""
    nodes: list[Node] = [Accumulator()]
    for _ in range(count):
        nodes += [Load(kind, dtype), Binary(BinaryOp.ADD, len(nodes) - 1, len(nodes))]
    return ElementwiseGraph(tuple(nodes))


def _layer(prologue: ElementwiseGraph, problem: Gemm | Conv2d = PROBLEM) -> Layer:
    return Layer(problem=problem, prologue=prologue)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (_layer(RELU, Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3)), "not a Conv2d"),
        (_layer(ElementwiseGraph()), "others multiply A as it is"),
        (_layer(SOFTMAX), "made of each element of A, not softmax"),
        (_layer(SUMS), "made of each element of A, not tensor: acc"),
        (_layer(_loading(LoadKind.COLUMN)), "loads tensors and rows, not a column"),
        (_layer(RELU, replace(PROBLEM, batch=3)), "one product, not a batch of 3"),
        (replace(_layer(RELU), epilogue=SUMS), "it stores D alone"),
        (
            replace(
                _layer(_loading(LoadKind.ROW, 4)),
                epilogue=ElementwiseGraph(
                    (*_loading(LoadKind.ROW, 3).nodes, Load(LoadKind.TENSOR))
                ),
            ),
            "8 operands and further results; a launch passes 7",
        ),
    ],
    ids=["conv", "none", "softmax", "stores", "column", "batch", "sums", "operands"],
)
def test_what_it_does_not_compute_is_rejected_with_the_reason(layer: Layer, said: str) -> None:
    reason = FAMILY.rejects(Workload(layers=(layer,)), SM80)
    assert reason is not None
    assert said in reason


def test_a_pointwise_convolution_is_a_product() -> None:
    conv = Conv2d(n=2, h=8, w=8, c=64, k=64, r=1, s=1)
    workload = Workload(layers=(_layer(_loading(LoadKind.SLICE_ROW), conv),))
    assert FAMILY.rejects(workload, SM80) is None
    assert workload.single.problem.slice_rows == 64


def test_a_passes_registers_in_two_stages() -> None:
    workload = Workload(layers=(_layer(RELU),))
    assert not FAMILY.violations(workload, PrologueConfig(gemm=TILES), SM80)
    deep = PrologueConfig(gemm=replace(TILES, stages=4))
    assert [each.name for each in FAMILY.violations(workload, deep, SM80)] == ["register_staged"]
    space = FAMILY.space(workload, SM80)
    assert space.candidates
    assert {config.gemm.stages for config in space.candidates} == {2}
    assert "stages" not in {knob.name for knob in space.knobs}
    for config in space.candidates[:20]:
        assert space.config_at(space.point_of(config)) == config


def test_operands_that_wait_take_registers() -> None:
    """As many as A's part of a tile, 16 elements of a thread; of a row one vector of 8."""
    config = PrologueConfig(gemm=replace(CONFIGS["sm80_small"][1], stages=2))

    def taken(prologue: ElementwiseGraph) -> int:
        return FAMILY.footprint(Workload(layers=(_layer(prologue),)), config).registers

    assert taken(_loading(LoadKind.TENSOR)) - taken(RELU) == 8
    assert taken(_loading(LoadKind.ROW, dtype=DType.F32)) - taken(RELU) == 8
    two = Workload(layers=(_layer(_loading(LoadKind.TENSOR, 2, DType.F32)),))
    names = [each.name for each in FAMILY.violations(two, PrologueConfig(gemm=TILES), SM80)]
    assert names == ["registers_of_operands"]


def test_the_graph_and_its_tensors_take_time() -> None:
    config = PrologueConfig(gemm=TILES)
    large = replace(PROBLEM, m=65536, n=128, k=512)
    graphs = (RELU, _loading(LoadKind.ROW, 4), _loading(LoadKind.TENSOR))
    times = [
        predict(Workload(layers=(_layer(graph, large),)), config, SM80).time_us for graph in graphs
    ]
    assert times == sorted(set(times))


def test_it_is_checked_at_ragged_sizes() -> None:
    slices = _layer(_loading(LoadKind.SLICE_ROW), PROBLEM.in_slices(100))
    tiles = replace(CONFIGS["sm80_small"][1], stages=2)
    found = FAMILY.boundaries(Workload(layers=(slices,)), PrologueConfig(gemm=tiles), SM80)
    assert len(found) == 2
    assert all(each.single.prologue == slices.prologue for each in found)


def test_each_element_of_a_passes_the_graph_in_every_step() -> None:
    """16 steps, 32 elements of a thread in each, which are taken over and pass one function."""
    config = PrologueConfig(gemm=TILES)
    plain = FAMILIES.named("cutlass2").instructions(Workload.of(PROBLEM), TILES, SM80)
    found = FAMILY.instructions(Workload(layers=(_layer(RELU),)), config, SM80)
    assert found.arithmetic - plain.arithmetic == 16 * 32 * 2
    assert found.issued - plain.issued == 16 * 32 * 2
