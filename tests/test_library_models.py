"""The parts of the benchmark of libraries' models that need none of the libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import convolution_models, library_models
from benchmarks.libraries import install
from benchmarks.libraries.convolutions import CONVOLUTIONS
from benchmarks.libraries.eager import run_eager, run_rounded
from benchmarks.libraries.models import MODELS, models_named
from benchmarks.libraries.samples import (
    LENGTH,
    Called,
    Sample,
    attention_mask,
    padded_at_either_end,
    padded_on_the_left,
)
from benchmarks.libraries.trial import judged, seeded
from benchmarks.libraries.weights import make_telling
from benchmarks.trials.errors import STEPS, judge
from benchmarks.trials.process import run_module
from benchmarks.trials.table import table


def test_the_table_names_each_model_once() -> None:
    names = [model.name for model in MODELS]
    assert len(set(names)) == len(names) >= 35
    libraries = {"transformers", "diffusers", "timm", "torchvision", "own"}
    assert {model.library for model in MODELS} == libraries


def test_models_are_chosen_by_name_in_the_order_asked_for() -> None:
    assert [model.name for model in models_named(["vit", "bert"])] == ["vit", "bert"]
    assert models_named([]) == MODELS


def test_an_unknown_name_is_named_with_those_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["library_models", "bert", "brt"])
    with pytest.raises(SystemExit):
        library_models.main()
    said = capsys.readouterr().err
    assert "no model 'brt'" in said
    assert "roberta" in said


def test_masks_hide_what_they_say() -> None:
    assert attention_mask((1, 3)).tolist() == [[0, 1, 1, *[0] * (LENGTH - 3)]]
    assert padded_on_the_left()[:, 0].tolist() == [1, 0]
    assert padded_on_the_left()[:, -1].tolist() == [1, 1]
    ends = padded_at_either_end()
    assert ends[:, 0].tolist() == [0, 1]
    assert ends[:, -1].tolist() == [1, 0]


@pytest.fixture
def outputs() -> Iterator[tuple[np.ndarray, Sample]]:
    """Three tokens of four numbers, of which the last is padding."""
    real = torch.tensor([[True, True, False]])
    yield np.ones((1, 3, 4), np.float32), Sample(None, (), real=real)


def test_padding_is_not_compared(outputs: tuple[np.ndarray, Sample]) -> None:
    wanted, sample = outputs
    actual = wanted.copy()
    actual[0, 2] = 7.0
    assert judged([actual], [wanted], [wanted], sample, products=1)["outcome"] == "agrees"
    everything = Sample(None, ())
    assert judged([actual], [wanted], [wanted], everything, products=1)["outcome"] == "wrong"


def test_a_wrong_token_is_wrong(outputs: tuple[np.ndarray, Sample]) -> None:
    wanted, sample = outputs
    actual = wanted.copy()
    actual[0, 1] = 7.0
    assert judged([actual], [wanted], [wanted], sample, products=1)["outcome"] == "wrong"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_padding_is_to_be_finite(outputs: tuple[np.ndarray, Sample], value: float) -> None:
    wanted, sample = outputs
    actual = wanted.copy()
    actual[0, 2, 3] = value
    row = judged([actual], [wanted], [wanted], sample, products=1)
    assert row["outcome"] == "wrong"
    assert row["error"] == np.inf


def test_an_output_of_another_shape_is_wrong(outputs: tuple[np.ndarray, Sample]) -> None:
    wanted, sample = outputs
    row = judged([wanted[:, :2]], [wanted], [wanted], sample, products=1)
    assert row["outcome"] == "wrong"


def test_products_are_rounded_and_nothing_else() -> None:
    third = np.float32(1 / 3)
    half = np.float32(np.float16(third))
    linear = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        linear.weight.fill_(float(third))
    product = Sample(linear, (torch.full((1, 1), float(third)),))
    assert run_eager(product)[0].item() == third * third
    assert run_rounded(product)[0].item() == np.float16(half * half)
    power = Sample(torch.nn.Sigmoid(), product.inputs)
    assert run_rounded(power)[0].item() == run_eager(power)[0].item()


def test_the_products_of_an_attention_are_rounded() -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    sample = Sample(Attention(), (torch.randn(1, 2, 8, 16),))
    (result,) = run_rounded(sample)
    assert (result == result.astype(np.float16)).all()
    assert (result != run_eager(sample)[0]).any()


def test_a_model_is_called_by_keywords_for_its_first_output() -> None:
    class TwoOutputs(torch.nn.Module):
        def decode(self, *, x: float, y: float, scale: float) -> tuple[float, float]:
            return scale * (x - y), 0.0

    called = Called(TwoOutputs(), ("y", "x"), method="decode", scale=2.0)
    assert called(1.0, 4.0) == 6.0


def test_telling_weights_are_no_constants_and_the_same_every_time() -> None:
    def made() -> torch.nn.Module:
        torch.manual_seed(5)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LayerNorm(8)
        )
        module.register_parameter("layer_scale", torch.nn.Parameter(torch.full((8,), 1e-6)))
        module.register_parameter("table", torch.nn.Parameter(torch.zeros(2, 8)))
        make_telling(module, seed=3)
        return module

    module, again = made(), made()
    for name, value in module.state_dict().items():
        assert value.unique().numel() > 1 or value.numel() == 1, name
        assert (value == again.state_dict()[name]).all(), name
    assert module.layer_scale.abs().max() > 0.1


def test_the_libraries_are_installed_once_for_each_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install.folder()
    changed = tmp_path / "requirements.txt"
    changed.write_text("timm==0.0\n")
    monkeypatch.setattr(install, "_REQUIREMENTS", changed)
    assert install.folder() != first
    assert install.folder() == install.folder()


def test_a_process_that_dies_says_how_far_it_came() -> None:
    row = run_module("benchmarks.no_such_module", [], limit_s=60)
    assert row["outcome"].startswith("ended with status 1: ")
    assert "no_such_module" in row["outcome"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_are_rounded_to_the_precision_that_is_tried(dtype: torch.dtype) -> None:
    linear, x = torch.nn.Linear(1, 1, bias=False), torch.full((1, 1), 1 / 3)
    with torch.no_grad():
        linear.weight.fill_(1 / 3)
    third = x.to(dtype).float()
    (found,) = run_rounded(Sample(linear, (x,)), dtype)
    assert found.item() == (third * third).to(dtype).float().item()


def test_bf16_is_allowed_eight_times_the_error_of_fp16() -> None:
    wanted = np.ones(8)
    actual = wanted + 2.0**-8
    assert judge([actual], [wanted], [wanted], 1, STEPS["fp16"])["outcome"] == "wrong"
    assert judge([actual], [wanted], [wanted], 1, STEPS["bf16"])["outcome"] == "agrees"


@pytest.mark.parametrize("name", [each.name for each in CONVOLUTIONS if each.library == "own"])
def test_an_own_model_runs_in_pytorch_at_both_sizes(name: str) -> None:
    (model,) = models_named([name])
    sample = seeded(model)
    (output,) = run_eager(sample)
    assert np.isfinite(output).all()
    assert output.std() > 0.0
    real = model.build_real
    assert real is not None
    assert real().inputs[0].numel() > sample.inputs[0].numel()


def test_a_row_of_convolutions_has_errors_shares_and_counts() -> None:
    trial = {"rms_error": 0.001, "rms_bound": 0.004, "outcome": "agrees"}
    predicted = {
        "share_of_flops": 1.0,
        "share_of_time": 0.97,
        "launches": 3,
        "launches_of_tvm_alone": 9,
        "bytes": 2_400_000,
        "bytes_of_tvm_alone": 9_600_000,
        "predicted_us": 12.3,
    }
    refused = {"outcome": "refused", "refusal": "ModelImportError: no"}
    cells = convolution_models.shown(
        {"model": "m", "torch": trial, "relay": refused, "predicted": predicted}
    )
    assert cells["torch"] == "0.25 of bound"
    assert cells["relay"] == "ModelImportError: no"
    assert (cells["of_time"], cells["megabytes"], cells["us"]) == ("97.0%", 2, 12)
    wrong = convolution_models.shown({"model": "m", "torch": {**trial, "outcome": "wrong"}})
    assert wrong == {"model": "m", "torch": "wrong: 0.25 of bound"}


def test_an_unknown_model_of_convolutions_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["convolution_models", "u-nett"])
    with pytest.raises(SystemExit):
        convolution_models.main()
    assert "no model 'u-nett'; there are timm-mobilenetv2" in capsys.readouterr().err


def test_a_row_without_figures_has_empty_cells() -> None:
    row = {"model": "m", "outcome": "refused", "refusal": "a | b"}
    text = table([row], {"model": "model", "error": "error", "outcome": "outcome"})
    assert text.splitlines()[-1] == "| m |  | refused: a / b |"
