"""Normalise quantisations, and the products of integers that `passes.quantisation` writes."""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Axis, Convolution
from boltgen.graph.facts import BYTES
from boltgen.ir.dtypes import FLOAT8, DType
from boltgen.passes.precision.call import Item, OperatorCall, Rule
from boltgen.passes.precision.values import Value, order_of, permuted


def _elementwise(call: OperatorCall) -> Item | None:
    """Quantise or dequantise a tensor as it lies, in FP32."""
    x, scale, zero = call.tensors
    store = call.store
    store.settle(x)
    if x.flat is not None or not x.shape:
        return None
    order, axis = x.order, call.attrs.of(Axis).at(len(x.shape))
    is_made_whole = call.name == "quantize"
    args = (
        store.get(x, order, DType.F32.value if is_made_whole else x.dtype),
        store.get(scale, None, DType.F32.value),
        store.get(zero),
    )
    dtype = call.dtype if is_made_whole else DType.F32.value
    made = call.builder.operator(
        call.name, args, permuted(call.shape, order), dtype, Axis(order.index(axis))
    )
    return call.result(made, order)


def integer_matmul(call: OperatorCall) -> Item | None:
    """Multiply bytes; a constant B lies in columns, whose K is contiguous."""
    a, b = call.tensors
    store, builder = call.store, call.builder
    if not _are_bytes(a, b) or b.constant is None or b.constant.ndim != 2:
        return None
    columns = builder.right_operand(b.constant.T, is_column=True)
    return call.result(builder.matmul(store.get(a), columns, call.dtype))


def _are_bytes(a: Value, b: Value) -> bool:
    """Return whether kernels of bytes take two operands: B is of A's type, or has a sign."""
    is_byte = a.dtype in BYTES or a.dtype in FLOAT8
    return is_byte and b.dtype == DType(a.dtype).weight.value


def integer_conv2d(call: OperatorCall) -> Item | None:
    """Convolve images of bytes in NHWC, with filters in OHWI; TVM has all other convolutions."""
    attrs = call.attrs.of(Convolution)
    x, weight = call.tensors
    layouts = (attrs.data_layout, attrs.kernel_layout)
    is_plain = [sorted(layout) for layout in layouts] == [sorted("NCHW"), sorted("OIHW")]
    if call.name != "nn.conv2d" or not is_plain or attrs.out_layout != attrs.data_layout:
        return None
    is_depthwise = 1 < attrs.groups == x.shape[attrs.data_layout.index("C")]
    if is_depthwise or not _are_bytes(x, weight):
        return None
    order = order_of(attrs.data_layout, "NHWC")
    written = replace(attrs, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
    args = (
        call.store.get(x, order),
        call.store.get(weight, order_of(attrs.kernel_layout, "OHWI")),
    )
    shape = permuted(call.shape, order)
    made = call.builder.operator("nn.conv2d", args, shape, call.dtype, written)
    return call.result(made, order)


RULES: dict[str, Rule] = dict.fromkeys(("quantize", "dequantize"), _elementwise)
