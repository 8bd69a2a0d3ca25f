"""How many kernels ResNet-50, batch 32, takes: to compile it, and to tune it. Only counted.

What is tuned is timed by the analytical model, so that counts are the same every time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from benchmarks.gpu.predicted_tuning import predicted_tuning
from benchmarks.record import write
from boltgen.arch import arch_named
from boltgen.frontend import relax
from boltgen.frontend.partitioning import Passes
from boltgen.pipeline import PipelineOptions, cutter, plan_regions
from boltgen.tuning.budget import Budget
from boltgen.tuning.outcome import Trial
from models import build
from tests.tuning.resnet50_layers import resnet50_tasks

BATCH = 32
ARCHES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
# More than there are launches to time: sessions end where nothing is left.
WITHOUT_END = Budget(trials=1_000_000)


def compiled() -> dict[str, dict[str, int]]:
    """What a compilation without measurements takes, by arch."""
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        onnx.save(build("resnet50", batch=BATCH), path)
        for arch in ARCHES:
            cut = cutter(arch, PipelineOptions())
            annotated = relax.annotate(relax.import_model(str(path)).module, passes=Passes(cut=cut))
            plan = plan_regions(annotated.regions, arch)
            counts[arch] = {"regions": len(plan.launches), "kernels": len(plan.kernels)}
    return counts


def tuned(budget: Budget) -> dict[str, dict[str, int]]:
    """What both rounds of a session on sm_80 time, and the kernels that are compiled for it."""
    asked = predicted_tuning(resnet50_tasks(BATCH), arch_named("sm_80"), budget).asked
    rounds = {
        "round_one": [trial for trial in asked if trial.epilogue.is_identity],
        "round_two": [trial for trial in asked if not trial.epilogue.is_identity],
    }
    return {name: _counts(trials) for name, trials in rounds.items()}


def _counts(trials: Sequence[Trial]) -> dict[str, int]:
    return {"launches": len(trials), "kernels": len({trial.spec("sm_80") for trial in trials})}


def main() -> None:
    write(
        "kernel_counts",
        {
            "compiled": compiled(),
            "tuned_1000_trials": tuned(Budget(trials=1000)),
            "tuned_to_the_end": tuned(WITHOUT_END),
        },
        "12 distinct kernels; in round two at most three for each of 25 distinct layers",
    )


if __name__ == "__main__":
    main()
