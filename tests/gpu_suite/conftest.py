"""A bundle of a few small items, and what the virtual GPU makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import pack
from benchmarks.gpu.shapes import small_models
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.families.family import Level
from boltgen.runtime.device import DeviceKind
from boltgen.settings import settings_from

# A log of the bundle's one model, which is so many kernels: of some of them a candidate each, drawn
# at random.
TUNED_MODEL, KERNELS, TUNED_KERNELS = "repvgg_a0-small", 12, 4


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `benchmarks/recorded` is: a log of MetaSchedule's, tuned on the virtual GPU."""
    from benchmarks.gpu.metaschedule import record
    from benchmarks.gpu.metaschedule_tune import Effort, Search

    folder = tmp_path_factory.mktemp("recorded")
    record(
        TUNED_MODEL,
        small_models()[TUNED_MODEL],
        arch_named("sm_80"),
        Effort(trials=TUNED_KERNELS, minutes=60, per_round=1, search=Search.RANDOM),
        device=DeviceKind.VGPU,
        recorded=folder,
        settings=settings_from(),
        cache=Cache(settings_from().cache_dir),
        reporter=Silent(),
    )
    return folder


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "gpu-bundle"
    settings = settings_from()
    pack(
        folder,
        [arch_named("sm_80")],
        quick=True,
        level=Level.QUICK,
        settings=settings,
        jobs=settings.jobs,
        reporter=Silent(),
        recorded=recorded,
    )
    return folder


def run_suite(
    bundle: Path, out: Path, *options: str, device: str = "sm_80", nvcc: str = ""
) -> subprocess.CompletedProcess[str]:
    """The bundle's own entry, with the virtual GPU for its device, and `nvcc`'s folder or none."""
    settings = settings_from()
    environment = vgpu_environment(settings, vgpu_libraries(settings), {"device": device})
    folders = environment.get("PATH", "/usr/bin:/bin").split(":")
    others = [folder for folder in folders if not Path(folder, "nvcc").exists()]
    environment["PATH"] = ":".join([nvcc, *others] if nvcc else others)
    return subprocess.run(
        [sys.executable, "run_gpu_suite.py", "--virtual", "--out", str(out), *options],
        cwd=bundle,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="session")
def slices(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of both halves of the suite."""
    out = tmp_path_factory.mktemp("slices")
    for number in (1, 2):
        done = run_suite(bundle, out, "--slice", f"{number}/2", "--minutes", "4")
        assert done.returncode == 0, done.stderr
        assert f"slice {number}/2: finished" in done.stdout
    return out
