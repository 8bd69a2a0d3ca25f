"""The main job: a model in, one library out, run on the virtual GPU against an FP32 reference."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.errors import InvalidProblemError
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.reference import compare, error_bound, run
from boltgen.running.artifact import Artifact
from models import build
from models.digits import MODEL_PATH, load_heldout
from models.onnx_graph import GraphBuilder
from models.parameters import RandomParameters
from tests import pre_activation


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    device = boltgen.activate("vgpu")
    assert device.vgpu is not None
    return device.vgpu


def reference(model: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def assert_every_region_was_launched(artifact: Artifact, vgpu: Vgpu, runs: int = 1) -> None:
    """What metadata says of regions and kernels is what the virtual GPU executed."""
    launched = Counter(record.kernel for record in vgpu.launches())
    expected = Counter(f"{region.kernel}_device" for region in artifact.metadata.regions)
    assert {name: launched[name] for name in expected} == {
        name: runs * count for name, count in expected.items()
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_demo_model_loses_no_accuracy(arch: str, vgpu: Vgpu) -> None:
    heldout = load_heldout()
    artifact = boltgen.compile(MODEL_PATH, arch=arch)
    vgpu.clear_launches()
    batches = list(heldout.batches())
    logits = np.concatenate([artifact.run({"input": x}, device="vgpu")["logits"] for x in batches])
    expected = np.concatenate([reference(MODEL_PATH, {"input": x}) for x in batches])
    assert heldout.accuracy(expected) >= 0.97
    assert heldout.accuracy(logits) >= heldout.accuracy(expected) - 0.003
    assert_every_region_was_launched(artifact, vgpu, runs=len(batches))
    # All nine convolutions and both dense layers are boltgen's; some kernels have two of them.
    products = [region.problem.count("; ") + 1 for region in artifact.metadata.regions]
    assert sum(products) == 11
    # By the constants that were fitted on an H200, one pair is faster apart there.
    assert products.count(2) == (2 if arch == "sm_90a" else 3)


def test_the_demo_model_passes_every_check(vgpu: Vgpu) -> None:
    batch = next(iter(load_heldout().batches()))
    vgpu.set_option("check", "all")  # before memory is allocated that initcheck is to know
    vgpu.clear_findings()
    try:
        artifact = boltgen.compile(MODEL_PATH, arch="sm_80")
        vgpu.clear_launches()
        logits = artifact.run({"input": batch}, device="vgpu")["logits"]
        assert vgpu.launches()
        assert [finding.message for finding in vgpu.findings()] == []
    finally:
        vgpu.set_option("check", "none")
        vgpu.clear_findings()
    expected = reference(MODEL_PATH, {"input": batch})
    assert (logits.argmax(1) == expected.argmax(1)).all()


def fp16_tolerance(expected: np.ndarray, layers: int) -> float:
    """How far FP16 may be from FP32 at the end of `layers` layers: a root mean square.

    Every layer rounds its output to FP16, at most half an ulp or 2^-11 of a value. Roundings of
    different elements are independent, so over the layers they add up in quadrature; each layer's
    weights and activations are rounded, which makes two such errors a layer. Normalised layers pass
    on errors and values with the same gain, so the sum is relative to the output.
    """
    unit_roundoff = 2.0**-11
    magnitude = float(np.sqrt(np.mean(np.square(expected))))
    return unit_roundoff * np.sqrt(2 * layers) * magnitude


def test_resnet18_runs_in_boltgen_kernels(vgpu: Vgpu, tmp_path: Path) -> None:
    model = build("resnet18", batch=1, image_size=64)
    path = tmp_path / "resnet18.onnx"
    onnx.save(model, path)
    artifact = boltgen.compile(path, arch="sm_80")

    # Every convolution whose channels are multiples of 8, every dense layer, and the first one.
    offloaded = [placed for placed in artifact.metadata.placements if placed.region]
    products = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(artifact.metadata.regions) == len(products) == 21
    assert sum("conv2d" in placed.operator for placed in offloaded) == 20
    assert sum("matmul" in placed.operator for placed in offloaded) == 1

    image = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
    vgpu.clear_launches()
    actual = artifact.run({"input": image}, device="vgpu")["logits"]
    assert_every_region_was_launched(artifact, vgpu)
    expected = reference(path, {"input": image})
    error = np.sqrt(np.mean(np.square(actual - expected)))
    assert error <= fp16_tolerance(expected, layers=len(products))


def test_a_large_layer_runs_by_wgmma(vgpu: Vgpu, tmp_path: Path) -> None:
    graph = GraphBuilder("layer", parameters=RandomParameters(0))
    x = graph.input("x", (4096, 768))
    graph.output(graph.relu(graph.linear(x, "linear", features=3072), "relu"), "y")
    path = tmp_path / "layer.onnx"
    onnx.save(graph.build(), path)
    artifact = boltgen.compile(path, arch="sm_90a")
    (region,) = artifact.metadata.regions
    assert region.family == "cutlass3"
    values = np.random.default_rng(0).standard_normal((4096, 768)).astype(np.float32)
    vgpu.clear_launches()
    actual = artifact.run({"x": values}, device="vgpu")["y"]
    assert_every_region_was_launched(artifact, vgpu)
    expected = reference(path, {"x": values})
    error = np.sqrt(np.mean(np.square(actual - expected)))
    assert error <= fp16_tolerance(expected, layers=1)


def test_sums_that_are_read_again_are_written_beside_what_follows_them(
    vgpu: Vgpu, tmp_path: Path
) -> None:
    path = tmp_path / "pre_activation.onnx"
    onnx.save(pre_activation.build(), path)
    artifact = boltgen.compile(path, arch="sm_80")
    assert len(artifact.metadata.regions) == pre_activation.PRODUCTS
    several = [
        region for region in artifact.metadata.regions if "tensor float16" in region.epilogue
    ]
    # All but the last one, which nothing else reads.
    assert len(several) == pre_activation.NORMALISED_SUMS - 1
    image = np.random.default_rng(0).standard_normal(pre_activation.SHAPE).astype(np.float32)
    vgpu.clear_launches()
    actual = artifact.run({"x": image}, device="vgpu")["y"]
    assert_every_region_was_launched(artifact, vgpu)
    # With one result each, TVM's kernels would normalise and activate those sums: two launches.
    assert not [record.kernel for record in vgpu.launches() if "relu" in record.kernel]
    expected = reference(path, {"x": image})
    error = np.sqrt(np.mean(np.square(actual - expected)))
    assert error <= fp16_tolerance(expected, layers=pre_activation.PRODUCTS)


def test_products_may_be_summed_in_fp16(vgpu: Vgpu) -> None:
    artifact = boltgen.compile(MODEL_PATH, arch="sm_80", accumulate="float16")
    assert all("acc_dtype=float16" in region.problem for region in artifact.metadata.regions)
    heldout = load_heldout()
    batch = next(heldout.batches())
    logits = artifact.run({"input": batch}, device="vgpu")["logits"]
    right = logits.argmax(axis=1) == heldout.labels[: len(batch)]
    assert right.mean() >= 0.97


def test_an_unknown_accumulator_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="'int8'; give 'float16' or 'float32'"):
        boltgen.compile(MODEL_PATH, accumulate="int8")


def test_partition_leaves_a_module_for_plain_tvm_compile(vgpu: Vgpu, tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    import boltgen.relax
    from boltgen.arch import arch_named
    from boltgen.tvm_build.relax_link import cuda_target

    rng = np.random.default_rng(0)
    weight = rng.uniform(-0.1, 0.1, (40, 96)).astype(np.float16)
    bias = rng.uniform(-1, 1, 96).astype(np.float16)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((70, 40), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weight)))
            shifted = builder.emit(relax.op.add(product, relax.const(bias)))
            result = builder.emit_output(relax.op.nn.relu(shifted))
        builder.emit_func_output(result)

    module = boltgen.relax.partition(builder.get(), arch="sm_80")
    target = cuda_target(arch_named("sm_80"))
    with target:
        executable = tvm.compile(module, target=target)
    library = tmp_path / "plain.so"
    executable.export_library(str(library))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cuda(0))
    values = rng.uniform(-1, 1, (70, 40)).astype(np.float16)
    actual = machine["main"](tvm.runtime.tensor(values, tvm.cuda(0))).numpy()

    problem = Gemm(m=70, n=96, k=40)
    b = ElementwiseBuilder()
    b.unary(UnaryOp.RELU, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    graph = (problem, b.build(), values, weight, [bias])
    agreement = compare(actual, run(*graph), error_bound(*graph))
    assert agreement.within, str(agreement)


def test_a_torch_program_runs(vgpu: Vgpu) -> None:
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(8, 32, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.SiLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 16),
    ).eval()
    image = torch.randn(2, 8, 10, 12)
    artifact = boltgen.compile(torch.export.export(network, (image,)), arch="sm_80")
    assert [region.label.split()[0] for region in artifact.metadata.regions] == ["conv2d", "matmul"]
    (name,) = (tensor.name for tensor in artifact.metadata.inputs)
    (actual,) = artifact.run({name: image.numpy()}, device="vgpu").values()
    expected = network(image).detach().numpy()
    error = np.sqrt(np.mean(np.square(actual - expected)))
    assert error <= fp16_tolerance(expected, layers=2)
