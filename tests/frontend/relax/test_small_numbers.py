"""Guards, small weights and small activations keep their meaning beside FP16 products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional
from tvm import relax

from benchmarks.cases.relax_modules import build, operators
from benchmarks.harness.oracle_kernels import Model
from benchmarks.small_number_cases import Case, cases
from benchmarks.small_numbers import outcome
from boltgen.frontend.relax import annotate
from boltgen.ir.dtypes import DType
from boltgen.model_passes import passes_for
from boltgen.passes.run import Passes
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.relax_model import Model as Imported

op = relax.op
RNG = np.random.default_rng(7)
WEIGHT = (RNG.standard_normal((64, 64)) / 8).astype(np.float32)
# The sample has a share of each kind: guards, roots, logarithms, weights and activations.
SAMPLE = cases()[::19]


def _rows() -> np.ndarray:
    x = RNG.standard_normal((8, 64)).astype(np.float32)
    x[3] = 0.0
    return x


@pytest.mark.parametrize("case", SAMPLE, ids=[case.name for case in SAMPLE])
def test_a_small_number_keeps_its_meaning(case: Case) -> None:
    assert outcome(case).status == "right"


@pytest.mark.parametrize(
    "normed",
    [
        lambda h: functional.normalize(h, dim=-1),
        lambda h: functional.normalize(h, p=1, dim=-1, eps=1e-8),
        lambda h: h / h.abs().amax(-1, keepdim=True).clamp_min(1e-10),
        lambda h: h * (h.norm(dim=-1, keepdim=True) + 1e-12).pow(-1.0),
        lambda h: h * h.square().sum(-1, keepdim=True).clamp_min(1e-24).rsqrt(),
    ],
)
def test_a_row_of_zeros_stays_one_in_pytorch(
    normed: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    class Normed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return normed(x @ torch.from_numpy(WEIGHT)) @ torch.from_numpy(WEIGHT)

    x = torch.from_numpy(_rows())
    model = Imported(torch.export.export(Normed(), (x,)), {})
    model.annotate(passes_for("sm_80", PipelineOptions()))
    # The second product is offloaded too: what is normed is of ordinary size.
    assert [region.label.split()[0] for region in model.regions].count("matmul") == 2
    (actual,) = Model.of_annotated(model.partitioned).run(x.numpy())
    assert (actual[3] == 0).all()
    np.testing.assert_allclose(actual, Normed()(x).numpy(), rtol=0, atol=0.005)


def test_a_guard_in_an_epilogue_stays_there() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        h = op.matmul(x, relax.const(WEIGHT))
        return op.divide(relax.const(np.float32(1e-12)), op.clip(op.abs(h), 1e-12, 1.0))

    model = Model(build({"x": ((8, 64), "float32")}, body), normalise=True)
    assert len(model.regions) == 1
    assert operators(model.annotated) == []
    (actual,) = model.run(np.zeros((8, 64), np.float32))
    np.testing.assert_array_equal(actual, np.ones((8, 64), np.float32))


@pytest.mark.parametrize("exponent", [-20, -40, -100])
def test_small_weights_lose_no_bit(exponent: int) -> None:
    """A power of two goes behind the product: the numbers are those of the larger weights."""

    def product(weight: np.ndarray, factor: float) -> np.ndarray:
        def body(x: relax.Expr) -> relax.Expr:
            h = op.nn.relu(op.matmul(x, relax.const(weight)))
            return op.multiply(h, relax.const(np.float32(factor)))

        model = Model(build({"x": ((8, 64), "float32")}, body), normalise=True)
        assert len(model.regions) == 1
        (found,) = model.run(x)
        return found

    x = _rows()
    small = product(np.ldexp(WEIGHT, exponent), 2.0**-exponent)
    np.testing.assert_allclose(small, product(WEIGHT, 1.0), rtol=2.0**-10, atol=2.0**-20)


def test_one_small_channel_has_a_factor_of_its_own() -> None:
    weight, factors = WEIGHT.copy(), np.ones(64, np.float32)
    weight[:, 5] *= np.float32(1e-9)
    factors[5] = 1e9

    def body(x: relax.Expr) -> relax.Expr:
        h = op.nn.relu(op.matmul(x, relax.const(weight)))
        return op.multiply(h, relax.const(factors))

    model = Model(build({"x": ((8, 64), "float32")}, body), normalise=True)
    assert len(model.regions) == 1
    x = _rows()
    (actual,) = model.run(x)
    np.testing.assert_allclose(actual, np.maximum(x @ WEIGHT, 0), rtol=0, atol=0.01)


def test_weights_with_a_few_small_channels_stay_as_they_are() -> None:
    """Trained networks have dead channels, which cost no factor where nothing enlarges them."""
    weight = WEIGHT.copy()
    weight[:, 5] *= np.float32(1e-30)
    module = build(
        {"x": ((8, 64), "float32")}, lambda x: op.nn.relu(op.matmul(x, relax.const(weight)))
    )
    model = Model(module, normalise=True)
    assert [region.label for region in model.regions] == ["matmul + relu + astype"]


def test_a_product_of_small_operands_stays_with_tvm_and_says_so() -> None:
    def body(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        small = op.nn.relu(op.multiply(x, relax.const(np.float32(1e-8))))
        return op.multiply(op.matmul(small, y), relax.const(np.float32(1e8)))

    module = build({"x": ((8, 64), "float32"), "y": ((64, 8), "float32")}, body)
    model = Model(module, normalise=True)
    assert not model.regions
    (reason,) = [each.reason for each in model.annotated.placements if each.operator == "matmul"]
    assert reason is not None
    assert "numbers are small, about 1e-08" in reason
    x, y = _rows(), WEIGHT[:, :8]
    (actual,) = model.run(x, y)
    np.testing.assert_allclose(actual, np.maximum(x, 0) @ y, rtol=1e-4, atol=1e-5)


def test_bf16_keeps_bounds_beside_one() -> None:
    """0.999 is 1 in BF16, and 1 - 1 has no logarithm."""

    def body(x: relax.Expr) -> relax.Expr:
        h = op.sigmoid(op.matmul(x, relax.const(WEIGHT)))
        kept = op.clip(h, 1e-3, 0.999)
        return op.log(op.subtract(relax.const(np.float32(1.0)), kept))

    module = build({"x": ((8, 64), "float32")}, body)
    model = Model(module, normalise=True, precision=DType.BF16)
    x = _rows() * 20
    (actual,) = model.run(x)
    wanted = np.log(1 - np.clip(1 / (1 + np.exp(-(x @ WEIGHT))), 1e-3, 0.999))
    # The product is off by 2^-8 of numbers up to 60, and the logarithm's slope is 1 at most.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=0.25)


class Attention(torch.nn.Module):
    """Attention by einsum, beside a result that is beyond FP16."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).reshape(batch, length, 4, 16)
            for project in (self.queries, self.keys, self.values)
        )
        weights = torch.einsum("bqhd,bkhd->bhqk", q * 0.25, k).softmax(-1)
        joined = torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, 64)
        y = self.out(joined)
        return y, (y * 4000.0).square().amax(-1)


