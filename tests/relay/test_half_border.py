"""`io="half"` by Relay too: inputs and outputs are FP16 where they were FP32."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen.relay  # it brings the libraries that TVM is linked with
from boltgen.errors import InputError
from boltgen.frontend.relay.bind import bind
from boltgen.frontend.relay.border import with_narrow_border
from boltgen.ir.dtypes import DType

import tvm  # isort: skip
from tvm import relay  # isort: skip

WEIGHT = np.random.default_rng(0).normal(0, 64**-0.5, (64, 64)).astype(np.float32)


def model(*, is_named: bool = False) -> tvm.IRModule:
    """(x W, steps + 1), as a tuple that is written out, or as one that has a name."""
    x = relay.var("x", shape=(16, 64), dtype="float32")
    steps = relay.var("steps", shape=(4,), dtype="int32")
    dense = relay.nn.dense(x, relay.const(WEIGHT))
    results = relay.Tuple([dense, relay.add(steps, relay.const(1))])
    if is_named:
        pair = relay.var("pair")
        results = relay.Let(pair, results, pair)
    return tvm.IRModule.from_expr(relay.Function([x, steps], results))


@pytest.mark.parametrize("is_named", [False, True])
def test_each_of_several_results_is_cast_where_it_was_wide(is_named: bool) -> None:
    module = with_narrow_border(bind(model(is_named=is_named), {}), DType.F16)
    main = module["main"]
    assert [each.checked_type.dtype for each in main.params] == ["float16", "int32"]
    assert [each.dtype for each in main.checked_type.ret_type.fields] == ["float16", "int32"]


def test_a_model_takes_and_gives_halves() -> None:
    artifact = boltgen.compile(model(), frontend="relay", io="half", check="full")
    assert [str(each) for each in artifact.metadata.inputs] == [
        "x: float16[16, 64]",
        "steps: int32[4]",
    ]
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float16)
    steps = np.arange(4, dtype=np.int32)
    found, more = artifact.run({"x": x, "steps": steps}).values()
    assert found.dtype == np.float16
    want = x.astype(np.float64) @ WEIGHT.astype(np.float64).T
    size = np.abs(x.astype(np.float64)) @ np.abs(WEIGHT.astype(np.float64)).T
    # Weights and results are rounded once; a sum of 64 in FP32 is off by 64 * 2^-24 of its terms.
    u = DType.F16.unit_roundoff
    assert (np.abs(found - want) <= u * (1 + u) * (size + np.abs(want)) + 2.0**-18 * size).all()
    np.testing.assert_array_equal(more, steps + 1)
    with pytest.raises(InputError, match="'x' has dtype float32, expected float16: convert it"):
        artifact.run({"x": x.astype(np.float32), "steps": steps})
