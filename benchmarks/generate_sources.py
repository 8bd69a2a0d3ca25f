"""ResNet-50, batch 32, sm_80: seconds from the ONNX file to all generated sources.

Neither nvcc nor TVM's build runs. Every repeat is a new process, as a user's is: the imports of
TVM and onnx are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.record import ROOT, repeat_seconds, summary, write
from models import build

REPEATS = 5

_STAGES = """
import json, sys, time
started = time.perf_counter()
from boltgen.frontend import relax
from boltgen.pipeline import PipelineOptions, plan_regions
from boltgen.model_passes import passes_for
stages = {}
def stage(name, run):
    began = time.perf_counter()
    value = run()
    stages[name] = time.perf_counter() - began
    return value
stages["import boltgen and TVM"] = time.perf_counter() - started
model = stage("import the model", lambda: relax.import_model(sys.argv[1]))
passes = stage("find the compilers", lambda: passes_for("sm_80", PipelineOptions()))
annotated = stage("normalise and partition", lambda: relax.annotate(model.module, passes))
plan = stage("choose and render", lambda: plan_regions(annotated.regions, "sm_80"))
print(json.dumps({
    "stages": stages, "regions": len(plan.launches), "kernels": len(plan.kernels)}))
"""


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        onnx.save(build("resnet50", batch=32), path)
        command = [sys.executable, "-c", _STAGES, str(path)]
        printed: list[str] = []

        def once() -> None:
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            printed.append(done.stdout.splitlines()[-1])

        seconds = repeat_seconds(once, REPEATS)
    last = json.loads(printed[-1])
    write(
        "generate_sources",
        {"seconds": summary(seconds), "last_run": last},
        target="15 s; 12 distinct kernels at most",
    )


if __name__ == "__main__":
    main()
