"""NaN and infinities in what TVM computes: right is NumPy's value, or PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.nan_models import (
    ONNX,
    TORCH,
    Form,
    form_of_onnx,
    form_of_torch,
    is_right,
    on_host,
    on_vgpu,
    other,
    places,
)

# Of the benchmark's, one of each mechanism: more take minutes of compilers.
OPERATORS = (
    *("Max", "Min of three", "ReduceMax by attribute", "ReduceMin by attribute", "Relu", "Sign"),
    *("ReduceMax of columns", "ReduceMax of long rows", "Clip", "Clip from below", "Elu"),
    *("ThresholdedRelu", "ArgMax", "ArgMin", "unlike itself", "times zero", "zero over"),
    *("over zero", "TopK", "MaxPool", "MaxPool apart", "GlobalMaxPool", "Softmax", "Where lowest"),
)
FUNCTIONS = (
    *("relu6", "hardsigmoid", "amax", "max of rows", "place of max", "sort", "sort downwards"),
    *("topk of the least", "unlike itself", "nan_to_num", "masked_fill", "full", "where", "sign"),
)
FORMS = {
    "ONNX": form_of_onnx({name: ONNX[name] for name in OPERATORS}, 17),
    "PyTorch": form_of_torch({name: TORCH[name] for name in FUNCTIONS}),
}


@pytest.mark.parametrize("device", [on_host, on_vgpu])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_nan_and_infinities_are_passed_on(form: Form, device: Any) -> None:
    run = device(*form.source)
    wrong = [
        f"{name}: {place}"
        for place, x in places().items()
        for name, have, want in zip(
            form.names, run(x, other(x)), form.right(x, other(x)), strict=False
        )
        if not is_right(np.asarray(have), want)
    ]
    assert wrong == []


def test_a_wrong_result_is_told() -> None:
    x = np.array([np.nan, 1.0], np.float32)
    assert is_right(x, x) and not is_right(np.nan_to_num(x), x)
    assert not is_right(x[None], x)
