"""Products of rows in groups as models have them: PyTorch's operator, and CUTLASS's by TVM."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tvm import relax
from tvm.relax.frontend import nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import annotate
from boltgen.frontend.relax.grouped import call_of_torch
from boltgen.frontend.relax.importer import import_model
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.extent import Dim
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.problem import gathered
from tests.moe import (
    GROUPS,
    ROWS,
    K,
    N,
    drawn_tokens,
    expected,
    exported,
    group_gemm,
)


def _inputs(ends: list[int], dtype: str = "float16", index: str = "int64") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.standard_normal((ROWS, K)).astype(dtype),
        (rng.standard_normal((GROUPS, N, K)) / K**0.5).astype(dtype),
        np.array(ends, index),
        np.zeros(4096, np.uint8),
    ]


def _expected(x: np.ndarray, weight: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exact result, and the sums of the products' magnitudes."""
    made, magnitude = np.zeros((ROWS, N)), np.zeros((ROWS, N))
    wide, matrices = x.astype(np.float64), weight.transpose(0, 2, 1).astype(np.float64)
    for group, (begin, end) in enumerate(itertools.pairwise((0, *ends.tolist()))):
        made[begin:end] = wide[begin:end] @ matrices[group]
        magnitude[begin:end] = np.abs(wide[begin:end]) @ np.abs(matrices[group])
    return made / (1.0 + np.exp(-made)), magnitude


def test_tvms_function_is_one_region_with_its_activation() -> None:
    model = Model(group_gemm())
    (region,) = model.regions
    assert region.label == "grouped_matmul + silu"
    assert region.workload.single.problem == GroupedGemm(
        groups=GROUPS,
        m=ROWS,
        n=N,
        k=K,
        b_layout=Layout.COLUMN,
        ends_dtype=IndexType.INT64,
    )
    assert region.workload.single.epilogue.describe() == "silu(acc)"
    given = _inputs([3, 3, 10, 11])
    (actual,) = model.run(*given)
    exact, _ = _expected(*given[:3])
    # The double computes exactly, and rounds to FP16 once.
    np.testing.assert_allclose(actual, exact, rtol=2**-11, atol=2**-25)


class _OfMlc(nn.Module):
    """The call as MLC LLM's models make it, of an open number of rows."""

    def __init__(self) -> None:
        self.weight = nn.Parameter((GROUPS, N, K), "float16")

    def forward(self, x: nn.Tensor, indptr: nn.Tensor) -> nn.Tensor:
        room = nn.op.empty((4096,), dtype="uint8", name="workspace")
        result = nn.Tensor.placeholder((x.shape[0], N), "float16")
        return nn.op.extern("cutlass.group_gemm", [x, self.weight, indptr, room], result)


def test_a_kernel_takes_no_workspace_of_the_call() -> None:
    shapes = {"x": nn.spec.Tensor(["n", K], "float16")}
    shapes |= {"indptr": nn.spec.Tensor([GROUPS], "int64")}
    partitioned = annotate(_OfMlc().export_tvm({"forward": shapes})[0])
    (region,) = partitioned.regions
    (symbol,) = region.workload.symbols
    assert region.workload.at({symbol: 7}).single.problem.matrix == (7, N)
    assert "alloc_tensor" not in str(partitioned.module())


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_what_no_kernel_computes_is_right_by_tvms_own_operators(index: str) -> None:
    """In FP32, which no kernel multiplies; rows of no group are zeros, as a kernel has them."""
    model = Model(group_gemm("float32", index))
    assert not model.regions
    (placed,) = (each for each in model.annotated.placements if each.flops)
    assert placed.operator == "grouped_matmul"
    assert placed.reason.startswith("an operand is float32; tensor-core kernels take")
    for ends in ([3, 3, 10, 11], [0, 0, 0, 0], [2, 4, 6, 8], [5, 2, 99, 3]):
        given = _inputs(ends, "float32", index)
        (actual,) = model.run(*given)
        # Ends that are none count as the one before them, or as the number of rows.
        sane = np.minimum(np.maximum.accumulate(given[2]), ROWS)
        expected, magnitude = _expected(given[0], given[1], sane)
        # A sum of K products has K roundings, and the activation a few; no slope of it is above
        # 1.1, and rows of no group are exact.
        assert (np.abs(actual - expected) <= (1.1 * K + 8) * 2.0**-24 * magnitude).all()


