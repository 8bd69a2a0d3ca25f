"""How many kernels ResNet-50, batch 32, takes: to compile it, and to tune it. Only counted.

What is tuned is timed by the analytical model, so that counts are the same every time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from benchmarks.record import write
from benchmarks.tuning import DEVICE, TOOLCHAIN, timing
from boltgen.arch import Arch, arch_named
from boltgen.frontend import relax
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.pipeline import PipelineOptions, cutter, plan_regions
from boltgen.space.config import Cutlass2Config
from boltgen.tune.budget import Budget
from boltgen.tune.cost_model import predict
from boltgen.tune.database import Database
from boltgen.tune.outcome import DeviceIdentity, Outcome, Trial
from boltgen.tune.session import Session
from models import build
from tests.tune.resnet50_layers import resnet50_tasks

BATCH = 32
ARCHES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
# More than there are launches to time: sessions end where nothing is left.
WITHOUT_END = Budget(trials=1_000_000)


@dataclass(slots=True)
class PredictingBench:
    """Times launches by the analytical model, and remembers what it was asked."""

    arch: Arch
    device: DeviceIdentity = DEVICE
    toolchain: str = TOOLCHAIN
    lock_name: str | None = None
    trials: list[Trial] = field(default_factory=list)

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """The predicted time of each."""
        for trial in trials:
            self.trials.append(trial)
            assert isinstance(trial.config, Cutlass2Config)
            assert isinstance(trial.problem, Gemm | Conv2d)
            predicted = predict(trial.problem, trial.epilogue, trial.config, self.arch)
            yield trial, timing(predicted.time_us)

    def close(self) -> None:
        """Nothing to stop."""


def compiled() -> dict[str, dict[str, int]]:
    """What a compilation without measurements takes, by arch."""
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        onnx.save(build("resnet50", batch=BATCH), path)
        for arch in ARCHES:
            cut = cutter(arch, PipelineOptions())
            annotated = relax.annotate(relax.import_model(str(path)).module, cut=cut)
            plan = plan_regions(relax.regions(annotated), arch)
            counts[arch] = {"regions": len(plan.launches), "kernels": len(plan.kernels)}
    return counts


def tuned(budget: Budget) -> dict[str, dict[str, int]]:
    """What both rounds of a session on sm_80 time, and the kernels that are compiled for it."""
    bench = PredictingBench(arch=arch_named("sm_80"))
    with (
        tempfile.TemporaryDirectory() as name,
        Database(Path(name) / "records.sqlite") as database,
    ):
        Session(resnet50_tasks(BATCH), bench, database, budget, lock_folder=Path(name)).run()
    rounds = {
        "round_one": [trial for trial in bench.trials if trial.epilogue.is_identity],
        "round_two": [trial for trial in bench.trials if not trial.epilogue.is_identity],
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
