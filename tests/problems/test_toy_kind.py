"""The proof that a kind of problems is one file: this one has a kind that boltgen does not know.

Its operator is the running sum of a row. It goes from a model's graph through the region with its
epilogue to a model that is executed, its kernel played by the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from benchmarks.harness.oracle_kernels import Model
from boltgen.arch import arch_named
from boltgen.errors import BoltgenError, InvalidProblemError, NoLegalConfigError
from boltgen.families.json_form import decode, encode
from boltgen.families.registry import FAMILIES, spaces
from boltgen.graph.attributes import RunningSum
from boltgen.graph.graph import Graph
from boltgen.ir.dtypes import DType, alignment_elements
from boltgen.ir.functions import Array
from boltgen.ir.interval import enclose, evaluate
from boltgen.ir.key import canonical
from boltgen.passes.regions.anchor import MATCHERS, Anchor
from boltgen.problems.checks import check_positive
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.kind import Kind
from boltgen.problems.kinds import KINDS
from boltgen.problems.oracle import enclose_results
from boltgen.problems.problem import Problem
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    around,
    broadcast,
    compare,
    enclosed_store,
)
from boltgen.problems.without_b import WithoutB
from boltgen.problems.workload import Layer, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSums(WithoutB):
    """D[i, j] is the sum of A[i, 0] to A[i, j], in FP32."""

    kind: ClassVar[str] = "running sums"

    rows: int
    columns: int
    in_dtype: DType = DType.F16
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        check_positive(self, ("rows", "columns"))

    @property
    def a_shape(self) -> tuple[int, ...]:
        return self.rows, self.columns

    @property
    def d_shape(self) -> tuple[int, ...]:
        return self.rows, self.columns

    @property
    def storable(self) -> frozenset[DType]:
        return frozenset({self.in_dtype, DType.F32})

    @property
    def matrix(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def is_matrix(self) -> bool:
        return True

    @property
    def alignment_a(self) -> int:
        return alignment_elements(self.in_dtype, self.columns)

    @property
    def alignment_d(self) -> int:
        return alignment_elements(self.out_dtype, self.columns)

    @property
    def flops(self) -> int:
        return self.rows * (self.columns - 1)

    @property
    def a_bytes(self) -> int:
        return self.rows * self.columns * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        return {"rows": self.rows, "columns": self.columns}

    @property
    def extents(self) -> dict[str, int]:
        return self.sizes

    @property
    def short(self) -> str:
        return f"running sums {self.rows}x{self.columns}"

    @property
    def slice_rows(self) -> int:
        return 0

    def in_slices(self, rows: int) -> RunningSums:
        return self

    def resized(self, channels: int, filters: int) -> RunningSums:
        return replace(self, columns=channels)

    def product(self, a: Array, b: Array) -> Array:
        return np.cumsum(a, axis=-1, dtype=np.float64)


def enclose_sums(layer: Layer, a: AnyArray, inputs: LayerInputs) -> tuple[Enclosure, ...]:
    """The oracle: each of up to `columns` additions in FP32 rounds once."""
    problem = layer.problem
    wide = np.asarray(a, np.float64).reshape(problem.a_shape)
    sums = problem.product(wide, inputs.b)
    growth = (1.0 + DType.F32.unit_roundoff) ** problem.d_shape[-1] - 1.0
    off = growth * problem.product(np.abs(wide), inputs.b)
    loads = broadcast(layer.epilogue, problem.d_shape, False, inputs.operands)
    exact = evaluate(layer.epilogue, sums, loads)
    images = enclose(layer.epilogue, around(sums, off), loads)
    return tuple(
        enclosed_store(problem, each, exact[each.x], images[each.x])
        for each in layer.epilogue.results
    )


def match_sums(graph: Graph, index: int, accumulate: DType) -> Anchor:
    """The problem of a running sum along the last axis of a matrix."""
    expr = graph[index]
    (x,) = expr.args
    rows, columns = graph[x].static_shape
    attrs = expr.attrs.of(RunningSum)
    if attrs.axis not in (1, -1) or attrs.exclusive:
        raise InvalidProblemError("sums run along the last axis, and have their own element")
    problem = RunningSums(
        rows=rows,
        columns=columns,
        in_dtype=DType(graph[x].dtype),
        out_dtype=DType(expr.dtype),
    )
    return Anchor(index=index, problem=problem, a=x, operand_b=None)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """boltgen knows the kind, and the operator that it is made of."""
    monkeypatch.setitem(MATCHERS, "cumsum", match_sums)
    KINDS.register(Kind(problem_type=RunningSums, enclose=enclose_sums))
    yield
    KINDS.remove("RunningSums")


def _module(rows: int, columns: int, bias: NDArray[np.float16]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, columns), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(op.cumsum(x, axis=1))
            shifted = builder.emit(op.add(sums, relax.const(bias)))
            output = builder.emit_output(op.nn.relu(shifted))
        builder.emit_func_output(output)
    return builder.get()


def test_a_kind_of_ones_own_goes_from_graph_to_executed_model(toy: None) -> None:
    rng = np.random.default_rng(0)
    bias = rng.uniform(-1, 1, 24).astype(np.float16)
    model = Model(_module(5, 24, bias))
    (region,) = model.regions
    assert region.workload.single.problem == RunningSums(rows=5, columns=24)
    assert region.workload.epilogues == "relu(add(acc, row0))"
    x = rng.uniform(-1, 1, (5, 24)).astype(np.float16)
    (actual,) = model.run(x)
    expected = np.maximum(np.cumsum(x.astype(np.float64), axis=1) + bias.astype(np.float64), 0.0)
    np.testing.assert_array_equal(actual, expected.astype(np.float16))


def test_the_oracle_of_a_kind_of_ones_own_judges(toy: None) -> None:
    workload = Workload.of(RunningSums(rows=3, columns=40))
    x = np.random.default_rng(1).uniform(-1, 1, (3, 40)).astype(np.float16)
    (found,) = enclose_results(workload, x, [LayerInputs()])
    right = np.cumsum(x.astype(np.float32), axis=1).astype(np.float16)
    assert compare(right, found.exact, found.bound).within
    wrong = right + np.float16(0.5)
    assert not compare(wrong, found.exact, found.bound).within


def test_a_kind_of_ones_own_has_a_key_and_records(toy: None) -> None:
    workload = Workload.of(RunningSums(rows=3, columns=40))
    assert "RunningSums(rows=3,columns=40" in canonical(workload)
    assert decode(Problem, encode(Problem, workload.single.problem)) == workload.single.problem
    with pytest.raises(NoLegalConfigError) as raised:
        spaces(workload, arch_named("sm_80"))
    assert all(f"{family.name}: " in str(raised.value) for family in FAMILIES)


def test_a_kind_that_is_not_registered_is_named() -> None:
    with pytest.raises(BoltgenError, match=r"RunningSums is no kind of problems.*Gemm.*register"):
        enclose_results(
            Workload.of(RunningSums(rows=3, columns=40)), np.zeros((3, 40)), [LayerInputs()]
        )


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(BoltgenError, match="two kinds of problems with a class Gemm"):
        KINDS.register(Kind(problem_type=Gemm))
