"""Rows of scores that see no key: -inf makes NaN of them wherever someone reads it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition

KEYS, WIDTH = 16, 64
EMPTY = (3, 5)
LOWEST = torch.finfo(torch.float32).min
# What becomes of scores, or of weights, where a row sees the keys of a truth.
Masked = Callable[[Tensor, Tensor], Tensor]


def _number(like: Tensor, value: float) -> Tensor:
    return torch.full((), value, dtype=like.dtype)


def _added(scores: Tensor, seen: Tensor, lowest: float) -> Tensor:
    return torch.where(seen, _number(scores, 0.0), _number(scores, lowest))


SPELLINGS: dict[str, Masked] = {
    "filled": lambda s, k: s.masked_fill(~k, -torch.inf),
    "chosen": lambda s, k: torch.where(k, s, torch.full_like(s, -torch.inf)),
    "added": lambda s, k: s + _added(s, k, -torch.inf),
    "added, of a filled mask": lambda s, k: s + torch.zeros_like(s).masked_fill(~k, -torch.inf),
    "beside a finite one": lambda s, k: s + _added(s, k, LOWEST) + _added(s, k, -torch.inf),
}
GUARDS: dict[str, Masked] = {
    "none": lambda w, k: w,
    "nan_to_num": lambda w, k: torch.nan_to_num(w, nan=0.0),
    "isnan": lambda w, k: torch.where(torch.isnan(w), _number(w, 0.0), w),
    "unlike itself": lambda w, k: w.masked_fill(w != w, 0.0),  # noqa: PLR0124
    "any key": lambda w, k: w.masked_fill(~k.any(-1, keepdim=True), 0.0),
}


class Attending(nn.Module):
    """Attention that returns its weights, their product with the values, or both."""

    def __init__(self, spelling: str, guard: str, results: str) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.masked, self.guarded = SPELLINGS[spelling], GUARDS[guard]
        self.results = results

    def forward(self, x: Tensor, seen: Tensor) -> tuple[Tensor, ...]:
        scores = self.masked(self.linear(x) @ x.transpose(-1, -2) * 0.1, seen)
        weights = self.guarded(scores.softmax(-1), seen)
        found = {"weights": weights, "product": weights @ x}
        return tuple(found[name] for name in self.results.split(", "))


@pytest.mark.parametrize("results", ["product", "weights, product"])
@pytest.mark.parametrize(("spelling", "guard"), list(itertools.product(SPELLINGS, GUARDS)))
def test_rows_without_keys_are_those_of_pytorch(spelling: str, guard: str, results: str) -> None:
    torch.manual_seed(0)
    module = Attending(spelling, guard, results).eval()
    x, seen = torch.randn(KEYS, WIDTH), torch.rand(KEYS, KEYS) > 0.4
    seen[list(EMPTY)] = False
    imported = import_model(torch.export.export(module, (x, seen)), PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    actual = Model.of_annotated(imported.partitioned).run(x.numpy(), seen.numpy())
    with torch.no_grad():
        expected = [each.numpy() for each in module.double()(x.double(), seen)]
    assert np.isnan(expected[0][list(EMPTY)]).all() == (guard == "none")
    for have, want in zip(actual, expected, strict=True):
        # Of FP16 scores of at most 4, each rounded three times, and of weights and values.
        np.testing.assert_allclose(have, want, rtol=0, atol=16 * 2.0**-11, equal_nan=True)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_filled_tensor_that_no_softmax_reads_is_filled(value: float) -> None:
    class Filled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.masked_fill(x != 1.0, -torch.inf)

    module, x = Filled().eval(), torch.tensor([[1.0, value, 2.0, -torch.inf]])
    imported = import_model(torch.export.export(module, (x,)), PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    (actual,) = Model.of_annotated(imported.partitioned).run(x.numpy())
    np.testing.assert_array_equal(actual, module(x).numpy())
