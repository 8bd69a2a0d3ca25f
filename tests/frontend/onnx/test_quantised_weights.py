"""Matrices of whole numbers with scales on their way through the converters, and what is refused.

Against ONNX Runtime, before and after.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.cases.onnx_models import model, node, noise, operators, results
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import Importer, prepare
from boltgen.frontend.relax.onnx_reader import converter

N = 10
PACKED = converter()
# As for Relay, whose graphs are not packed.
FLOATS = replace(PACKED, packs_weights=False)


def _nbits(
    k: int,
    bits: int,
    block: int,
    /,
    *,
    opset: int = 17,
    without: tuple[str, ...] = ("order",),
    **more: Any,
) -> onnx.ModelProto:
    """MatMulNBits with all that it may have but `without`; `more` are others, or attributes."""
    rng, blocks = np.random.default_rng(k), -(-k // block)
    constants: dict[str, Any] = {
        "b": rng.integers(0, 256, (N, blocks, block * bits // 8), np.uint8),
        "scales": rng.uniform(0.1, 1, N * blocks).astype(np.float32),
        "zeros": rng.integers(0, 256, N * -(-blocks * bits // 8), np.uint8),
        "order": (np.arange(k) // block).astype(np.int32),
        "bias": noise(N),
    }
    constants |= {name: each for name, each in more.items() if name in constants}
    sizes = {"K": k, "N": N, "bits": bits, "block_size": block}
    sizes |= {name: each for name, each in more.items() if name in sizes}
    names = ["x", *(name if name not in without else "" for name in constants)]
    single = node("MatMulNBits", names, ["y"], name="nbits", domain="com.microsoft", **sizes)
    made = model([single], {"x": (3, k)}, constants, opset=opset)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def _prepared(made: onnx.ModelProto, importer: Importer) -> onnx.ModelProto:
    return prepare(made, {}, importer, allow_nonfinite=False).model


def _assert_same(made: onnx.ModelProto, after: onnx.ModelProto, k: int) -> None:
    x = {"x": noise(3, k)}
    (before,), (behind,) = results(made, x), results(after, x)
    bound = 4 * k * 2.0**-24 * np.abs(before).max()
    assert np.abs(before - behind).max() <= bound


@pytest.mark.parametrize("importer", [PACKED, FLOATS], ids=["packed", "floats"])
@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(
    ("k", "bits", "block"), [(64, 4, 16), (100, 4, 32), (256, 8, 128), (40, 8, 64), (512, 4, 256)]
)
def test_matmulnbits_computes_what_it_did(
    k: int, bits: int, block: int, opset: int, importer: Importer
) -> None:
    made = _nbits(k, bits, block, opset=opset)
    after = _prepared(made, importer)
    assert ("DequantizeLinear" in operators(after)) == importer.packs_weights
    whole = {TensorProto.INT8, TensorProto.UINT8}
    is_whole = any(each.data_type in whole for each in after.graph.initializer)
    assert is_whole == importer.packs_weights
    _assert_same(made, after, k)


@pytest.mark.parametrize("without", [("zeros",), ("zeros", "bias"), ("order", "zeros", "bias")])
def test_operands_may_be_left_out(without: tuple[str, ...]) -> None:
    # ONNX Runtime 1.23 has no zero points where there is a g_idx, whose order is the plain one.
    made = _nbits(96, 4, 32, without=without)
    after = _prepared(made, PACKED)
    assert ("Add" in operators(after)) == ("bias" not in without)
    _assert_same(made, after, 96)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"bits": 2}, "bits=2"),
        ({"block_size": 8}, "block_size=8"),
        ({"zeros": np.ones((N, 2), np.float32)}, "zero points"),
        ({"order": np.arange(64, dtype=np.int32)[::-1] // 32}, "g_idx"),
    ],
    ids=["bits", "block", "zero_points", "order"],
)
def test_other_forms_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelImportError, match=rf"MatMulNBits \(node 'nbits'.*{named}"):
        _prepared(_nbits(64, 4, 32, without=(), **changed), PACKED)


def test_weights_that_are_inputs_are_refused() -> None:
    made = _nbits(64, 4, 32)
    (b,) = (each for each in made.graph.initializer if each.name == "b")
    made.graph.initializer.remove(b)
    made.graph.input.append(helper.make_tensor_value_info("b", TensorProto.UINT8, (N, 2, 16)))
    with pytest.raises(ModelImportError, match=r"MatMulNBits \(node 'nbits'.*B or its scales"):
        _prepared(made, PACKED)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
def test_blocks_become_rows_of_one_scale(kind: str, axis: int) -> None:
    rng, shape = np.random.default_rng(0), [64, N]
    low, high = (-8, 8) if kind == "INT4" else (0, 2 ** int(kind[4:])) if kind[0] == "U" else (
        -128, 128
    )  # fmt: skip
    block = (16, 5)[axis]
    own = [shape[0] // block, N] if axis == 0 else [64, N // block]
    element = getattr(TensorProto, kind)
    made = model(
        [
            node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, block_size=block),
            node("MatMul", ["x", "w"], ["y"]),
        ],
        {"x": (3, 64)},
        {"s": rng.uniform(0.1, 1, own).astype(np.float32)},
        opset=21,
    )
    made.ir_version = 10
    for name, dims in (("q", shape), ("z", own)):
        numbers = rng.integers(low, high, dims).reshape(-1)
        made.graph.initializer.append(helper.make_tensor(name, element, dims, numbers))
    after = _prepared(made, PACKED)
    (rows,) = (each for each in after.graph.initializer if each.data_type == TensorProto.INT8 and
               len(each.dims) == 2)  # fmt: skip
    assert list(rows.dims) == [64 * N // block, block]
    _assert_same(made, after, 64)
