"""ResNet-50 and RepVGG-A0, batch 32: an inference's launches and the bytes that they read and
write, before and after padding and layout went into the generated code.

`python -m benchmarks.layout_traffic COMMIT` compares with the sources of COMMIT. Nothing is
executed and no kernel compiled: launches are those of the module that TVM has legalised and fused,
bytes those of each launch's tensors, every one read or written once. Workspaces of split-K are
left out on both sides. Caches are not modelled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write

MODELS = ("resnet50", "repvgg_a0")

_COUNT = """
import inspect, json, math, sys
from boltgen.runtime.device import activate
activate("vgpu", arch="sm_80")
import tvm
from tvm import ir, relax
import models
from boltgen import pipeline
from boltgen.frontend import relax as frontend
from boltgen.frontend.relax.steps import annotate

options = pipeline.PipelineOptions()
cut = pipeline.cutter("sm_80", options)
has_padding = hasattr(pipeline, "padding_costs")
more = {"padding": pipeline.padding_costs("sm_80", options)} if has_padding else {}
module = frontend.import_model(models.build(sys.argv[1], batch=32)).module
annotated = annotate(module, cut=cut, **more)
plan = pipeline.plan_regions(annotated.regions, "sm_80")
calls = {launch.region.symbol: launch.memory for launch in plan.launches} if more else {}
passes = tvm.transform.Sequential([relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()])
with tvm.target.Target({"kind": "cuda", "arch": "sm_80"}):
    fused = passes(annotated.module())

def size(type_):
    if not isinstance(type_, relax.TensorType):
        return 0
    elements = math.prod(int(extent) for extent in type_.shape.values)
    return elements * tvm.DataType(type_.dtype).bits // 8

launches = {"boltgen": 0, "moves": 0, "TVM": 0}
moved = dict.fromkeys(launches, 0)
for block in fused["main"].body.blocks:
    for binding in block.bindings:
        value = binding.value
        if not isinstance(value, ir.Call):
            continue
        name = ""
        if isinstance(value.op, ir.Op) and value.op.name == "relax.call_dps_packed":
            name = str(value.args[0].global_symbol)
        if name.startswith("boltgen_"):
            kind, args = "boltgen", value.args[1].fields
        elif isinstance(value.op, ir.Op) and value.op.name == "relax.call_tir":
            kind, args = "TVM", value.args[1].fields
            if "reshape" in value.args[0].name_hint:
                continue  # a view
        else:
            continue
        launches[kind] += 1
        moved[kind] += size(binding.var.ty) + sum(size(arg.ty) for arg in args)
        if name not in calls:
            continue
        for one, kernel_side in ((calls[name].before, 1), (calls[name].after, 0)):
            if one is None:
                continue
            launches["moves"] += 1
            moved["moves"] += one.bytes_moved()
            sides = [math.prod(one.rows) * c * f.dtype.size_bytes for f, c in (
                (one.move.source, one.source_channels), (one.move.target, one.target_channels))]
            # The kernel reads, or writes, the moved tensor in the place of TVM's.
            moved["boltgen"] += sides[kernel_side] - sides[1 - kernel_side]
print(json.dumps({"launches": launches, "bytes": moved,
    "launches_in_all": sum(launches.values()), "bytes_in_all": sum(moved.values())}))
"""


def count(model: str, sources: Path) -> dict[str, Any]:
    """What an inference of `model` launches and moves, by the boltgen in `sources`."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNT, model],
        capture_output=True,
        text=True,
        check=False,
        cwd=sources,
        env={"PYTHONPATH": str(sources), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(commit: str) -> None:
    """Count with both sources, and record."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(before), commit], check=True)
        try:
            figures = {
                model: {"before": count(model, before), "after": count(model, ROOT)}
                for model in MODELS
            }
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    write("layout_traffic", figures, "no layout transform or cast before the first layer")


if __name__ == "__main__":
    main(sys.argv[1])