def test_calibration_keeps_attention_by_einsum() -> None:
    torch.manual_seed(0)
    module, x = Attention().eval(), torch.randn(2, 16, 64)
    labels = []
    for calibrated in (False, True):
        model = Imported(torch.export.export(module, (x,)), {})
        if calibrated:
            model.calibrate([[x.numpy()]])
            assert any(each.is_beyond(DType.F16) for each in model.ranges)
        model.annotate(passes_for("sm_80", PipelineOptions()))
        labels.append([region.label for region in model.regions])
        found = Model.of_annotated(model.partitioned).run(x.numpy())
        for actual, wanted in zip(found, module(x), strict=True):
            exact = wanted.detach().numpy()
            np.testing.assert_allclose(actual, exact, rtol=0, atol=0.01 * np.abs(exact).max())
    assert labels[0] == labels[1]
    assert any("softmax" in label and label.count("matmul") == 2 for label in labels[1])


def test_what_was_seen_to_be_small_is_fp32() -> None:
    """FP16 has two bits of 1e-7; nothing in the model tells that it is so small."""
    weight = relax.const(WEIGHT)

    def body(x: relax.Expr, gain: relax.Expr) -> relax.Expr:
        h = op.nn.relu(op.multiply(op.matmul(x, weight), gain))
        return op.divide(op.permute_dims(h), gain)

    module = build({"x": ((8, 64), "float32"), "gain": ((1, 1), "float32")}, body)
    x, gain = _rows(), np.full((1, 1), 1e-7, np.float32)
    product = np.abs(x @ WEIGHT).max() * 1e-7
    observed = {
        index: (0.0, float(product))
        for index, expr in enumerate(annotate(module, Passes(normalise=False)).graphs["main"].exprs)
        if expr.op in {"multiply", "nn.relu"}
    }
    model = Model.of_annotated(annotate(module, Passes(observed=observed)))
    (actual,) = model.run(x, gain)
    np.testing.assert_allclose(actual, np.maximum(x @ WEIGHT, 0).T, rtol=0, atol=0.01)
