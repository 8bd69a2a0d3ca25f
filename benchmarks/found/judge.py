"""A found model's row: tried in a process of its own, and judged by ONNX Runtime in FP32."""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.found.rounding import in_single_precision, with_rounded_products
from benchmarks.found.sources import FoundModel
from benchmarks.found.wheels import file_of
from benchmarks.record import ROOT
from benchmarks.trials.errors import Array, judge
from benchmarks.trials.process import Row, run_module

PYTHONS = {"relax": Path(sys.executable), "relay": ROOT / ".venv-relay" / "bin" / "python"}
# Relay's TVM would look for schedules of its authors' on the network.
OF_RELAY = {"TOPHUB_LOCATION": "NONE"}


def try_model(model: FoundModel, frontend: str, how: str = "oracle", limit_s: float = 600.0) -> Row:
    """Describe a model and try it; `how` is an argument of `benchmarks.found.trial`.

    "outcome" is "agrees" or "wrong", or, where there are no outputs to judge, "refused", or how the
    process ended.
    """
    path = file_of(model)
    proto = onnx.load(path)
    row = {**_description(model, proto), "bytes": path.stat().st_size}
    row |= {"frontend": frontend, "how": how}
    arrays = made_inputs(model, proto)
    single = in_single_precision(proto)
    wanted = run_onnx(single, arrays)
    with tempfile.TemporaryDirectory() as name:
        inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(inputs, allow_pickle=False, **arrays)
        arguments = [str(path), frontend, how, str(inputs), str(outputs)]
        row |= run_module(
            "benchmarks.found.trial",
            arguments,
            limit_s,
            python=PYTHONS[frontend],
            environment=OF_RELAY,
        )
        if row["outcome"] == "ran":
            with np.load(outputs) as actual:
                rounded = run_onnx(with_rounded_products(single), arrays)
                results = [actual[key] for key in actual.files]
                row |= judge(results, wanted, rounded, row["products"])
    return row


def _description(model: FoundModel, proto: Any) -> Row:
    return {
        "model": model.name,
        "kind": model.kind,
        "source": model.wheel.requirement,
        "licence": model.wheel.licence,
        "opset": max(e.version for e in proto.opset_import if e.domain in {"", "ai.onnx"}),
        "nodes": _nodes(proto.graph),
    }


def _nodes(graph: Any) -> int:
    """Nodes of a graph, and of the branches and bodies in them."""
    inner = [
        attribute.g
        for node in graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]
    return len(graph.node) + sum(map(_nodes, inner))


def made_inputs(model: FoundModel, proto: Any) -> dict[str, Array]:
    """The arrays that the model is tried on, in its own dtypes; the same every time."""
    rng = np.random.default_rng(zlib.crc32(model.name.encode()))
    types = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in proto.graph.input
    }
    return {
        name: np.asarray(each.make(rng, each.shape)).astype(types[name])
        for name, each in model.inputs.items()
    }


def run_onnx(proto: Any, arrays: Mapping[str, Array]) -> list[Array]:
    """Return ONNX Runtime's outputs, on the CPU; FP16 arrays are converted to the model's type."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; of a model it warns of what its exporter left over
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {each.name: each.type for each in session.get_inputs()}
    given = {
        name: array.astype(np.float32) if types[name] == "tensor(float)" else array
        for name, array in arrays.items()
    }
    outputs: list[Array] = session.run(None, given)
    return outputs
