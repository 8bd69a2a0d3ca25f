"""The argument structs of back-to-back kernels, as templates/include/boltgen/abi.h has them."""

from __future__ import annotations

import ctypes

from boltgen.ir.chain import MAX_LAYERS
from boltgen.measure.abi import MAX_OPERANDS, Operand


class ChainLayerArgs(ctypes.Structure):
    """`boltgen_chain_layer`: a layer's columns, its B and its epilogue's operands."""

    _fields_ = (
        ("n", ctypes.c_int32),
        ("b", ctypes.c_void_p),
        ("ldb", ctypes.c_int64),
        ("batch_stride_b", ctypes.c_int64),
        ("operands", Operand * MAX_OPERANDS),
    )


_TAIL = (
    ("layers", ChainLayerArgs * MAX_LAYERS),
    ("workspace", ctypes.c_void_p),
    ("workspace_bytes", ctypes.c_size_t),
    ("stream", ctypes.c_void_p),
)


class GemmChainArgs(ctypes.Structure):
    """`boltgen_gemm_chain_args`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("m", "k", "batch")),
        *((name, ctypes.c_void_p) for name in "ad"),
        *((name, ctypes.c_int64) for name in ("lda", "ldd", "batch_stride_a", "batch_stride_d")),
        *_TAIL,
    )


class Conv2dChainArgs(ctypes.Structure):
    """`boltgen_conv2d_chain_args`; the first layer's channels are `layers[0].n`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in "nhwcrspq"),
        *((name, ctypes.c_int32) for name in ("pad_h", "pad_w", "stride_h", "stride_w")),
        *((name, ctypes.c_int32) for name in ("dilation_h", "dilation_w")),
        *((name, ctypes.c_void_p) for name in "ad"),
        *_TAIL,
    )
