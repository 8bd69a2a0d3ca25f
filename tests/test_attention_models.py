"""Whole models with attention, compiled and executed on the virtual GPU, all its checks on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.ir.dtypes import DType
from models.onnx_graph import GraphBuilder, Tensor
from models.parameters import RandomParameters
from tests.test_end_to_end import fp16_tolerance

BATCH, LENGTH, HEADS, HEAD = 2, 45, 3, 16
WIDTH = HEADS * HEAD
DTYPES = {"fp16": DType.F16, "bf16": DType.BF16}


def _attention(
    graph: GraphBuilder, x: Tensor, mask: Tensor | None = None, position: Tensor | None = None
) -> Tensor:
    """Self-attention as PyTorch's exporter writes it, and the residual.

    The heads of the query may have positions added.
    """

    def heads(name: str, order: tuple[int, ...]) -> Tensor:
        y = graph.linear(x, name, features=WIDTH)
        y = graph.reshape(y, f"{name}.heads", (BATCH, LENGTH, HEADS, HEAD))
        return graph.transpose(y, f"{name}.transpose", order)

    query, value = heads("query", (0, 2, 1, 3)), heads("value", (0, 2, 1, 3))
    if position is not None:
        query = graph.add(query, position, "positions")
    scores = graph.matmul(query, heads("key", (0, 2, 3, 1)), "scores")
    scores = graph.divide(scores, math.sqrt(HEAD), "scale")
    if mask is not None:
        scores = graph.add(scores, mask, "masked")
    weights = graph.softmax(scores, "weights")
    context = graph.transpose(graph.matmul(weights, value, "context"), "back", (0, 2, 1, 3))
    joined = graph.reshape(context, "joined", (BATCH, LENGTH, WIDTH))
    return graph.add(graph.linear(joined, "dense", features=WIDTH), x, "residual")


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "causal"])
def test_an_onnx_encoder_runs_in_one_kernel_for_its_attention(
    masked: bool, checking: Vgpu, tmp_path: Path
) -> None:
    graph = GraphBuilder("encoder", parameters=RandomParameters(0))
    x = graph.input("x", (BATCH, LENGTH, WIDTH))
    mask = graph.input("mask", (1, 1, LENGTH, LENGTH)) if masked else None
    graph.output(_attention(graph, x, mask), "y")
    path = tmp_path / "encoder.onnx"
    onnx.save(graph.build(), path)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(0, 1, (BATCH, LENGTH, WIDTH)).astype(np.float32)}
    if masked:
        ahead = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
        inputs["mask"] = ahead[None, None]
    kernels = _judged(path, inputs, checking)
    assert sum(name.startswith("boltgen_attention_sm80") for name in kernels) == 1
    assert not any("softmax" in name or "transpose" in name for name in kernels)


@pytest.mark.parametrize(
    "shape",
    [
        (BATCH, 1, 1, LENGTH),
        (BATCH, 1, LENGTH, LENGTH),
        (1, HEADS, LENGTH, LENGTH),
        (BATCH, HEADS, LENGTH, LENGTH),
    ],
    ids=["padding", "each-sequence", "each-head", "each"],
)
def test_masks_are_read_where_heads_or_sequences_share_them(
    shape: tuple[int, ...], checking: Vgpu, tmp_path: Path
) -> None:
    graph = GraphBuilder("encoder", parameters=RandomParameters(0))
    x = graph.input("x", (BATCH, LENGTH, WIDTH))
    mask = graph.input("mask", shape)
    graph.output(_attention(graph, x, mask), "y")
    path = tmp_path / "encoder.onnx"
    onnx.save(graph.build(), path)
    rng = np.random.default_rng(0)
    masks = rng.uniform(-1, 1, shape).astype(np.float32)
    masks[0, ..., LENGTH // 2 :] = -1e4  # keys that the first sequence does not have
    inputs = {"x": rng.normal(0, 1, (BATCH, LENGTH, WIDTH)).astype(np.float32), "mask": masks}
    kernels = _judged(path, inputs, checking)
    assert sum(name.startswith("boltgen_attention_sm80") for name in kernels) == 1
    assert not any("softmax" in name or "transpose" in name for name in kernels)


@pytest.mark.parametrize("lowest", [float(np.finfo(np.float32).min), -np.inf], ids=str)
def test_scores_that_a_boolean_mask_hides(lowest: float, checking: Vgpu, tmp_path: Path) -> None:
    """As exporters write `masked_fill`: ONNX's Where behind the scores."""
    shape = (BATCH, HEADS, LENGTH, HEAD)
    names = ("query", "key", "value")
    inputs = [onnx.helper.make_tensor_value_info(name, 1, shape) for name in names]
    seen = onnx.helper.make_tensor_value_info("seen", 9, (BATCH, 1, 1, LENGTH))
    nodes = [
        onnx.helper.make_node("Transpose", ["key"], ["turned"], perm=(0, 1, 3, 2)),
        onnx.helper.make_node("MatMul", ["query", "turned"], ["scores"]),
        onnx.helper.make_node("Where", ["seen", "scores", "lowest"], ["masked"]),
        onnx.helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        onnx.helper.make_node("MatMul", ["weights", "value"], ["y"]),
    ]
    output = onnx.helper.make_tensor_value_info("y", 1, shape)
    number = onnx.numpy_helper.from_array(np.array(lowest, np.float32), "lowest")
    graph = onnx.helper.make_graph(nodes, "masked", [*inputs, seen], [output], [number])
    opset = onnx.helper.make_opsetid("", 17)
    path = tmp_path / "masked.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    rng = np.random.default_rng(0)
    given = {name: rng.normal(0, 1, shape).astype(np.float32) for name in names}
    lengths = np.array([LENGTH, LENGTH // 3])
    given["seen"] = (np.arange(LENGTH) < lengths[:, None])[:, None, None]
    kernels = _judged(path, given, checking)
    assert sum(name.startswith("boltgen_attention_sm80") for name in kernels) == 1
    assert not any("softmax" in name for name in kernels)


def test_heads_are_read_from_rows_of_several_tensors(checking: Vgpu, tmp_path: Path) -> None:
    """TVM adds positions to the query, which key and value are not beside."""
    graph = GraphBuilder("encoder", parameters=RandomParameters(0))
    x = graph.input("x", (BATCH, LENGTH, WIDTH))
    position = graph.input("position", (1, 1, LENGTH, HEAD))
    graph.output(_attention(graph, x, position=position), "y")
    path = tmp_path / "encoder.onnx"
    onnx.save(graph.build(), path)
    rng = np.random.default_rng(0)
    inputs = {each.name: rng.normal(0, 1, each.shape) for each in (x, position)}
    inputs = {name: values.astype(np.float32) for name, values in inputs.items()}
    kernels = _judged(path, inputs, checking)
    assert sum(name.startswith("boltgen_attention_sm80") for name in kernels) == 1
    assert not any("transpose" in name for name in kernels)


def test_a_step_of_decoding_shares_a_long_cache_between_threadblocks(
    checking: Vgpu, tmp_path: Path
) -> None:
    keys, head = 3000, 64
    width = HEADS * head
    graph = GraphBuilder("step", parameters=RandomParameters(0))
    x = graph.input("x", (BATCH, 1, width))
    cached = [graph.input(name, (BATCH, HEADS, keys, head)) for name in ("key", "value")]
    query = graph.linear(x, "query", features=width)
    query = graph.reshape(query, "heads", (BATCH, HEADS, 1, head))
    turned = graph.transpose(cached[0], "turned", (0, 1, 3, 2))
    scores = graph.divide(graph.matmul(query, turned, "scores"), math.sqrt(head), "scale")
    context = graph.matmul(graph.softmax(scores, "weights"), cached[1], "context")
    graph.output(graph.reshape(context, "joined", (BATCH, 1, width)), "y")
    path = tmp_path / "step.onnx"
    onnx.save(graph.build(), path)
    rng = np.random.default_rng(0)
    inputs = {each.name: rng.normal(0, 1, each.shape).astype(np.float32) for each in (x, *cached)}
    kernels = _judged(path, inputs, checking)
    (name,) = (name for name in kernels if name.startswith("boltgen_attention_sm80"))
    assert "_split" in name
    (grid,) = (each.grid for each in checking.launches() if each.kernel == name)
    assert grid[1] > 1


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_on_hopper_cross_attention_of_many_keys_is_wgmmas(
    precision: str, checking: Vgpu, tmp_path: Path
) -> None:
    """Heads lie in the rows of projections; the second sequence has fewer keys."""
    keys, head = 1000, 64
    width = HEADS * head
    graph = GraphBuilder("decoder", parameters=RandomParameters(0))
    x = graph.input("x", (BATCH, LENGTH, width))
    memory = graph.input("memory", (BATCH, keys, width))
    mask = graph.input("mask", (BATCH, 1, 1, keys))

    def heads(source: Tensor, name: str, length: int, order: tuple[int, ...]) -> Tensor:
        y = graph.linear(source, name, features=width)
        y = graph.reshape(y, f"{name}.heads", (BATCH, length, HEADS, head))
        return graph.transpose(y, f"{name}.transpose", order)

    query = heads(x, "query", LENGTH, (0, 2, 1, 3))
    scores = graph.matmul(query, heads(memory, "key", keys, (0, 2, 3, 1)), "scores")
    scores = graph.add(graph.divide(scores, math.sqrt(head), "scale"), mask, "masked")
    weights = graph.softmax(scores, "weights")
    value = heads(memory, "value", keys, (0, 2, 1, 3))
    context = graph.transpose(graph.matmul(weights, value, "context"), "back", (0, 2, 1, 3))
    graph.output(graph.reshape(context, "joined", (BATCH, LENGTH, width)), "y")
    path = tmp_path / "decoder.onnx"
    onnx.save(graph.build(), path)
    rng = np.random.default_rng(0)
    inputs = {each.name: rng.normal(0, 1, each.shape) for each in (x, memory)}
    inputs["mask"] = np.zeros(mask.shape)
    inputs["mask"][1, ..., keys // 3 :] = -1e4
    inputs = {name: values.astype(np.float32) for name, values in inputs.items()}
    kernels = _judged(path, inputs, checking, arch="sm_90a", precision=precision)
    assert sum(name.startswith("boltgen_attention_sm90a") for name in kernels) == 1
    assert not any("softmax" in name or "transpose" in name for name in kernels)


def _judged(
    path: Path,
    inputs: dict[str, np.ndarray],
    checking: Vgpu,
    *,
    arch: str = "sm_80",
    precision: str = "fp16",
) -> list[str]:
    """The kernels of an inference whose results are ONNX Runtime's."""
    artifact = boltgen.compile(path, arch=arch, precision=precision)
    output = artifact.run(inputs, device="vgpu")["y"]
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)[0]
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    # The projections, scores, their product with V, and the last projection.
    coarser = DType.F16.significand_bits - DTYPES[precision].significand_bits
    assert error <= 2.0**coarser * fp16_tolerance(expected, layers=4)
    return kernels
