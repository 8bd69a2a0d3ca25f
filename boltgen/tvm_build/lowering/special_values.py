"""Keep NaN and infinities in the kernels that TVM generates, for GPUs and for the host.

TVM's `max` and `min` return the other operand if one is NaN. TVM starts a maximum over a row at the
least finite number, which is the wrong result for a row of -inf. ONNX and PyTorch propagate NaN,
and their maximum of -inf is -inf.

Schedule rules recognise reductions by `max`, `min` and the initial number, so loops are changed
after scheduling.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.tirx import compilation_pipeline

from boltgen.tvm_build.cuda_compiler import DEVICE_PREFIX

_PIPELINE = "boltgen"
_NAMES = {tirx.Max: "maximum", tirx.Min: "minimum"}
# The block in which TVM pads an image before pooling, and the suffix of blocks that initialise a
# split reduction.
PADDING, _BEGIN = "pad_temp", "_init"


@functools.cache
def tir_pipeline() -> str:
    """Return the name of a TIR pipeline for `tvm.compile` that keeps NaN and infinities."""
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")
    split = (s_tir.transform.CanonicalizeLoop(), s_tir.transform.LowerCrossThreadReduction())
    lowered = tvm.transform.Sequential([*split, _changed(_prepared), lower])

    def pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
        return (
            lowered,
            lambda: tvm.transform.Sequential([finish_host(), _changed(_on_host)]),
            lambda: tvm.transform.Sequential([finish_device(), _changed(_on_device)]),
        )

    compilation_pipeline.register_tir_pipeline(_PIPELINE, pipeline)
    return _PIPELINE


def with_infinite_padding(module: tvm.IRModule) -> tvm.IRModule:
    """Return `module` with infinite padding of images before max pooling.

    This precedes scheduling, which inlines the padding, so that it is no longer recognisable.
    """
    return _changed(_pad_with_infinity)(module)


def _changed(change: Callable[[Any], Any]) -> tvm.transform.Pass:
    """Return a pass that applies `change` to the loops of each kernel."""

    def run(function: tirx.PrimFunc, _: tvm.IRModule, __: tvm.transform.PassContext) -> Any:
        return function.with_body(change(function.body))

    return tirx.transform.prim_func_pass(run, opt_level=0, name="boltgen.relax.SpecialValues")


def _on_host(body: Any) -> Any:
    # On the host TVM's != is false if an operand is NaN.
    body = tvm_ffi.structural_map(body, (tirx.NE, _not_equal), order="post")
    # Source: LLVM Language Reference Manual: llvm.maximum returns NaN if an operand is NaN.
    return _with_calls(
        body, lambda name, *call: tirx.call_llvm_pure_intrin(call[0], f"llvm.{name}", *call[1:])
    )


def _not_equal(node: tirx.NE) -> Any:
    is_float = str(node.a.ty.dtype).startswith("float")
    return tirx.Not(tirx.EQ(node.a, node.b)) if is_float else node


def _on_device(body: Any) -> Any:
    return _with_calls(
        body, lambda name, *call: tirx.call_pure_extern(call[0], DEVICE_PREFIX + name, *call[1:])
    )


def _with_calls(body: Any, call: Callable[..., Any]) -> Any:
    """Replace `max` and `min` in `body` by a `call` with a name, a type and two operands."""

    def replaced(node: Any) -> Any:
        dtype = str(node.ty.dtype)
        if not dtype.startswith("float"):
            return node
        return call(_NAMES[type(node)], dtype, node.a, node.b)

    return tvm_ffi.structural_map(body, [(kind, replaced) for kind in _NAMES], order="post")


def _prepared(body: Any) -> Any:
    """Return `body`, before TVM simplifies it, with maxima from -inf and minima from inf on."""
    changes = [
        *((kind, _compared) for kind in (tirx.EQ, tirx.NE, tirx.GE, tirx.LE)),
        (s_tir.SBlock, _begun),
        (te.CommReducer, _reducer),
    ]
    return tvm_ffi.structural_map(_pad_with_infinity(body), changes, order="post")


def _compared(node: Any) -> Any:
    """Write a test for NaN without x == x, which TVM's passes simplify to true."""
    dtype = str(node.a.ty.dtype)
    if not dtype.startswith("float") or not tvm_ffi.structural_equal(node.a, node.b):
        return node
    is_nan = tirx.isnan(node.a)
    return is_nan if isinstance(node, tirx.NE) else tirx.Not(is_nan)


def _begun(block: s_tir.SBlock) -> s_tir.SBlock:
    body, init = block.body, block.init
    if not isinstance(body, tirx.BufferStore):
        return block
    if isinstance(init, tirx.BufferStore) and type(body.value) in _NAMES:
        return _block(block, body, _stored(init, _infinity(init.value)))
    if block.name_hint.endswith(_BEGIN):
        return _block(block, _stored(body, _infinity(body.value)), init)
    return block


def _reducer(reducer: te.CommReducer) -> te.CommReducer:
    if [type(each) in _NAMES for each in reducer.result] != [True]:
        return reducer
    first = [_infinity(each) for each in reducer.identity_element]
    return te.CommReducer(reducer.lhs, reducer.rhs, reducer.result, first)


def _pad_with_infinity(body: Any) -> Any:
    def padded(block: s_tir.SBlock) -> s_tir.SBlock:
        store = block.body
        if not block.name_hint.startswith(PADDING) or not isinstance(store, tirx.BufferStore):
            return block
        if not isinstance(store.value, tvm.ir.Call):
            return block
        *inside, outside = store.value.args
        value = tvm.ir.Call(store.value.op, [*inside, _infinity(outside)], ret_ty=store.value.ty)
        return _block(block, _stored(store, value), block.init)

    return tvm_ffi.structural_map(body, (s_tir.SBlock, padded), order="post")


def _block(block: s_tir.SBlock, body: Any, init: Any) -> s_tir.SBlock:
    """Return `block` with another body and another initial number."""
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _stored(store: tirx.BufferStore, value: Any) -> tirx.BufferStore:
    return tirx.BufferStore(store.buffer, value, store.indices)


def _infinity(value: Any) -> Any:
    """Return an infinity for a type's greatest or least number, and any other value unchanged."""
    if not isinstance(value, tirx.FloatImm):
        return value
    dtype = str(value.ty.dtype)
    if abs(value.value) != tirx.max_value(dtype).value:
        return value
    return tirx.FloatImm(dtype, math.copysign(math.inf, value.value))
