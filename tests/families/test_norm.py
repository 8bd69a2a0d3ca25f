"""Legality, candidates, boundaries and predictions of norms of rows."""

from __future__ import annotations

import pytest

from boltgen.arch import ARCHES
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.families.norm.config import NormConfig
from boltgen.families.norm.model import bytes_loaded, bytes_moved
from boltgen.families.registry import FAMILIES, boundaries, candidates, predict, violations
from boltgen.ir.dtypes import FLOAT_TYPES, DType, IndexType
from boltgen.ir.elementwise import Accumulator, ElementwiseGraph, Load, LoadKind, Store
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Layer, Workload

SM80 = ARCHES["sm_80"]
FAMILY = FAMILIES.named("norm")


def _norm(columns: int, *, rows: int = 64, dtype: DType = DType.F16) -> Workload:
    function = NormFunction.SOFTMAX
    return Workload.of(
        Norm(rows=rows, columns=columns, function=function, in_dtype=dtype, out_dtype=dtype)
    )


@pytest.mark.parametrize("columns", [1, 7, 64, 197, 768, 1000, 4096, 4097, 16384, 32768])
@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_rows_that_fit_have_tens_of_candidates_at_most(
    columns: int, dtype: DType, arch: str
) -> None:
    workload = _norm(columns, dtype=dtype)
    found = candidates(workload, ARCHES[arch])
    assert 1 <= len(found) <= 24
    for config in found:
        assert config.family == "norm"
        assert not violations(workload, config, ARCHES[arch])
        assert boundaries(workload, config, ARCHES[arch])
        assert config.block % 32 == 0


@pytest.mark.parametrize("columns", [32769, 40000, 2**20, 2**24])
def test_rows_that_no_registers_hold_are_streamed(columns: int) -> None:
    found = candidates(_norm(columns), SM80)
    assert 1 <= len(found) <= 24
    for config in found:
        assert config.streamed
        sizes = [each.single.problem.matrix[1] for each in boundaries(_norm(columns), config, SM80)]
        held = config.columns(8 if columns % 8 == 0 else 1)
        assert max(sizes) > held > min(sizes)


def test_what_registers_hold_is_not_streamed_but_where_a_row_fills_an_sm() -> None:
    assert not any(config.streamed for config in candidates(_norm(16384), SM80))
    assert {config.streamed for config in candidates(_norm(20480), SM80)} == {False, True}


def test_a_row_whose_elements_fp32_does_not_count_has_none_and_says_so() -> None:
    with pytest.raises(NoLegalConfigError, match=f"{2**24 + 8} elements"):
        candidates(_norm(2**24 + 8), SM80)


def _group_norm(
    channels: int, groups: int, *, pixels: int = 256, n: int = 2, dtype: DType = DType.F16
) -> Workload:
    types = {"in_dtype": dtype, "out_dtype": dtype}
    return Workload.of(GroupNorm(n=n, h=1, w=pixels, c=channels, groups=groups, **types))


@pytest.mark.parametrize(
    ("channels", "groups"), [(320, 32), (128, 32), (24, 24), (512, 1), (96, 6), (1280, 32), (27, 3)]
)
@pytest.mark.parametrize("pixels", [1, 49, 64 * 64, 512 * 512])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_images_have_tens_of_candidates_at_most(
    channels: int, groups: int, pixels: int, arch: str
) -> None:
    workload = _group_norm(channels, groups, pixels=pixels)
    if pixels * channels // groups > 2**24:
        return
    found = candidates(workload, ARCHES[arch])
    assert 1 <= len(found) <= 30
    for config in found:
        assert boundaries(workload, config, ARCHES[arch])
        assert predict(workload, config, ARCHES[arch]).time_us > 0


@pytest.mark.parametrize(("channels", "groups", "run"), [(3, 3, 2), (96, 32, 6), (2, 1, 4)])
def test_images_whose_groups_have_next_to_nothing_of_a_pixel_are_refused(
    channels: int, groups: int, run: int
) -> None:
    reason = FAMILY.rejects(_group_norm(channels, groups), SM80)
    assert reason is not None
    assert f"{run} bytes of a pixel" in reason
    assert FAMILY.rejects(_group_norm(channels, groups, dtype=DType.F32), SM80) is None or run < 4


def test_boundaries_of_images_are_a_row_more_the_most_pixels_and_one() -> None:
    config = NormConfig(threads=128, vectors=3, rows=2)
    shapes = [
        (each.single.problem.a_shape, each.single.problem.groups)
        for each in boundaries(_group_norm(320, 8, pixels=60), config, SM80)
    ]
    assert shapes == [((3, 1, 60, 40), 1), ((1, 1, 76, 80), 2), ((1, 1, 1, 40), 1)]


