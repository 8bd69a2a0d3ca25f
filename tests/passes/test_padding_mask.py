"""Which masks of keys attention's kernel is told to skip, and which stay numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.ir.elementwise import LoadKind
from tests.passes.test_causal import ROWS, Builder, carved


def _added(b: Builder) -> int:
    return b.elementwise("add", b.scores(), b.input(1, 1, ROWS))


def _least(b: Builder) -> int:
    return b.elementwise("minimum", b.scores(), b.input(1, 1, ROWS))


def _bounded(b: Builder) -> int:
    """As the sum is that must not become infinite."""
    return b.elementwise("clip", _added(b), low=-65504.0, high=65504.0)


def _chosen(b: Builder) -> int:
    """Scores, or the lowest number where a key is not seen."""
    shown = b.operator("less", (b.places(1, 1, ROWS), b.number(7, "int64")), (1, 1, ROWS), "bool")
    scores = b.scores()
    lowest = b.number(float(np.finfo(np.float16).min))
    return b.where(shown, scores, lowest, b.shape(scores))


def _beside_all(b: Builder) -> int:
    """Another mask might hide what this one shows."""
    return b.elementwise("add", _added(b), b.input(1, ROWS, ROWS))


def _beside_a_bias(b: Builder) -> int:
    bias = np.full((1, ROWS, ROWS), -1024, np.float16)
    return b.elementwise("add", _added(b), b.constant(bias))


def _beside_a_large_bias(b: Builder) -> int:
    """It is large enough to hide what the mask shows."""
    bias = np.zeros((1, ROWS, ROWS), np.float16)
    bias[0, 0, 0] = -16384
    return b.elementwise("add", _added(b), b.constant(bias))


def _two(b: Builder) -> int:
    return b.elementwise("add", _added(b), b.input(1, 1, ROWS))


def _scaled(b: Builder) -> int:
    """What hides is less by far behind a factor."""
    return b.elementwise("multiply", _added(b), b.number(1e-4))


def _raised(b: Builder) -> int:
    return b.elementwise("clip", _added(b), low=-100.0, high=65504.0)


def _of_all(b: Builder) -> int:
    return b.elementwise("add", b.scores(), b.input(1, ROWS, ROWS))


def _of_rows(b: Builder) -> int:
    return b.elementwise("add", b.scores(), b.input(1, ROWS, 1))


CASES: dict[str, tuple[Callable[[Builder], int], bool]] = {
    "added": (_added, True),
    "least": (_least, True),
    "bounded": (_bounded, True),
    "chosen": (_chosen, True),
    "beside a mask of rows and keys": (_beside_all, False),
    "beside a bias": (_beside_a_bias, True),
    "beside a large bias": (_beside_a_large_bias, False),
    "two": (_two, False),
    "scaled": (_scaled, False),
    "raised": (_raised, False),
    "of rows": (_of_rows, False),
    "of rows and keys": (_of_all, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mask_of_keys_alone_hides(name: str) -> None:
    build, hides = CASES[name]
    b = Builder()
    scores, _ = carved(b, build(b)).layers
    rows = [load for load in scores.epilogue.loads if load.kind is LoadKind.ROW]
    assert scores.epilogue.loads
    assert any(load.hides for load in rows) == hides
    assert not any(load.hides for load in scores.epilogue.loads if load not in rows)
