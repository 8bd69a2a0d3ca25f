"""Graphs of thousands of nodes: seconds from an ONNX file to all sources, and through the passes.

Neither nvcc nor TVM's build runs. Every repeat is a process of its own, as a user's is. The ONNX
model is a residual network of matrix products; the Relax function has elementwise operators too
that no product takes in.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.record import ROOT, repeat_seconds, summary, write

REPEATS = 5
ONNX_NODES = 5_000
RELAX_NODES = 10_000
WIDTH = 64

_SOURCES = """
import sys
from boltgen.frontend import relax
from boltgen.pipeline import plan_regions
found = relax.annotate(relax.import_model(sys.argv[1]).module)
print(len(plan_regions(found.regions, "sm_80").launches))
"""

_PASSES = """
import json, sys, time
from tvm import relax
from boltgen.frontend.relax import annotate
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((16, 64), "float32"))
w = relax.Var("w", relax.TensorType((64, 64), "float32"))
with builder.function("main", [x, w]):
    y = x
    for number in range(int(sys.argv[1])):
        kind = number % 10
        if kind == 0:
            y = builder.emit(relax.op.matmul(y, w))
        elif kind == 5:
            y = builder.emit(relax.op.nn.softmax(y))
        else:
            y = builder.emit(relax.op.add(y, x) if kind % 2 else relax.op.sigmoid(y))
    builder.emit_func_output(y)
module = builder.get()
started = time.perf_counter()
found = annotate(module)
passed = time.perf_counter()
found.module()
print(json.dumps({"passes": passed - started, "write": time.perf_counter() - passed}))
"""


def residual_network(nodes: int) -> onnx.ModelProto:
    """An ONNX model of `nodes` nodes: products, biases, activations and residuals."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32), f"w{i}"
        )
        for i in range(8)
    ]
    made, last = [], "x"
    for number in range(0, nodes, 4):
        w, y = f"w{number // 4 % 8}", f"y{number}"
        made += [
            helper.make_node("MatMul", [last, w], [f"{y}p"]),
            helper.make_node("Add", [f"{y}p", "bias"], [f"{y}b"]),
            helper.make_node("Relu", [f"{y}b"], [f"{y}r"]),
            helper.make_node("Add", [f"{y}r", last], [y]),
        ]
        last = y
    bias = numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), "bias")
    graph = helper.make_graph(
        made,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [16, WIDTH])],
        [*weights, bias],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _run(text: str, argument: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text, argument],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    launches: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "residual.onnx"
        onnx.save(residual_network(ONNX_NODES), path)
        seconds = repeat_seconds(lambda: launches.append(_run(_SOURCES, str(path))), REPEATS)
    passes = [json.loads(_run(_PASSES, str(RELAX_NODES))) for _ in range(REPEATS)]
    write(
        "large_graphs",
        {
            "onnx_nodes": ONNX_NODES,
            "launches": int(launches[-1]),
            "onnx_to_sources_s": summary(seconds),
            "relax_nodes": RELAX_NODES,
            "relax_passes_s": summary([each["passes"] for each in passes]),
            "relax_write_s": summary([each["write"] for each in passes]),
        },
        target="10 s from an ONNX file of 5,000 nodes to sources; 10,000 nodes through the passes "
        "in 2 s",
    )


if __name__ == "__main__":
    main()