def test_a_call_whose_tensors_do_not_fit_stays_the_call() -> None:
    partitioned = annotate(group_gemm(k=K + 8))
    assert not partitioned.regions
    (placed, _) = partitioned.placements
    assert (placed.operator, placed.region) == ("cutlass.group_gemm", None)
    assert "cutlass.group_gemm" in str(partitioned.module())


@pytest.mark.parametrize("precision", [DType.F16, DType.BF16], ids=lambda each: each.value)
def test_experts_of_pytorch_at_several_numbers_of_tokens(precision: DType) -> None:
    """Router, sorting, gate, up and down, where the number of tokens is open."""
    model = Model(import_model(exported()).module, normalise=True, precision=precision)
    grouped = [each.workload.single for each in model.regions if "grouped" in each.label]
    assert [each.epilogue.describe() for each in grouped] == [
        "acc",
        "multiply(silu(acc), tensor0)",
        "acc",
    ]
    first, second, last = (each.problem for each in grouped)
    assert isinstance(first, GroupedGemm)
    assert isinstance(second, GroupedGemm)
    # Two experts compute each token, whose row both kernels take.
    for problem in (first, second):
        assert problem.rows_dtype is IndexType.INT64
        assert isinstance(problem.a_rows, Dim)
        assert isinstance(problem.m, Dim)
        assert (problem.a_rows.bounds, problem.m.bounds) == ((2, 64), (4, 128))
    assert gathered(last) is None
    assert str(model.annotated.module()).count("R.take(") == 1  # of the result
    for count in (2, 7, 31):
        x = drawn_tokens(count)
        (actual,) = model.run(x.numpy())
        exact, bound = expected(x, precision)
        assert bound.max() < np.abs(exact).max() / 4
        assert (np.abs(actual - exact) <= bound).all()


def test_rows_that_are_taken_twice_are_taken_of_the_tokens() -> None:
    """As Hugging Face's mixtures: a row for each expert of a token, and then by expert."""
    tokens, f16 = 6, "float16"
    x, token, order, ends = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in (
            ("x", (tokens, K), f16),
            ("token", (ROWS,), "int64"),
            ("order", (ROWS,), "int64"),
            ("ends", (GROUPS,), "int32"),
        )
    )
    rng = np.random.default_rng(3)
    weight = (rng.standard_normal((GROUPS, K, N)) / K**0.5).astype(f16)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, token, order, ends]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, token, axis=0))
            rows = builder.emit(relax.op.take(rows, order, axis=0))
            call = call_of_torch(rows, relax.const(weight), ends, f16)
            output = builder.emit_output(builder.emit(call))
        builder.emit_func_output(output)
    model = Model(builder.get(), normalise=True)
    (region,) = model.regions
    problem = region.workload.single.problem
    assert isinstance(problem, GroupedGemm)
    assert (problem.a_rows, problem.m) == (tokens, ROWS)
    a = rng.standard_normal((tokens, K)).astype(f16)
    by_token, by_expert = np.arange(ROWS) // 2, rng.permutation(ROWS)
    behind = np.array([4, 4, 9, ROWS], np.int32)
    (actual,) = model.run(a, by_token, by_expert, behind)
    taken = a[by_token[by_expert]].astype(np.float64)
    exact = np.zeros((ROWS, N))
    for group, (begin, end) in enumerate(itertools.pairwise((0, *behind.tolist()))):
        exact[begin:end] = taken[begin:end] @ weight[group].astype(np.float64)
    # The double computes exactly, and rounds to FP16 once.
    np.testing.assert_allclose(actual, exact, rtol=2**-11, atol=2**-25)


class _Other(torch.nn.Module):
    """A grouped product of another form."""

    def __init__(self, b: tuple[int, ...]) -> None:
        super().__init__()
        self.b = torch.nn.Parameter(torch.zeros(b, dtype=torch.bfloat16))

    def forward(self, a: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(a, self.b, offs=ends)


@pytest.mark.parametrize(("a", "b"), [((16, 32), (32, 8)), ((4, 16, 32), (32, 8))], ids=["k", "n"])
def test_other_dimensions_in_groups_are_refused_by_name(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    given = torch.zeros(a, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.int32)
    program = torch.export.export(_Other(b), given)
    with pytest.raises(ModelImportError, match=r"_grouped_mm.*multiplies tensors of . and . dimen"):
        import_model(program)
