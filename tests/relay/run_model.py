"""`python run_model.py MODEL.onnx INPUTS.npz OUTPUTS.npz`: through plain `relay.build`, and run.

Every input holds one batch after the other, (batches, *shape). Prints what was offloaded and what
the virtual GPU launched, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import boltgen.relay
from boltgen.device.choose import activate

import onnx  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


def main(model_path: str, inputs_path: str, outputs_path: str) -> None:
    model = onnx.load(model_path)
    batches = dict(np.load(inputs_path))
    shapes = {name: array.shape[1:] for name, array in batches.items()}
    imported, params = relay.frontend.from_onnx(model, shapes)
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
        outputs = []
        for number in range(len(next(iter(batches.values())))):
            executor.run(**{name: array[number] for name, array in batches.items()})
            outputs.append(executor.get_output(0).numpy())
        np.savez(outputs_path, output=np.stack(outputs))
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
