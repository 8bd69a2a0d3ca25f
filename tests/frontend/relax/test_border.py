"""Inputs and results of a Relax module in a narrower type than their author's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from boltgen.frontend.relax import annotate, with_narrow_border
from boltgen.frontend.relax.translate import tensor_type
from boltgen.graph.graph import INPUT
from boltgen.ir.dtypes import DType
from boltgen.passes.run import Passes


def module(*, is_named: bool) -> tvm.IRModule:
    """(x + y, (x, rows)) of open rows; a tuple that is written out, or one that has a name."""
    rows = tvm.tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))
    y = relax.Var("y", relax.TensorType((rows, 8), "float32"))
    number = relax.Var("number", relax.TensorType((rows,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y, number]):
        total = builder.emit(relax.op.add(x, y))
        results = tvm.ir.Tuple([total, tvm.ir.Tuple([x, number])])
        builder.emit_func_output(builder.emit(results) if is_named else results)
    return builder.get()


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("border", [DType.F16, DType.BF16])
def test_what_was_fp32_is_narrow_at_any_depth(border: DType, is_named: bool) -> None:
    main = with_narrow_border(module(is_named=is_named), border)["main"]
    narrow = (("rows", 8), border.value)
    assert [tensor_type(each.ty) for each in main.params] == [narrow, narrow, (("rows",), "int64")]
    total, pair = main.ret_ty.fields
    assert tensor_type(total) == narrow
    assert [tensor_type(each) for each in pair.fields] == [narrow, (("rows",), "int64")]
    assert [each.name for each in main.params] == ["x", "y", "number"]


def test_it_computes_what_it_did_before() -> None:
    made = with_narrow_border(module(is_named=False), DType.F16)
    machine = relax.VirtualMachine(tvm.compile(made, target="llvm"), tvm.cpu())
    x, y = np.full((3, 8), 2048, np.float16), np.ones((3, 8), np.float16)
    number = np.arange(3)
    total, (same, rows) = machine["main"](*map(tvm.runtime.tensor, (x, y, number)))
    # 2049 is no FP16 number: the sum is FP32, and rounded once.
    np.testing.assert_array_equal(total.numpy(), np.full((3, 8), 2048, np.float16))
    np.testing.assert_array_equal(same.numpy(), x)
    np.testing.assert_array_equal(rows.numpy(), number)


def test_a_narrow_input_is_read_without_casts() -> None:
    made = with_narrow_border(module(is_named=False), DType.F16)
    graph = annotate(made, Passes(narrowed=frozenset({0, 1}))).graphs["main"]
    assert [each.dtype for each in graph.exprs if each.op == INPUT] == [
        "float16",
        "float16",
        "int64",
    ]
    assert not any(each.op == "astype" for each in graph.exprs)
