"""The argument structs of back-to-back kernels, and the arguments of a packed chain."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

from boltgen.codegen.chain_sizes import chain_layer_sizes, chain_sizes
from boltgen.ir.chain import MAX_LAYERS, Chain, Conv2dChain
from boltgen.measure.abi import MAX_OPERANDS, Args, Operand


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


ChainArgs: TypeAlias = GemmChainArgs | Conv2dChainArgs
AnyArgs: TypeAlias = Args | ChainArgs


def packed_chain_arguments(
    chain: Chain, a: int, d: int, layers: Sequence[tuple[int, Sequence[Operand]]], **more: Any
) -> ChainArgs:
    """The arguments of a launch whose tensors lie without gaps at these device addresses.

    `layers` are the B and the epilogue's operands of each; `more` are further fields, as of
    `abi.packed_arguments`.
    """
    sizes = chain_sizes(chain)
    is_conv = isinstance(chain, Conv2dChain)
    args: ChainArgs = Conv2dChainArgs(**sizes) if is_conv else GemmChainArgs(**sizes)
    args.a, args.d = a, d
    for into, layer, (b, operands) in zip(args.layers, chain.layers, layers, strict=False):
        into.b = b
        for name, value in chain_layer_sizes(layer).items():
            setattr(into, name, value)
        for index, operand in enumerate(operands):
            into.operands[index] = operand
    for name, value in more.items():
        setattr(args, name, value)
    return args
