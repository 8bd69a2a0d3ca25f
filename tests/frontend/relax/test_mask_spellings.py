"""Causal masks and padding, in the ways that models join them: a causal kernel that skips keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.ir.elementwise import Softmax
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition
from tests.test_end_to_end import fp16_tolerance

BATCH, LENGTH, WIDTH, HEADS = 3, 40, 64, 4
LOWEST = torch.finfo(torch.float32).min
PADDING = (0, 9, 31)
# What becomes of scores (B, H, S, S), where `kept` (B, 1, 1, S) has 1 for each token.
Masked = Callable[[Tensor, Tensor], Tensor]


def _ahead() -> Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None]


def _seen(kept: Tensor) -> Tensor:
    return _ahead() & kept.bool()


def _floats(truths: Tensor, lowest: float = LOWEST) -> Tensor:
    return torch.where(truths, 0.0, lowest)


SPELLINGS: dict[str, Masked] = {
    "chosen, then added": lambda s, k: (
        torch.where(_ahead(), s, LOWEST) + (1.0 - k.float()) * LOWEST
    ),
    "chosen by both": lambda s, k: torch.where(_seen(k), s, LOWEST),
    "filled where not both": lambda s, k: s.masked_fill(~_seen(k), LOWEST),
    "filled where either": lambda s, k: s.masked_fill(~_ahead() | (k == 0), LOWEST),
    "filled twice": lambda s, k: s.masked_fill(~_ahead(), LOWEST).masked_fill(k == 0, LOWEST),
    "filled with -inf": lambda s, k: s.masked_fill(~_seen(k), -torch.inf),
    "added of both": lambda s, k: s + _floats(_seen(k)),
    "added in turn": lambda s, k: s + _floats(_ahead()) + _floats(k.bool()),
    "added, of a filled mask": lambda s, k: s + _floats(_ahead()).masked_fill(k == 0, LOWEST),
    "added with FP16's lowest": lambda s, k: s + _floats(_seen(k), -65504.0),
}


class Attending(nn.Module):
    """Self-attention whose scores `masked` masks."""

    def __init__(self, masked: Masked) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.masked = masked

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        heads = self.qkv(x).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        scores = self.masked(q @ k.transpose(-1, -2) / 4.0, kept[:, None, None, :])
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("name", SPELLINGS)
def test_rows_end_at_the_diagonal_and_padding_is_skipped(name: str) -> None:
    torch.manual_seed(0)
    module = Attending(SPELLINGS[name]).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    kept = (torch.arange(LENGTH) >= torch.tensor(PADDING)[:, None]).to(torch.int64)
    # -inf makes NaN of rows that see nothing; a tokenizer pads behind then.
    kept = kept.flip(1) if "-inf" in name else kept
    imported = import_model(torch.export.export(module, (x, kept)), PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    model = Model.of_annotated(imported.partitioned)
    (attention,) = (each for each in model.regions if len(each.workload.layers) > 1)
    scores, values = attention.workload.layers
    assert values.prologue is not None
    assert [node.causal for node in values.prologue.nodes if isinstance(node, Softmax)] == [True]
    assert [load.hides for load in scores.epilogue.loads] == [True]
    (actual,) = model.run(x.numpy(), kept.numpy())
    with torch.no_grad():
        expected = module(x, kept).numpy()
    tokens = kept.bool().numpy()
    error = float(np.sqrt(np.mean(np.square(actual[tokens] - expected[tokens]))))
    assert error <= fp16_tolerance(expected[tokens], 4)
    assert np.isfinite(actual).all()
