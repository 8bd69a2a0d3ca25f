"""Sizes and strides in the argument structs of back-to-back kernels, for tensors without gaps.

What renders adapters and what launches kernels by itself both take them from here; the structs are
those of `templates/include/boltgen/abi.h`.
"""

from __future__ import annotations

from boltgen.ir.chain import Chain, ChainLayer, batch_of, implicit_gemm
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import BatchedGemm, Conv2d


def chain_sizes(chain: Chain) -> dict[str, int]:
    """The fields of `boltgen_gemm_chain_args` or `boltgen_conv2d_chain_args`, in elements."""
    first = chain.layers[0].problem
    if isinstance(first, Conv2d):
        return {
            **{name: getattr(first, name) for name in "nhwcrspq"},
            "pad_h": first.padding[0],
            "pad_w": first.padding[1],
            "stride_h": first.stride[0],
            "stride_w": first.stride[1],
            "dilation_h": first.dilation[0],
            "dilation_w": first.dilation[1],
        }
    n = implicit_gemm(chain.layers[-1]).n
    batched = isinstance(first, BatchedGemm)
    a_strides = isinstance(first, BatchedGemm) and first.a_batched
    return {
        "m": first.m,
        "k": first.k,
        "batch": batch_of(chain),
        "lda": first.k,
        "ldd": n,
        "batch_stride_a": first.m * first.k if a_strides else 0,
        "batch_stride_d": first.m * n if batched else 0,
    }


def chain_layer_sizes(layer: ChainLayer) -> dict[str, int]:
    """The fields of `boltgen_chain_layer`, without those of its epilogue's operands."""
    gemm = implicit_gemm(layer)
    strided = isinstance(layer.problem, BatchedGemm) and layer.problem.b_batched
    return {
        "n": gemm.n,
        "ldb": gemm.n if gemm.b_layout is Layout.ROW else gemm.k,
        "batch_stride_b": gemm.n * gemm.k if strided else 0,
    }
