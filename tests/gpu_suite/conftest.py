"""A bundle of a few small items, and what the virtual GPU makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import pack
from benchmarks.gpu.kernels import Workshop
from benchmarks.record import ROOT
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Silent
from boltgen.build.toolchain import find_toolchain
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from

# A log of the bundle's one model, of one of its kernels: a candidate drawn at random.
TUNED_MODEL = "repvgg_a0-small"
PYTHON = "{}.{}".format(*sys.version_info)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `benchmarks/recorded` is: a log of MetaSchedule's, tuned on the virtual GPU."""
    folder, settings = tmp_path_factory.mktemp("recorded"), settings_from()
    command = [sys.executable, "-m", "benchmarks.gpu.metaschedule", TUNED_MODEL]
    command += ["--arch", "sm_80", "--trials", "1", "--search", "replay-trace", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--out", str(folder)],
        cwd=ROOT,
        env=vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_80"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def about_log(recorded: Path) -> dict:
    (path,) = recorded.glob(f"*/metaschedule/{TUNED_MODEL}/about.json")
    return json.loads(path.read_text())


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "gpu-bundle"
    settings = settings_from()
    shop = Workshop(
        settings=settings,
        tools=find_toolchain(settings),
        cache=Cache(settings.cache_dir),
        jobs=settings.jobs,
        reporter=Silent(),
    )
    pack(folder, [arch_named("sm_80")], shop, quick=True, python=PYTHON, recorded=recorded)
    return folder


def run_suite(
    bundle: Path, out: Path, *options: str, device: str = "sm_80"
) -> subprocess.CompletedProcess[str]:
    """The bundle's own entry, with the virtual GPU for its device."""
    settings = settings_from()
    return subprocess.run(
        [sys.executable, "run_gpu_suite.py", "--virtual", "--out", str(out), *options],
        cwd=bundle,
        env=vgpu_environment(settings, vgpu_libraries(settings), {"device": device}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="session")
def slices(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of both halves of the suite."""
    out = tmp_path_factory.mktemp("slices")
    for number in (1, 2):
        done = run_suite(bundle, out, "--slice", f"{number}/2", "--minutes", "8")
        assert done.returncode == 0, done.stderr
        assert f"slice {number}/2: finished" in done.stdout
    return out
