"""ResNet-50 and RepVGG-A0, batch 32: an inference's launches, and the bytes they read and write.

Nothing is executed and no kernel compiled: launches are counted in the module that TVM has
legalised and fused, and bytes in each launch's tensors, each read or written once. Workspaces of
split-K are left out. Caches are not modelled.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from benchmarks.record import write
from boltgen.device.choose import activate
from boltgen.model_passes import passes_for
from boltgen.pipeline import PipelineOptions, plan_regions

MODELS = ("resnet50", "repvgg_a0")
ARCH = "sm_80"


def count(name: str) -> dict[str, Any]:
    """Count the launches and the bytes of an inference of a model."""
    import tvm  # noqa: PLC0415 (it comes after the CUDA runtime)
    from tvm import ir, relax  # noqa: PLC0415

    import models  # noqa: PLC0415
    from boltgen.frontend import relax as frontend  # noqa: PLC0415

    module = frontend.import_model(models.build(name, batch=32)).module
    annotated = frontend.annotate(module, passes_for(ARCH, PipelineOptions()))
    plan = plan_regions(annotated.regions, ARCH)
    calls = {launch.region.symbol: launch.memory for launch in plan.launches}
    fuse = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )
    with tvm.target.Target({"kind": "cuda", "arch": ARCH}):
        fused = fuse(annotated.module())

    def size(type_: Any) -> int:
        if not isinstance(type_, relax.TensorType):
            return 0
        elements = math.prod(int(extent) for extent in type_.shape.values)
        return elements * int(tvm.DataType(type_.dtype).bits) // 8

    launches = {"boltgen": 0, "moves": 0, "TVM": 0}
    moved = dict.fromkeys(launches, 0)
    for block in fused["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            op = value.op.name if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) else ""
            if op == "relax.call_dps_packed":
                kind, symbol = "boltgen", str(value.args[0].global_symbol)
            elif op == "relax.call_tir" and "reshape" not in value.args[0].name_hint:
                kind, symbol = "TVM", ""
            else:
                continue  # a reshape is a view
            launches[kind] += 1
            moved[kind] += size(binding.var.ty)
            moved[kind] += sum(size(arg.ty) for arg in value.args[1].fields)
            if symbol not in calls:
                continue
            for planned, kernel_side in ((calls[symbol].before, 1), (calls[symbol].after, 0)):
                if planned is None:
                    continue
                move = planned.transform
                launches["moves"] += 1
                moved["moves"] += move.bytes_moved
                sides = [move.a_bytes, move.bytes_moved - move.a_bytes]
                # The kernel reads, or writes, the moved tensor in the place of TVM's.
                moved["boltgen"] += sides[kernel_side] - sides[1 - kernel_side]
    return {
        "launches": launches,
        "bytes": moved,
        "launches_in_all": sum(launches.values()),
        "bytes_in_all": sum(moved.values()),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    activate("vgpu", arch=ARCH)
    figures = {model: count(model) for model in MODELS}
    write("layout_traffic", figures, "no layout transform or cast before the first layer")


if __name__ == "__main__":
    main()
