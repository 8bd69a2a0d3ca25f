"""Boolean masks of attention in Relay: a choice between scores and the lowest number."""

from __future__ import annotations

import numpy as np

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

BATCH, ROWS, KEYS, DEPTH = 6, 24, 40, 16


def test_scores_that_a_boolean_mask_hides() -> None:
    shapes = {"q": (BATCH, ROWS, DEPTH), "k": (BATCH, KEYS, DEPTH), "v": (BATCH, KEYS, DEPTH)}
    q, k, v = (relay.var(name, shape=shape, dtype="float16") for name, shape in shapes.items())
    seen = relay.var("seen", shape=(1, 1, KEYS), dtype="bool")
    scores = relay.nn.batch_matmul(q, k, out_dtype="float16")
    masked = relay.where(seen, scores, relay.const(np.float16(-np.inf)))
    weights = relay.nn.softmax(masked, axis=-1)
    result = relay.nn.batch_matmul(weights, v, out_dtype="float16", transpose_b=False)
    module = tvm.IRModule.from_expr(relay.Function([q, k, v, seen], result))
    partitioned = steps.annotate(module)
    (region,) = partitioned.regions
    assert len(region.workload.layers) == 2
    rng = np.random.default_rng(0)
    given = [rng.normal(0, 0.5, shape).astype(np.float16) for shape in shapes.values()]
    mask = (np.arange(KEYS) < 25)[None, None]
    (actual,) = Model(partitioned).run(*given, mask)
    wide_q, wide_k, wide_v = (each.astype(np.float64) for each in given)
    exact = np.where(mask, wide_q @ wide_k.transpose(0, 2, 1), -np.inf)
    raised = np.exp(exact - exact.max(-1, keepdims=True))
    wanted = raised / raised.sum(-1, keepdims=True) @ wide_v
    # The author's FP16 rounds the weights, which add up to 1, and the result.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=2 * 2**-11 * np.abs(wide_v).max())
