"""Keep matrices of whole numbers with scales in the one form that the Relax frontend packs them
from.

They stay whole numbers on the way through TVM's converter: a constant of INT8 with a scale and a
zero point for each of its rows, which are runs of one scale, and shape operators after it. A matrix
that is not packed later is folded to floats.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Array
from boltgen.ir.dtypes import FLOAT8

# The operator set whose DequantizeLinear takes scales of FP16.
_WITH_FP16 = 19
_NUMBERS = frozenset({"int4", "uint4", "int8", "uint8"})


def is_whole(build: Builder) -> bool:
    """Whether a DequantizeLinear of a constant matrix, or of filters, is in that form."""
    numbers, scales = build.known(0), build.known(1)
    if not build.scope.packs_weights or numbers is None or scales is None:
        return False
    if numbers.ndim > 2 and numbers.dtype.name in {"int8", "uint8"} and build.operand(2):
        return not build.get("block_size", 0)  # the filters of a convolution
    if numbers.ndim == 2 and numbers.dtype.name in FLOAT8 and build.operand(2):
        return not build.get("block_size", 0)
    is_plain = numbers.dtype == np.int8 and numbers.ndim == 2 and build.known(2) is not None
    along_rows = build.get("axis", 1) == 0 and not build.get("block_size", 0)
    return is_plain and along_rows and scales.shape == numbers.shape[:1]


def kept_whole(build: Builder) -> str | None:
    """Return a DequantizeLinear of a constant matrix in that form, or None if it has another form.

    Its blocks may be along either axis.
    """
    numbers, scales = build.known(0), build.known(1)
    if not build.scope.packs_weights or numbers is None or scales is None or numbers.ndim < 2:
        return None
    zeros = build.known(2) if build.operand(2) else np.zeros(scales.shape, numbers.dtype)
    is_of_integers = numbers.dtype.name in {"int8", "uint8"} and not build.get("block_size", 0)
    if numbers.ndim > 2 and is_of_integers and not build.operand(2):
        return build.DequantizeLinear(build.x, build.operand(1), zeros, axis=build.get("axis", 1))
    if numbers.ndim > 2:
        return None
    if zeros is None or zeros.size != scales.size or numbers.dtype.name not in _NUMBERS:
        return None
    axis, block = build.get("axis", 1) % 2, build.get("block_size", 0)
    whole = numbers.astype(np.int16)
    along = 1 - axis if not block else axis  # the axis of runs
    if not block:
        block = whole.shape[along]
        ahead = [1, 1]
        ahead[axis] = -1
        scales, zeros = (
            each.reshape(ahead if each.size > 1 else [1, 1]) for each in (scales, zeros)
        )
        across = [whole.shape[axis], 1] if axis == 0 else [1, whole.shape[axis]]
        scales, zeros = (np.broadcast_to(each, across) for each in (scales, zeros))
    if along == 1:
        return runs(build, whole, scales, zeros, block)
    return build.Transpose(runs(build, whole.T, scales.T, zeros.T, block), perm=[1, 0])


def runs(build: Builder, numbers: Array, scales: Array, zeros: Array, block: int) -> str:
    """(number - zero point) * scale for `numbers` (N, K), the others (N, blocks of K)."""
    n, k = numbers.shape
    run = k if block >= k else gcd(k, block)
    at = np.arange(k // run) * run // block
    shift = 128 if numbers.max(initial=0) > 127 or zeros.max(initial=0) > 127 else 0
    dtype = scales.dtype
    scales, zeros = scales[:, at].reshape(-1), zeros[:, at].reshape(-1).astype(np.int16) - shift
    is_old = dtype == np.float16 and build.scope.opset < _WITH_FP16
    made = build.DequantizeLinear(
        (numbers.astype(np.int16) - shift).astype(np.int8).reshape(-1, run),
        scales.astype(np.float32) if is_old else scales,
        zeros.astype(np.int8),
        axis=0,
    )
    if is_old:
        made = build.Cast(made, to=build.scope.onnx.TensorProto.FLOAT16)
    return build.Reshape(made, [n, k])


@rewrites(
    "com.microsoft.MatMulNBits",
    why="it is a product, whose weights are constants",
)
def matmul(build: Builder) -> str:
    """A product with weights of four or eight bits, a scale for each block of K.

    Source: ONNX Runtime, docs/ContribOperators.md, com.microsoft.MatMulNBits. `accuracy_level`
    allows a device to round A further, which no kernel does.
    """
    n, k, block = (int(build.get(name)) for name in ("N", "K", "block_size"))
    bits = int(build.get("bits", 4))
    blocks = -(-k // block)
    packed, scales = build.known(1), build.known(2)
    _require(bits in {4, 8}, f"bits={bits}", "4 and 8 bits are taken")
    _require(
        block >= 16 and not block & (block - 1), f"block_size={block}", "from 16 on, powers of 2"
    )
    _require(
        packed is not None and scales is not None,
        "B or its scales are no constants",
        "make them constants",
    )
    assert packed is not None
    assert scales is not None
    numbers = _unpacked(packed.reshape(n, -1), bits, blocks * block)[:, :k]
    zeros = np.full((n, blocks), 2 ** (bits - 1), np.uint8)
    if build.operand(3):
        given = build.known(3)
        known = given is not None and given.dtype == np.uint8
        _require(
            known,
            "zero points that are no constant of uint8",
            "make them constants of uint8, packed as B is",
        )
        assert given is not None
        zeros = _unpacked(given.reshape(n, -1), bits, blocks)
    if build.operand(4):
        order = build.known(4)
        is_plain = order is not None and np.array_equal(order, np.arange(k) // block)
        _require(
            is_plain,
            "g_idx that permutes K",
            "its groups must follow one another: export without it",
        )
    scales = scales.reshape(n, blocks)
    if build.scope.packs_weights:
        weight = runs(build, numbers, scales, zeros, block)
    else:
        places = np.arange(k) // block
        wide = (numbers.astype(np.float32) - zeros[:, places]) * scales[:, places]
        weight = build.constant(wide.astype(scales.dtype))
    result = build.MatMul(build.x, build.Transpose(weight, perm=[1, 0]))
    return build.Add(result, build.operand(5)) if build.operand(5) else result


def _require(condition: bool, what: str, remedy: str) -> None:
    if not condition:
        raise UnsupportedError(what, remedy)


def _unpacked(packed: Array, bits: int, count: int) -> Array:
    """Rows of `count` numbers, the first of a byte in its lower half."""
    if bits == 8:
        return packed[:, :count]
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)[:, :count]
