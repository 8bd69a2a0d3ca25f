"""What leaves FP16's range on calibration inputs stays FP32, by Relay too."""

from __future__ import annotations

import numpy as np

import boltgen.relay  # it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip


def test_a_product_that_overflows_has_fp32_results() -> None:
    x = relay.var("x", shape=(16, 64), dtype="float32")
    weight = relay.const(np.full((64, 64), 8.0, np.float32))
    large = relay.nn.relu(relay.nn.dense(x, weight))
    small = relay.multiply(large, relay.const(np.float32(2.0**-12)))
    out = relay.nn.dense(small, relay.const(np.eye(64, dtype=np.float32)))
    module = tvm.IRModule.from_expr(relay.Function([x], out))
    array = np.full((16, 64), 1000, np.float32)
    artifact = boltgen.compile(module, frontend="relay", calibrate={"x": array})
    kept = [found.high for found in artifact.metadata.ranges if found.is_kept_wide]
    assert kept == ["512000", "512000"]
    (result,) = artifact.run({"x": array}).values()
    np.testing.assert_array_equal(result, np.full((16, 64), 125.0, np.float32))
