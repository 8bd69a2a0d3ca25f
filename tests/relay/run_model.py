"""`python run_model.py MODEL.onnx INPUTS.npz OUTPUTS.npz`: through plain `relay.build`, and run.

Prints what was offloaded and what the virtual GPU launched, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import boltgen.relay
from boltgen.runtime.device import activate

import onnx  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


def main(model_path: str, inputs_path: str, outputs_path: str) -> None:
    model = onnx.load(model_path)
    (name,) = {value.name for value in model.graph.input} - {
        tensor.name for tensor in model.graph.initializer
    }
    image = np.load(inputs_path)[name]
    imported, params = relay.frontend.from_onnx(model, {name: image.shape})
    module = boltgen.relay.partition(imported, params, arch="sm_80")
    target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=target, params=params)
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    with tempfile.TemporaryDirectory() as folder:
        library = boltgen.relay.export_library(built, Path(folder) / "model.so")
        loaded = tvm.runtime.load_module(str(library))
        executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
        vgpu.clear_launches()
        executor.run(**{name: image})
        np.savez(outputs_path, output=executor.get_output(0).numpy())
    calls: dict[str, int] = {}

    def count(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            calls[expr.op.name] = calls.get(expr.op.name, 0) + 1

    relay.analysis.post_order_visit(module["main"].body, count)
    regions = [f for f in module.functions.values() if f.attrs and "Compiler" in f.attrs]
    report = {
        "regions": len(regions),
        "left_in_main": calls,
        "launches": [launch.kernel for launch in vgpu.launches()],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
