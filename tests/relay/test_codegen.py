"""What a partitioned module says of its kernels, and the hook that hands them to TVM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boltgen.relay
from boltgen.device.choose import activate
from boltgen.errors import BoltgenError

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip
from boltgen.frontend.relay import codegen, steps  # isort: skip

TARGET = tvm.target.Target("cuda -arch=sm_80", host="llvm")
WEIGHT = np.random.default_rng(0).standard_normal((48, 64)).astype(np.float16)


def layer() -> relay.Function:
    x = relay.var("x", shape=(32, 64), dtype="float16")
    return relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT))))


@pytest.fixture(scope="module")
def partitioned() -> tvm.IRModule:
    return boltgen.relay.partition(tvm.IRModule.from_expr(layer()))


def region(module: tvm.IRModule) -> relay.Function:
    (function,) = (each for each in module.functions.values() if codegen.ADAPTER in each.attrs)
    return function


def test_a_region_names_what_it_is_linked_from(partitioned: tvm.IRModule) -> None:
    attrs = region(partitioned).attrs
    paths = [attrs[codegen.ADAPTER], *attrs[codegen.ARCHIVES]]
    assert len(paths) == 2
    assert all(Path(str(path)).is_file() for path in paths)
    # Nothing for people among them.
    assert set(attrs.keys()) == {
        *("Primitive", "Inline", "Compiler", "global_symbol"),
        *(codegen.ADAPTER, codegen.ARCHIVES),
    }


def test_what_is_gone_is_named(partitioned: tvm.IRModule, tmp_path: Path) -> None:
    gone = tmp_path / "adapter.o"
    function = region(partitioned).with_attr(codegen.ADAPTER, tvm.runtime.String(str(gone)))
    with pytest.raises(BoltgenError, match=r"boltgen_0_matmul.*adapter\.o is missing.*partition"):
        codegen.generate(function)


def test_a_region_without_kernels() -> None:
    annotated = steps.annotate(tvm.IRModule.from_expr(layer())).module()
    (function,) = (f for g, f in annotated.functions.items() if g.name_hint != "main")
    with pytest.raises(BoltgenError, match=r"boltgen_0_matmul has no kernel.*partition"):
        codegen.generate(function)


def test_a_second_partition_after_a_function_was_added(
    partitioned: tvm.IRModule, tmp_path: Path
) -> None:
    module = tvm.IRModule(dict(partitioned.functions.items()))
    module["more"] = layer()
    again = boltgen.relay.partition(module)
    names = {gvar.name_hint for gvar in again.get_global_vars()}
    assert names == {"main", "more", "boltgen_0_matmul", "boltgen_1_matmul"}
    tvm.ir.assert_structural_equal(again["boltgen_0_matmul"], region(partitioned))
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(again, target=TARGET)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    activate("vgpu")
    loaded = tvm.runtime.load_module(str(library))
    executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float16)
    executor.run(x=x)
    products = np.abs(x.astype(np.float32)) @ np.abs(WEIGHT.astype(np.float32)).T
    expected = np.maximum(x.astype(np.float32) @ WEIGHT.astype(np.float32).T, 0)
    # Operands are exact, sums are FP32, the result is rounded once.
    assert (np.abs(executor.get_output(0).numpy() - expected) <= 2.0**-11 * products).all()
