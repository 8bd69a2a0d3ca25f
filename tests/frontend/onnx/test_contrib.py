"""Operators of com.microsoft, written as standard ones: every form against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as runtime
import pytest
from onnx import helper

from benchmarks.cases.onnx_models import operators, prepared, results
from benchmarks.contrib_cases import Case, cases, noise
from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.relax import import_model

CASES = {case.label: case for case in cases()}
STANDARD = {"", "ai.onnx"}


@pytest.mark.parametrize("label", CASES)
def test_an_operator_computes_what_onnx_runtime_does(label: str) -> None:
    case = CASES[label]
    after = prepared(case.model()).model
    assert {node.domain for node in after.graph.node} <= STANDARD
    assert case.operator not in operators(after) or case.operator in {"Trilu", "Pad", "Range"} | {
        "GatherND",
        "QuantizeLinear",
        "DequantizeLinear",
    }
    for actual, wanted in zip(results(after, case.fed), case.wanted(), strict=True):
        if case.meaning is not None:
            actual, wanted = case.meaning(actual), case.meaning(wanted)  # noqa: PLW2901
        assert actual.dtype == np.asarray(wanted).dtype
        assert actual.shape == np.shape(wanted)
        largest = np.abs(np.asarray(wanted, np.float64)).max(initial=1.0)
        # Sums of at most 64 terms, and a few functions of them, in another order.
        np.testing.assert_allclose(actual, wanted, rtol=2**-16, atol=2**-16 * largest)


# One kernel computes all of each of these, the projection of Q, K and V aside.
ATTENTION = [
    "MultiHeadAttention: apart",
    "MultiHeadAttention: packed Q, K and V",
    "MultiHeadAttention: mask of keys",
    "MultiHeadAttention: lengths",
    "MultiHeadAttention: past, unidirectional",
    "Attention: mask of keys, unidirectional",
    "GroupQueryAttention: prompt, rotary",
    "GroupQueryAttention: prompt, window",
    "GroupQueryAttention: one place, constant lengths, rotary",
]


@pytest.mark.parametrize("label", ATTENTION)
def test_a_kernel_computes_attention(label: str) -> None:
    case = CASES[label]
    model = Model(import_model(case.model()).module, normalise=True)
    (region,) = [region for region in model.regions if "softmax" in region.label]
    assert region.label.startswith("matmul")
    assert region.label.count("matmul") == 2
    wanted = case.wanted()[0]
    actual = model.run(*case.fed.values())[0]
    largest = np.abs(wanted).max()
    # Q, K, V and the weights are rounded to FP16, 2^-11 each, and scores are at most 16.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=largest * 16 * 2**-11)


@pytest.mark.parametrize("places", [6, "1..32"])
@pytest.mark.parametrize(
    "label",
    [
        "MultiHeadAttention: unidirectional",
        "Attention: unidirectional",
        "GroupQueryAttention: prompt, rotary",
    ],
)
def test_a_kernel_computes_attention_of_dynamic_dimensions(label: str, places: int | str) -> None:
    case = CASES[label]
    rows = {name: array.shape[2] for name, array in case.fed.items() if array.ndim == 3}
    made = case.model({name: ("B", "S", width) for name, width in rows.items()})
    shapes = {name: ("1..8", places, width) for name, width in rows.items()}
    model = Model(import_model(made, shapes=shapes).module, normalise=True)
    (region,) = [region for region in model.regions if "softmax" in region.label]
    assert region.label.count("matmul") == 2
    wanted = case.wanted()[0]
    actual = model.run(*case.fed.values())[0]
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=np.abs(wanted).max() * 16 * 2**-11)


@pytest.mark.parametrize(
    ("label", "function"),
    [
        ("SkipLayerNormalization: bias and sum", "layer_norm"),
        ("SkipLayerNormalization: operator set 14", "layer_norm"),
        ("GroupNorm: SiLU", "group_norm"),
        ("FusedConv: Z", "conv2d + add + astype + add + relu"),
        ("FusedGemm: Relu", "matmul + multiply + add + relu"),
    ],
)
def test_kernels_compute_norms_and_products(label: str, function: str) -> None:
    model = Model(import_model(CASES[label].model()).module, normalise=True)
    assert any(function in region.label for region in model.regions)


def _known() -> list[str]:
    """Every operator that ONNX Runtime has in the domain."""
    return sorted(
        schema.name
        for schema in runtime.get_all_operator_schema()
        if schema.domain == "com.microsoft" and f"com.microsoft.{schema.name}" not in RULES
    )


@pytest.mark.parametrize("operator", _known())
def test_every_other_operator_is_refused_by_name(operator: str) -> None:
    case = Case(operator=operator, form="", inputs={"x": noise(2, 4)})
    with pytest.raises(ModelImportError, match=operator) as refused:
        prepared(case.model())
    assert "com.microsoft" in str(refused.value)
    assert "without ONNX Runtime's own optimisations" in str(refused.value)


def _but(label: str, **attributes: Any) -> Case:
    case = CASES[label]
    return replace(case, attributes={**case.attributes, **attributes})


REFUSED: dict[str, tuple[Case, str]] = {
    "an unknown activation": (_but("FusedConv: Relu", activation="Mish"), "activation 'Mish'"),
    "a shared buffer": (
        _but("Attention: past", past_present_share_buffer=1),
        "past_present_share_buffer=1",
    ),
    "rotary in attention": (_but("Attention: plain", do_rotary=1), "do_rotary=1"),
    "a scaled rotary embedding": (_but("RotaryEmbedding: three axes", scale=2.0), r"scale=2\.0"),
    "packed sequences": (
        _but("RotaryEmbedding: three axes", is_packed_batching=1),
        "is_packed_batching=1",
    ),
    "a bias over a past of several lengths": (
        replace(
            CASES["GroupQueryAttention: one place, lengths"],
            inputs={
                **CASES["GroupQueryAttention: one place, lengths"].inputs,
                "p": None,
                "a": noise(2, 1, 1, 6),
            },
        ),
        "attention_bias with a past",
    ),
    "a distance": (_but("CDist: squared", metric="cosine"), "metric 'cosine'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_cannot_be_written_is_refused(name: str) -> None:
    case, said = REFUSED[name]
    with pytest.raises(ModelImportError, match=said) as refused:
        prepared(case.model())
    assert f"{case.operator} (node 'single', domain 'com.microsoft'" in str(refused.value)


def test_a_size_that_is_not_known_is_named() -> None:
    made = CASES["MultiHeadAttention: apart"].model({"q": (2, 6, "hidden")})
    with pytest.raises(ModelImportError, match=r"MultiHeadAttention .*a type or a size .* --shape"):
        prepared(made)


def test_an_operator_behind_one_that_is_not_known_is_not_named() -> None:
    made = CASES["QuickGelu: plain"].model()
    unknown = helper.make_node("Unknown", ["x"], ["u"], domain="other")
    made.graph.node.insert(0, unknown)
    made.graph.node[1].input[0] = "u"
    made.opset_import.append(helper.make_opsetid("other", 1))
    with pytest.raises(ModelImportError, match=r"Unknown .*domain 'other'") as refused:
        prepared(made)
    assert "QuickGelu" not in str(refused.value)
