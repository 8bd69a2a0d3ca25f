"""Advice about whole models."""

from __future__ import annotations

import torch

from boltgen.cli.advise import advise_model
from boltgen.options import ModelOptions
from boltgen.tuning.advice import Change
from tests.test_slice_rows import DiT, _tokens


def test_a_transformer_has_advice_for_its_single_layers() -> None:
    """Attention is one kernel of two layers, whatever else is fused."""
    program = torch.export.export(DiT(60).eval(), _tokens(2, 60))
    given = advise_model(program, "sm_80", ModelOptions())
    assert given.coverage.verdict().startswith("boltgen computes 100 %")
    changes = {advice.change for advice in given.changes}
    assert changes == {Change.CHANNELS}  # 60 to 64
    assert all("softmax" not in advice.layer.name for advice in given.changes)
