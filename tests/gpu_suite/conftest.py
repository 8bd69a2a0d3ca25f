"""A bundle of a few small items, and what the virtual GPU makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import pack
from boltgen.arch import arch_named
from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from
from boltgen.space.library import Level


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
