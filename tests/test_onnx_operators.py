"""The table of ONNX operators in the docs: as recorded, complete, and true of a sample."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.cases.onnx_models import model, node, noise
from benchmarks.onnx_operators import FUSED, OFFLOADED, TABLE, becomes, read_kept, table
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.relax import import_model


def test_the_table_is_that_of_the_recorded_cases() -> None:
    assert TABLE.read_text() == table(read_kept()), (
        "run `python -m benchmarks.onnx_operators --table`"
    )


def test_every_case_for_cuda_is_right_or_refused_by_name() -> None:
    cases = read_kept()["cuda"]["cases"]
    assert {status for found in cases.values() for status in found.values()} <= {"ok", "refused"}
    # Of what was once counted as right though it was right for the host only.
    for operator in ("NonMaxSuppression", "NonZero", "Compress", "Unique", "ReduceLogSumExp"):
        assert "ok" in cases[operator].values()


def test_names_are_those_of_operators() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    known.add("SimplifiedLayerNormalization")  # ONNX Runtime's own, in the standard domain
    for names in (OFFLOADED, FUSED, RULES.keys()):
        assert {name for name in names if not name.startswith("com.microsoft.")} <= known


@pytest.mark.parametrize(
    "operator", ["Relu", "Tanh", "LpNormalization", "Celu", "Mish", "Exp", "Softmax"]
)
def test_what_the_table_says_is_imported_is(operator: str) -> None:
    counts = read_kept()["relax"][operator]
    assert becomes(operator, counts) != "refused"
    made = model([node(operator, ["x"], ["y"])], {"x": (2, 4)}, opset=18)
    assert import_model(made).outputs[0].shape == noise(2, 4).shape


@pytest.mark.parametrize("operator", ["Det", "DFT", "Col2Im"])
def test_what_the_table_says_is_refused_is(operator: str) -> None:
    assert becomes(operator, read_kept()["relax"][operator]) == "refused"
