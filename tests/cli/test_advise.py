"""Advice about whole models."""

from __future__ import annotations

import pytest
import torch

from boltgen.artifact.coverage import Coverage, Rest
from boltgen.cli.advise import ModelAdvice, advice_lines, advise_model
from boltgen.options import ModelOptions
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.advice import Advice, Change, NamedLayer
from tests.test_slice_rows import DiT, _tokens


def test_a_transformer_has_advice_for_its_single_layers() -> None:
    """Attention is one kernel of two layers, whatever else is fused."""
    program = torch.export.export(DiT(60).eval(), _tokens(2, 60))
    given = advise_model(program, "sm_80", ModelOptions())
    assert given.coverage.verdict().startswith("boltgen computes 100 %")
    changes = {advice.change for advice in given.changes}
    assert changes == {Change.CHANNELS}  # 60 to 64
    assert all("softmax" not in advice.layer.name for advice in given.changes)


def _advice(number: int, cost: float) -> Advice:
    """A change of a layer of odd channels that makes it slower by `cost`."""
    layer = Workload.of(Gemm(m=16 + number, n=60, k=60)).single
    return Advice(
        layer=NamedLayer(name=f"matmul + add + relu + layer number {number}", layer=layer),
        change=Change.CHANNELS,
        what="60 channels to 64",
        before_us=10.0,
        after_us=10.0 * (1 + cost),
        origin="predicted by the analytical model",
    )


def _given(changes: int, kept: int, cost: float = -0.2) -> ModelAdvice:
    reason = "a reason that is explained in a long sentence, with what to change about it, " * 3
    rest = tuple(
        Rest(operator=f"conv{number}d", reason=reason, count=1, flops=10) for number in range(kept)
    )
    total = 10 * kept + 90
    found = Coverage(offloaded_flops=90, total_flops=total, rest=rest)
    advice = tuple(_advice(number, cost - number / 1000) for number in range(changes))
    return ModelAdvice(coverage=found, changes=advice)


@pytest.mark.parametrize(("changes", "kept"), [(0, 0), (1, 1), (60, 0), (0, 60), (60, 60)])
def test_advice_has_at_most_40_lines_of_80_columns(changes: int, kept: int) -> None:
    lines = advice_lines(_given(changes, kept))
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("boltgen computes")
    text = "\n".join(lines)
    assert ("with TVM stay:" in text) == bool(kept)
    assert text.count("matmul+add+relu+layer number") == text.count("60 channels to 64")
    if changes:
        # The largest gain first; what has no room is counted.
        assert f"layer number {changes - 1}" in text
        shown = text.count("60 channels to 64")
        assert (f"  and {changes - shown} more" in lines) == (shown < changes)
    else:
        assert "no change of a layer's channels makes it faster" in text


def test_a_change_that_gains_nothing_is_not_told() -> None:
    lines = advice_lines(_given(3, 0, cost=0.05))
    assert lines == [
        "boltgen computes 100 % of 90 FLOP",
        "no change of a layer's channels makes it faster",
    ]


def test_a_change_is_told_in_whole_words() -> None:
    given = _given(1, 1, cost=-0.25)
    assert advice_lines(given)[1:] == [
        "with TVM stay:",
        "  1 product of conv0d, 10.0% of the work: a reason that is explained in a long",
        "    sentence, with what to change about it, a reason that is explained in a long",
        "    sentence, with what to change about it, a reason that is explained in a long",
        "    sentence, with what to change about it,",
        "changes of layers that make them faster:",
        "  matmul+add+relu+layer number 0, " + Gemm(m=16, n=60, k=60).short,
        "    aligned channels, 60 channels to 64: 10.0 to 7.5 us, 25% less (predicted by",
        "      the analytical model)",
    ]
