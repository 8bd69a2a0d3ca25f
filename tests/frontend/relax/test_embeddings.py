"""Embeddings before norms: the norm's kernel takes the rows of the table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax.importer import import_model
from boltgen.ir.dtypes import DType, IndexType
from boltgen.problems.norm.problem import Norm
from boltgen.problems.problem import gathered
from tests.embeddings import LENGTH, TOKENS, expected, exported, tokens
from tests.test_end_to_end import fp16_tolerance

# Operators of TVM's that take rows: of positions.
TAKEN_BY_TVM = {"decoder": 0, "places": 1}
PROLOGUES = {
    "decoder": "tensor: acc; tensor float16: acc",
    "places": "tensor: add(acc, tensor0); tensor float16: add(acc, tensor0)",
}


@pytest.mark.parametrize("name", TAKEN_BY_TVM)
def test_a_norm_takes_the_rows_of_tokens_and_writes_what_others_add_to(name: str) -> None:
    model = Model(import_model(exported(name)).module, normalise=True)
    assert model.regions[0].label.startswith("take + ")
    norm, dense = (region.workload.single for region in model.regions)
    assert isinstance(norm.problem, Norm)
    # PyTorch's numbers of tokens, as they are given: TVM casts and reshapes none of them.
    assert (norm.problem.a_rows, norm.problem.rows_dtype) == (TOKENS, IndexType.INT64)
    assert norm.problem.in_dtype is DType.F16
    assert norm.prologue.describe() == PROLOGUES[name]
    assert gathered(dense.problem) is None
    text = str(model.annotated.module())
    assert text.count("R.take(") == TAKEN_BY_TVM[name]
    for batch in (1, 3, 8):
        given = tokens(name, batch)
        (actual,) = model.run(*(each.numpy() for each in given))
        exact = expected(name, given)
        assert actual.shape == exact.shape == (batch, LENGTH, 64)
        error = float(np.sqrt(np.mean(np.square(actual - exact))))
        assert error <= fp16_tolerance(exact, layers=2)
