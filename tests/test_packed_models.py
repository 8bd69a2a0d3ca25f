"""Models with quantised weights, compiled and executed on the virtual GPU, checks on.

ONNX Runtime computes them too, `MatMulNBits` by kernels of its own. It is told not to optimise:
otherwise it rounds A to INT8 where a DequantizeLinear stands before a MatMul.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from typer.testing import CliRunner

import boltgen
from benchmarks.cases.onnx_models import results
from boltgen.cli.program import app
from boltgen.device.vgpu import Vgpu
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.running.artifact import Artifact
from tests.test_end_to_end import fp16_tolerance
from tests.virtual_gpu import all_checks

Array = np.ndarray[Any, Any]
K, N = 256, 72
_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    device = boltgen.activate("vgpu")
    assert device.vgpu is not None
    return device.vgpu


def _model(
    nodes: list[onnx.NodeProto],
    tensors: list[onnx.TensorProto],
    rows: int | str,
    k: int,
    dtype: str = "float32",
) -> onnx.ModelProto:
    kind = _TYPES[dtype]
    x, y = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", [rows, k]), ("y", [rows, N]))
    )
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def _nbits(
    bits: int,
    block: int,
    *,
    zeros: bool,
    bias: bool = True,
    rows: int | str = 1,
    k: int = K,
    dtype: str = "float32",
) -> onnx.ModelProto:
    rng, blocks = np.random.default_rng(bits * block), -(-k // block)
    tensors = {
        "b": rng.integers(0, 256, (N, blocks, block * bits // 8), np.uint8),
        "scales": (rng.uniform(0.5, 1, N * blocks) / 2**bits / 4).astype(dtype),
    }
    names = ["x", "b", "scales"]
    if zeros:
        tensors["zeros"] = rng.integers(0, 256, N * -(-blocks * bits // 8), np.uint8)
        names.append("zeros")
    if bias:
        tensors["bias"] = rng.uniform(-1, 1, N).astype(dtype)
        names += [""] * (5 - len(names)) + ["bias"]
    sizes = {"K": k, "N": N, "bits": bits, "block_size": block, "accuracy_level": 0}
    nodes = [
        helper.make_node("MatMulNBits", names, ["h"], domain="com.microsoft", **sizes),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    arrays = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    return _model(nodes, arrays, rows, k, dtype)


def _linear(kind: str, axis: int, block: int, *, rows: int = 1) -> onnx.ModelProto:
    """A DequantizeLinear of B (K, N); a block of 0 is a scale for each index along the axis."""
    rng = np.random.default_rng(block)
    element = getattr(TensorProto, kind.upper())
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[kind]
    shape = [K, N]
    if block:
        shape[axis] //= block
    own = tuple(shape) if block else (N,) if axis == 1 else ()
    numbers, points = rng.integers(low, high, (K, N)), np.asarray(rng.integers(low, high, own))
    scales = np.asarray(rng.uniform(0.5, 1, own) / high / 4, np.float32)
    tensors = [
        helper.make_tensor("b", element, (K, N), numbers.reshape(-1)),
        numpy_helper.from_array(scales, "scales"),
        helper.make_tensor("points", element, own, points.reshape(-1)),
    ]
    more = {"block_size": block} if block else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["b", "scales", "points"], ["w"], axis=axis, **more),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return _model(nodes, tensors, rows, K)


def _assert_right(artifact: Artifact, made: onnx.ModelProto, rows: int, vgpu: Vgpu) -> None:
    kind = made.graph.input[0].type.tensor_type
    k = kind.shape.dim[1].dim_value
    dtype = {number: name for name, number in _TYPES.items()}[kind.elem_type]
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, k)).astype(dtype)
    with all_checks(vgpu):
        found = artifact.run({"x": x}, device="vgpu")["y"].astype(np.float64)
        assert [finding.message for finding in vgpu.findings()] == []
    expected = results(made, {"x": x})[0].astype(np.float64)
    error = np.sqrt(np.mean(np.square(found - expected)))
    # A scale is rounded to FP16 besides what it makes of the weight.
    assert error <= fp16_tolerance(expected, 2)


NBITS = {
    "int4_32_zeros": ({"bits": 4, "block": 32, "zeros": True}, 1),
    "int4_128": ({"bits": 4, "block": 128, "zeros": False, "bias": False}, 7),
    "int8_32": ({"bits": 8, "block": 32, "zeros": False}, 16),
    "int8_128_zeros": ({"bits": 8, "block": 128, "zeros": True}, 33),
    "ragged_fp16": ({"bits": 4, "block": 32, "zeros": True, "k": 104, "dtype": "float16"}, 3),
}


@pytest.mark.parametrize("name", NBITS)
def test_matmulnbits_is_one_kernel_of_packed_weights(name: str, vgpu: Vgpu) -> None:
    given, rows = NBITS[name]
    made = _nbits(**given, rows=rows)  # type: ignore[arg-type]
    artifact = boltgen.compile(made, arch="sm_80")
    (region,) = artifact.metadata.regions
    zeros = " with zero points" if given["zeros"] else ""
    assert f"int{given['bits']} in groups of {given['block']}{zeros})" in region.problem
    assert "relu" in region.epilogue
    _assert_right(artifact, made, rows, vgpu)


@pytest.mark.parametrize(
    ("kind", "axis", "block", "form"),
    [
        ("int4", 0, 32, "int4 in groups of 32 with zero points"),
        ("uint4", 0, 128, "int4 in groups of 128 with zero points"),
        ("int8", 0, 64, "int8 in groups of 64 with zero points"),
        ("uint8", 1, 0, "int8 in groups of 256 with zero points"),
        ("int8", 0, 0, "int8 in groups of 256 with zero points"),
        ("int4", 1, 24, None),
    ],
    ids=["int4", "uint4", "int8", "columns", "tensor", "blocks_of_columns"],
)
def test_a_dequantised_constant_is_packed(
    kind: str, axis: int, block: int, form: str | None, vgpu: Vgpu
) -> None:
    made = _linear(kind, axis, block)
    artifact = boltgen.compile(made, arch="sm_80")
    (region,) = artifact.metadata.regions
    assert (form or "b_layout") in region.problem
    assert ("weights=" in region.problem) == (form is not None)
    _assert_right(artifact, made, 1, vgpu)


def test_rows_may_stay_open(vgpu: Vgpu) -> None:
    made = _nbits(4, 32, zeros=True, rows="tokens")
    artifact = boltgen.compile(made, arch="sm_80", shapes={"x": ("1..64", K)})
    for rows in (1, 17, 64):
        _assert_right(artifact, made, rows, vgpu)


def test_a_library_has_the_packed_bytes_and_no_floats(tmp_path: Path) -> None:
    made = _nbits(4, 32, zeros=False, bias=False)
    boltgen.compile(made, arch="sm_80").save(tmp_path / "model")
    library = (tmp_path / "model" / "model.so").read_bytes()
    b, scales = (numpy_helper.to_array(each) for each in made.graph.initializer)
    numbers = np.stack([b & 15, b >> 4], axis=-1).reshape(N, K)
    groups = scales.reshape(N, K // 32).astype(np.float16)

    packed = PackedWeights(bits=4, group=32)
    assert packed.packed(numbers, groups, None).tobytes() in library
    wide = (numbers.astype(np.float16) - np.float16(8)) * np.repeat(groups, 32, axis=1)
    for whole in (wide, wide.astype(np.float32), numbers, numbers.astype(np.int8) - 8):
        for matrix in (whole, whole.T):
            assert np.ascontiguousarray(matrix)[:4].tobytes() not in library


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_relax_programs_decode_their_weights_in_the_kernel(dtype: str, vgpu: Vgpu) -> None:
    rng, group, rows = np.random.default_rng(0), 128, 7
    shape = (N, K // group, group)
    numbers = rng.integers(0, 16, shape, np.uint8)
    scales = (rng.uniform(0.5, 1, (*shape[:2], 1)) / 64).astype(np.float16).astype(dtype)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((rows, K), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.astype(relax.const(numbers), dtype))
            minus = builder.emit(relax.op.subtract(wide, relax.const(7.0, dtype)))
            scaled = builder.emit(relax.op.multiply(minus, relax.const(scales)))
            whole = builder.emit(relax.op.reshape(scaled, (N, K)))
            columns = builder.emit(relax.op.permute_dims(whole))
            y = builder.emit_output(relax.op.matmul(x, columns))
        builder.emit_func_output(y)
    artifact = boltgen.compile(builder.finalize(), arch="sm_80")
    (region,) = artifact.metadata.regions
    assert "int4 in groups of 128 with zero points" in region.problem
    a = rng.uniform(-1, 1, (rows, K)).astype(dtype)
    with all_checks(vgpu):
        (found,) = artifact.run({"x": a}, device="vgpu").values()
        assert [finding.message for finding in vgpu.findings()] == []
    weights = ((numbers - 7.0) * scales).reshape(N, K)
    expected = a.astype(np.float64) @ weights.T
    error = np.sqrt(np.mean(np.square(found - expected)))
    assert error <= fp16_tolerance(expected, 1)


def test_commands_know_packed_weights(tmp_path: Path, vgpu: Vgpu) -> None:
    del vgpu
    onnx.save(_nbits(4, 32, zeros=True), tmp_path / "model.onnx")
    runner, folder = CliRunner(), str(tmp_path / "model")
    given = ["compile", str(tmp_path / "model.onnx"), "-o", folder, "--arch", "sm_80"]
    assert runner.invoke(app, given).exit_code == 0
    inspected = runner.invoke(app, ["inspect", folder, "--json"])
    assert inspected.exit_code == 0
    assert "int4 in groups of 32 with zero points" in json.dumps(json.loads(inspected.stdout))
    assert runner.invoke(app, ["check", folder]).exit_code == 0
