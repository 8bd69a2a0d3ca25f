"""Models that ONNX Runtime quantised, compiled and executed on the virtual GPU, checks on.

Two peers. The interpreter of `boltgen.graph` computes the graph whose products are of integers: it
is equal, bit by bit. ONNX Runtime computes the model as it likes: it rounds the same exact sums,
but where it adds a residual in floats its own rounding of a half may differ, by one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.frontend.relax.importer import import_model
from boltgen.frontend.relax.translate import translate
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.passes.outline import computes_all
from boltgen.passes.quantisation.integer_products import with_integer_products
from boltgen.passes.quantisation.sink_dequantise import with_late_dequantisations
from tests.virtual_gpu import all_checks

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    device = boltgen.activate("vgpu")
    assert device.vgpu is not None
    return device.vgpu


class Network:
    """Nodes and weights of a small model of one input and one output."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        size = (2 / max(np.prod(shape[1:]), 1)) ** 0.5 if len(shape) == 4 else 0.1
        array = (self._rng.standard_normal(shape) * size).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *names: str, **attributes: Any) -> str:
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [made], **attributes))
        return made

    def conv(self, x: str, channels: int, filters: int, extent: int, **more: Any) -> str:
        weights = self.weight(filters, channels, extent, extent), self.weight(filters)
        shape = {"kernel_shape": [extent] * 2, "pads": [extent // 2] * 4}
        return self.add("Conv", x, *weights, **shape, **more)

    def model(self, y: str, *shape: int) -> onnx.ModelProto:
        of = helper.make_tensor_value_info
        ends = [of("x", TensorProto.FLOAT, self.shape)], [of(y, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "g", *ends, self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _mlp() -> onnx.ModelProto:
    net = Network(48, 64)
    made = net.add("Add", net.add("MatMul", "x", net.weight(64, 96)), net.weight(96))
    made = net.add("Relu", made)
    return net.model(net.add("Gemm", made, net.weight(96, 32), net.weight(32)), 48, 32)


def _wide() -> onnx.ModelProto:
    """A layer of several tiles."""
    net = Network(256, 512)
    made = net.add("Add", net.add("MatMul", "x", net.weight(512, 512)), net.weight(512))
    return net.model(net.add("Relu", made), 256, 512)


def _cnn() -> onnx.ModelProto:
    """A stem, a block with a residual by a 1x1 convolution, and a classifier."""
    net = Network(2, 3, 16, 16)
    stem = net.add("Relu", net.conv("x", 3, 16, 3))
    stem = net.add("MaxPool", stem, kernel_shape=[2, 2], strides=[2, 2])
    inner = net.conv(net.add("Relu", net.conv(stem, 16, 32, 3)), 32, 32, 3)
    total = net.add("Relu", net.add("Add", inner, net.conv(stem, 16, 32, 1)))
    total = net.conv(total, 32, 8, 3, strides=[2, 2])
    flat = net.add("Flatten", total)
    return net.model(net.add("Gemm", flat, net.weight(128, 10), net.weight(10)), 2, 10)


def _odd() -> onnx.ModelProto:
    """Matrices whose rows are no vectors: K of 99 and of 98, seven columns."""
    net = Network(24, 99)
    made = net.add("Add", net.add("MatMul", "x", net.weight(99, 98)), net.weight(98))
    return net.model(net.add("MatMul", net.add("Relu", made), net.weight(98, 7)), 24, 7)


def _few() -> onnx.ModelProto:
    """Images of six and of five channels, and seven filters."""
    net = Network(2, 6, 9, 9)
    made = net.add("Relu", net.conv("x", 6, 5, 3))
    return net.model(net.conv(made, 5, 7, 3), 2, 7, 9, 9)


class Samples(CalibrationDataReader):
    """Random inputs."""

    def __init__(self, *shape: int) -> None:
        rng = np.random.default_rng(1)
        arrays = (rng.standard_normal(shape).astype(np.float32) for _ in range(8))
        self._left: Iterator[dict[str, Array]] = iter([{"x": array} for array in arrays])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


MODELS = {"mlp": _mlp, "wide": _wide, "cnn": _cnn, "odd": _odd, "few": _few}


def _quantised(name: str, activation: str, folder: Path, **options: Any) -> Path:
    """The model in QDQ; `symmetric` puts all zero points at 0."""
    whole, made = folder / f"{name}.onnx", folder / "quantised.onnx"
    model = MODELS[name]()
    onnx.save(model, whole)
    shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    quantize_static(
        str(whole),
        str(made),
        Samples(*shape),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8 if activation != "uint8" else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": activation == "symmetric"},
        **options,
    )
    return made


def _of_integers(path: Path, x: Array) -> Array:
    """Return the results of the model with products of integers, by the interpreter."""
    graph = translate(import_model(path).module["main"])
    reasons: list[str] = []
    graph = with_integer_products(
        with_late_dequantisations(graph), computes_all, lambda _, reason: reasons.append(reason)
    )
    assert not reasons
    (result,) = run(graph, [x])
    return result


@pytest.mark.parametrize(
    ("name", "activation", "per_channel", "arch"),
    [
        ("mlp", "uint8", False, "sm_80"),
        ("mlp", "int8", True, "sm_80"),
        ("cnn", "symmetric", True, "sm_80"),
        ("cnn", "uint8", False, "sm_80"),
        ("wide", "int8", True, "sm_90a"),
        ("odd", "uint8", False, "sm_80"),
        ("few", "uint8", True, "sm_80"),
    ],
)
def test_a_quantised_model_equals_the_oracle_of_integers(
    name: str, activation: str, *, per_channel: bool, arch: str, tmp_path: Path, vgpu: Vgpu
) -> None:
    path = _quantised(name, activation, tmp_path, per_channel=per_channel)
    session = onnxruntime.InferenceSession(path)
    shape = session.get_inputs()[0].shape
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    # So small products are faster in FP16: without fusion no times are compared.
    artifact = boltgen.compile(path, arch=arch, fuse=False)
    with all_checks(vgpu):
        (found,) = artifact.run(x, device="vgpu").values()
        assert [finding.message for finding in vgpu.findings()] == []
    assert np.array_equal(found, _of_integers(path, x))
    (wanted,) = session.run(None, {"x": x})
    model = onnx.load(path)
    last = [each for each in model.graph.node if each.op_type == "DequantizeLinear"][-1]
    step = next(
        float(numpy_helper.to_array(each))
        for each in model.graph.initializer
        if each.name == last.input[1]
    )
    steps = np.rint((found - wanted) / step)
    assert np.abs(steps).max() <= 1
    assert np.mean(steps != 0) <= 0.05
    # Every product is one of integers.
    products = [each for each in model.graph.node if each.op_type in {"MatMul", "Gemm", "Conv"}]
    problems = [region.problem for region in artifact.metadata.regions]
    assert len(problems) == len(products)
    assert all("in_dtype=int8" in each or "in_dtype=uint8" in each for each in problems)
    by_wgmma = {region.family for region in artifact.metadata.regions} == {"cutlass3"}
    assert by_wgmma == (arch == "sm_90a")
