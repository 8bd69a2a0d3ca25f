"""TVM's own operators of attention, which are one region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from boltgen.frontend.relax import annotate
from tests.frontend.oracle_kernels import Model

BATCH, ROWS, KEYS, HEADS, HEAD = 2, 24, 40, 3, 16
SHAPES = {"q": (BATCH, ROWS, HEADS, HEAD), "k": (BATCH, KEYS, HEADS, HEAD)}
SHAPES |= {"v": (BATCH, KEYS, HEADS, 8), "bias": (BATCH, 1, ROWS, KEYS)}


def module_of(*, bias: bool = False, **attrs: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    names = ("q", "k", "v", "bias") if bias else ("q", "k", "v")
    given = [relax.Var(name, relax.TensorType(SHAPES[name], "float16")) for name in names]
    with builder.function("main", given):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.attention(*given, **attrs))
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def exact(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float
) -> np.ndarray:
    q, k, v = (each.astype(np.float64).transpose(0, 2, 1, 3) for each in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * scale + added
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: np.ndarray = raised / raised.sum(-1, keepdims=True) @ v
    return mixed.transpose(0, 2, 1, 3)


@pytest.mark.parametrize(
    ("attrs", "places"),
    [
        ({}, None),
        ({"scale": tvm.tirx.FloatImm("float32", 0.5)}, None),
        ({"bias": True}, None),
        ({"causal_mask": "TopLeft"}, 0),
        ({"causal_mask": "BottomRight"}, KEYS - ROWS),
    ],
    ids=["plain", "scale", "bias", "top-left", "bottom-right"],
)
def test_it_is_one_region(attrs: dict[str, Any], places: int | None) -> None:
    partitioned = annotate(module_of(**attrs))
    (region,) = partitioned.regions
    assert len(region.workload.layers) == 2
    rng = np.random.default_rng(0)
    names = ("q", "k", "v", "bias") if attrs.get("bias") else ("q", "k", "v")
    given = [rng.normal(0, 0.5, SHAPES[name]).astype(np.float16) for name in names]
    added = given[3].astype(np.float64) if attrs.get("bias") else np.zeros((ROWS, KEYS))
    if places is not None:
        added = np.where(np.tri(ROWS, KEYS, places, bool), 0.0, -np.inf)
    scale = float(attrs["scale"].value) if "scale" in attrs else HEAD**-0.5
    wanted = exact(*given[:3], added, scale)
    (actual,) = Model(module_of(**attrs)).run(*given)
    # The author's FP16 rounds the weights, which add up to 1, and the result.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=2 * 2**-11 * np.abs(given[2]).max())


def test_a_window_stays_with_tvm() -> None:
    partitioned = annotate(module_of(causal_mask="TopLeft", window_size=8))
    assert not partitioned.regions
    (placed,) = partitioned.placements
    assert placed.region is None
