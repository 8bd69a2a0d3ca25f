"""ONNX models of 8-bit floats, compiled and executed on the virtual GPU, checks on."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.errors import ModelImportError
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems import reference
from boltgen.problems.gemm.problem import Gemm
from tests.virtual_gpu import all_checks

M, N, K = 256, 512, 512
STEP = np.float32(0.02)


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    device = boltgen.activate("vgpu")
    assert device.vgpu is not None
    return device.vgpu


class Layer:
    """A matmul of E4M3 with a scale for each column, a bias and a ReLU."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((K, N)).astype(np.float32) * 0.05
        self.scales = (np.abs(weight).max(axis=0) / 100).astype(np.float32)
        self.numbers = (weight / self.scales).astype(ml_dtypes.float8_e4m3fn)
        self.bias = rng.standard_normal(N).astype(np.float32)

    def model(self, saturate: int = 1) -> onnx.ModelProto:
        """The layer in QDQ."""
        narrow = TensorProto.FLOAT8E4M3FN
        weights = [
            helper.make_tensor("w", narrow, (K, N), self.numbers.tobytes(), raw=True),
            helper.make_tensor("zero", narrow, (), bytes(1), raw=True),
            helper.make_tensor("zeros", narrow, (N,), bytes(N), raw=True),
            numpy_helper.from_array(STEP, "step"),
            numpy_helper.from_array(self.scales, "scales"),
            numpy_helper.from_array(self.bias, "bias"),
        ]
        make = helper.make_node
        nodes = [
            make("QuantizeLinear", ["x", "step", "zero"], ["q"], saturate=saturate),
            make("DequantizeLinear", ["q", "step", "zero"], ["d"]),
            make("DequantizeLinear", ["w", "scales", "zeros"], ["dw"], axis=1),
            make("MatMul", ["d", "dw"], ["sums"]),
            make("Add", ["sums", "bias"], ["shifted"]),
            make("Relu", ["shifted"], ["y"]),
        ]
        of = helper.make_tensor_value_info
        ends = [of("x", TensorProto.FLOAT, (M, K))], [of("y", TensorProto.FLOAT, (M, N))]
        graph = helper.make_graph(nodes, "g", *ends, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_a_model_of_8_bit_floats_is_multiplied_in_them(tmp_path: Path, vgpu: Vgpu) -> None:
    layer, path = Layer(), tmp_path / "narrow.onnx"
    onnx.save(layer.model(), path)
    x = np.random.default_rng(1).standard_normal((M, K)).astype(np.float32)
    x[0, :4] = [40.0, -40.0, 8.96, 9.2]  # beyond what E4M3 holds in these steps
    artifact = boltgen.compile(path, arch="sm_90a")
    (region,) = artifact.metadata.regions
    assert region.family == "cutlass3"
    assert "in_dtype=float8_e4m3fn" in region.problem
    with all_checks(vgpu):
        (found,) = artifact.run(x, device="vgpu").values()
        assert [finding.message for finding in vgpu.findings()] == []
    # ONNX, QuantizeLinear with saturate=1.
    narrow = np.clip(x / STEP, -448.0, 448.0).astype(ml_dtypes.float8_e4m3fn)
    problem = Gemm(m=M, n=N, k=K, b_layout=Layout.COLUMN, in_dtype=DType.E4M3, out_dtype=DType.F32)
    graph = ElementwiseBuilder()
    scaled = graph.binary(BinaryOp.MULTIPLY, 0, graph.load(LoadKind.ROW, DType.F32))
    shifted = graph.binary(BinaryOp.ADD, scaled, graph.load(LoadKind.ROW, DType.F32))
    graph.unary(UnaryOp.RELU, shifted)
    columns = np.ascontiguousarray(layer.numbers.T)
    asked = (problem, graph.build(), narrow, columns, (STEP * layer.scales, layer.bias))
    exact, bound = reference.run(*asked), reference.error_bound(*asked)
    # The result may be stored in FP16.
    rounded = bound + np.abs(exact) * DType.F16.unit_roundoff + DType.F16.smallest_subnormal
    assert reference.compare(found.astype(np.float32), exact, rounded).within


def test_a_quantisation_that_does_not_saturate_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "narrow.onnx"
    onnx.save(Layer().model(saturate=0), path)
    with pytest.raises(ModelImportError, match=r"float8_e4m3fn.*saturate=1"):
        boltgen.compile(path, arch="sm_90a")