def test_streaming_takes_longer_than_what_is_read_once() -> None:
    held = NormConfig(threads=512, vectors=8, rows=1)
    streamed = NormConfig(threads=512, vectors=4, rows=1, streamed=True)
    workload = _norm(16384, rows=4096)
    assert predict(workload, streamed, SM80).time_us > predict(workload, held, SM80).time_us


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (NormConfig(threads=32, vectors=1, rows=4), "columns"),
        (NormConfig(threads=32, vectors=12, rows=4), "values_of_a_thread"),
        (NormConfig(threads=4, vectors=4, rows=4), "threads"),
        (NormConfig(threads=1024, vectors=1, rows=2), "threads"),
        (NormConfig(threads=48, vectors=4, rows=2), "values"),
        (NormConfig(threads=1024, vectors=8, rows=1), "registers"),
    ],
)
def test_rules_are_named(config: NormConfig, name: str) -> None:
    assert name in [each.name for each in violations(_norm(768), config, SM80)]


def test_a_boundary_has_as_many_columns_as_there_may_be_and_as_few() -> None:
    config = NormConfig(threads=32, vectors=3, rows=4)
    sizes = [each.single.problem.matrix for each in boundaries(_norm(760), config, SM80)]
    assert sizes == [(5, 760), (5, 768), (1, 8)]


def test_an_epilogue_with_two_results_is_refused() -> None:
    graph = ElementwiseGraph((Accumulator(),), (Store(0), Store(0, LoadKind.TENSOR, DType.F16)))
    problem = _norm(64).single.problem
    reason = FAMILY.rejects(Workload(layers=(Layer(problem=problem, epilogue=graph),)), SM80)
    assert reason is not None
    assert "one result" in reason


def test_a_launch_passes_seven_operands_and_results() -> None:
    loads = (Load(LoadKind.TENSOR), Load(LoadKind.TENSOR), *(Load(LoadKind.ROW),) * 2)
    graph = ElementwiseGraph((Accumulator(), *loads))
    layer = Layer(problem=_norm(64).single.problem, prologue=graph, epilogue=graph)
    reason = FAMILY.rejects(Workload(layers=(layer,)), SM80)
    assert reason is not None
    assert "8 operands" in reason


def test_more_rows_take_longer_and_memory_bounds_many() -> None:
    config = NormConfig(threads=32, vectors=3, rows=4)
    times = [predict(_norm(768, rows=rows), config, SM80) for rows in (64, 4096, 65536)]
    assert times[0].time_us < times[1].time_us < times[2].time_us
    assert "DRAM" in times[2].bound


@pytest.mark.parametrize(
    ("function", "epsilon"),
    [
        (NormFunction.SOFTMAX, 1e-5),
        (NormFunction.LAYER, -1.0),
        (NormFunction.RMS, float("nan")),
        (NormFunction.RMS, float("inf")),
    ],
)
def test_an_epsilon_that_means_nothing_is_refused(function: NormFunction, epsilon: float) -> None:
    with pytest.raises(InvalidProblemError, match="epsilon"):
        Norm(rows=4, columns=8, function=function, epsilon=epsilon)


def _of_a_table(rows: int, of: int) -> Norm:
    return Norm(
        rows=rows,
        columns=768,
        function=NormFunction.RMS,
        epsilon=1e-6,
        a_rows=of,
        rows_dtype=IndexType.INT64,
    )


def test_boundaries_take_rows_of_fewer_and_of_more() -> None:
    config = NormConfig(threads=32, vectors=4, rows=8)
    found = boundaries(Workload.of(_of_a_table(100, 30000)), config, SM80)
    sizes = [(each.single.problem.matrix[0], each.single.problem.a_shape[0]) for each in found]
    assert sizes == [(9, 5), (9, 5), (1, 3)]


def test_a_launch_says_how_many_rows_there_are_to_take() -> None:
    config = NormConfig(threads=32, vectors=4, rows=8)
    assert FAMILY.launch(Workload.of(_of_a_table(100, 30000)), config).sizes["a_rows"] == 30000


def test_a_row_that_is_taken_again_is_no_byte_of_dram() -> None:
    """Of a table of four rows; what SMs load is the same."""
    in_order = Norm(rows=4096, columns=768, function=NormFunction.RMS, epsilon=1e-6)
    layers = [Layer(problem=each) for each in (in_order, _of_a_table(4096, 4))]
    row_bytes, integers = 768 * 2, 4096 * 8
    assert bytes_moved(layers[0]) - bytes_moved(layers[1]) == (4096 - 4) * row_bytes - integers
    assert bytes_loaded(layers[1]) == bytes_loaded(layers[0]) + integers
    assert layers[1].problem.short == "rms_norm 4096x768, its rows taken of 4"
