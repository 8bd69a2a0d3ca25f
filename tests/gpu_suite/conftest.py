"""A bundle of a few small items, and what the virtual GPU makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import pack, workshop
from benchmarks.record import ROOT
from boltgen.arch import arch_named
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
    pack(
        folder,
        arch_named("sm_80"),
        workshop(),
        quick=True,
        compile_models=True,
        python=PYTHON,
        recorded=recorded,
    )
    return folder


def run_suite(
    bundle: Path,
    out: Path,
    *options: str,
    device: str = "sm_80",
    virtual: bool = True,
    python: Path = Path(sys.executable),
) -> subprocess.CompletedProcess[str]:
    """The bundle's own entry, with the virtual GPU for its device."""
    settings = settings_from()
    command = [str(python), "run_gpu_suite.py", *(["--virtual"] if virtual else [])]
    command += ["--out", str(out), "--work", str(bundle / "work"), *options]
    return subprocess.run(
        command,
        cwd=bundle,
        env=vgpu_environment(settings, vgpu_libraries(settings), {"device": device}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="session")
def results(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a whole run."""
    out = tmp_path_factory.mktemp("results")
    done = run_suite(bundle, out, "--minutes", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("finished\n"), done.stdout
    return out
