"""TVM's own operators of attention, which are one region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import annotate

BATCH, ROWS, KEYS, HEADS, HEAD = 2, 24, 40, 3, 16
SHAPES = {"q": (BATCH, ROWS, HEADS, HEAD), "k": (BATCH, KEYS, HEADS, HEAD)}
SHAPES |= {"v": (BATCH, KEYS, HEADS, 8), "bias": (BATCH, 1, ROWS, KEYS)}


def module_of(
    *, bias: bool = False, shapes: Mapping[str, tuple[int, ...]] | None = None, **attrs: Any
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    names = ("q", "k", "v", "bias") if bias else ("q", "k", "v")
    known = SHAPES | dict(shapes or {})
    given = [relax.Var(name, relax.TensorType(known[name], "float16")) for name in names]
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


@pytest.mark.parametrize(("mask", "offset"), [("TopLeft", 0), ("BottomRight", KEYS - ROWS)])
def test_a_window_is_one_of_the_kernel(mask: str, offset: int) -> None:
    module = module_of(causal_mask=mask, window_size=8)
    (region,) = annotate(module).regions
    # Its kernel ends rows where a row of the last key does: only there it needs no mask.
    epilogue, prologue = region.workload.layers[0].epilogue, region.workload.layers[1].prologue
    assert (prologue.window, len(epilogue.loads)) == ((8, 0) if offset else (0, 1))
    rng = np.random.default_rng(0)
    given = [rng.normal(0, 0.5, SHAPES[name]).astype(np.float16) for name in ("q", "k", "v")]
    places = np.arange(KEYS) - np.arange(ROWS)[:, None] - offset
    added = np.where((places <= 0) & (places > -8), 0.0, -np.inf)
    (actual,) = Model(module).run(*given)
    wanted = exact(*given, added, HEAD**-0.5)
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=2 * 2**-11 * np.abs(given[2]).max())


def test_a_window_without_an_end_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"nn\.attention .*\b8 keys.*causal_mask"):
        annotate(module_of(window_size=8))


def test_a_window_of_no_keys_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"nn\.attention .*\b0 keys.*at least 1 key"):
        annotate(module_of(causal_mask="TopLeft", window_size=0))


def test_concatenated_sequences_are_refused() -> None:
    builder = relax.BlockBuilder()
    shape = (1, 10, HEADS, HEAD)
    q, k, v = (relax.Var(name, relax.TensorType(shape, "float16")) for name in "qkv")
    starts = relax.Var("starts", relax.TensorType((4,), "int32"))
    longest = relax.Var("longest", relax.TensorType((), "int32"))
    with builder.function("main", [q, k, v, starts, longest]):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.attention_var_len(q, k, v, starts, longest))
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    with pytest.raises(ModelImportError, match=r"attention_var_len.*bias"):
        annotate(builder.get())


def test_a_bias_of_keys_hides_them() -> None:
    """The kernel skips what a bias lowers that all rows of a sequence share."""
    (region,) = annotate(module_of(bias=True, shapes={"bias": (BATCH, 1, 1, KEYS)})).regions
    (load,) = region.workload.first.epilogue.loads
    assert load.hides
    (region,) = annotate(module_of(bias=True)).regions
    (load,) = region.workload.first.epilogue.loads
    assert not load.hides
