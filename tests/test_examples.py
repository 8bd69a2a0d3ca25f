"""The programs of examples/, built and installed as its Dockerfile does, on the virtual GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen.build.vgpu import vgpu_libraries
from boltgen.running.artifact import LIBRARY, Artifact
from boltgen.settings import settings_from
from models.digits import MODEL_PATH, load_heldout

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = ("run_c", "run_cpp")
SECONDS = 120


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs, and the libraries that they need, are; no other file is."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    build, prefix = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("installed")
    for command in (
        [cmake, "-S", EXAMPLES, "-B", build, f"-DPython_EXECUTABLE={sys.executable}"],
        [cmake, "--build", build],
        [cmake, "--install", build, "--prefix", prefix],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    return prefix


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("digits") / "digits.boltgen"
    boltgen.compile(MODEL_PATH, arch="sm_80").save(folder)
    return boltgen.load(folder)


def run(
    installed: Path, program: str, arguments: Sequence[object]
) -> subprocess.CompletedProcess[str]:
    """The program with what is installed, the virtual GPU in the place of a driver, and no more."""
    libraries = f"{vgpu_libraries(settings_from())}:{installed / 'lib'}"
    return subprocess.run(
        [installed / "bin" / program, *map(str, arguments)],
        check=False,
        env={"LD_LIBRARY_PATH": libraries, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_what_python_gives(
    program: str, installed: Path, artifact: Artifact, tmp_path: Path
) -> None:
    images = next(iter(load_heldout().batches()))
    images.tofile(tmp_path / "images.f32")
    files = tmp_path / "images.f32", tmp_path / "logits.f32"
    done = run(installed, program, (artifact.folder / LIBRARY, *files, *images.shape))
    assert (done.returncode, done.stderr) == (0, "")
    wanted = artifact.run({"input": images}, device="vgpu")["logits"]
    found = np.fromfile(files[1], np.float32).reshape(wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_wrong_is_named(
    program: str, installed: Path, artifact: Artifact, tmp_path: Path
) -> None:
    library = artifact.folder / LIBRARY
    short, written = tmp_path / "short.f32", tmp_path / "logits.f32"
    short.write_bytes(bytes(12))
    for arguments, status, named in (
        ((tmp_path / "none.so", short, written, 3), 1, "none.so"),
        ((library, tmp_path / "no.f32", written, 40, 1, 16, 16), 1, "no.f32"),
        ((library, short, written, 40, 1, 16, 16), 1, "bytes"),
        ((library, short, written, 3), 1, "input"),
        ((library, short), 2, "usage"),
    ):
        done = run(installed, program, arguments)
        assert done.returncode == status, done.stderr
        assert named in done.stderr
        assert not written.exists()


def test_the_image_has_what_models_are_compiled_with() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    build, image = text.split("\nFROM ")[1:]
    project = (EXAMPLES.parent / "pyproject.toml").read_text()
    wheels = re.findall(r"[\w-]+==\S+", build)
    assert len(wheels) == 3
    assert all(f'"{wheel}"' in project for wheel in wheels)
    copied = re.search(r"^COPY ((?:\S+ )+)/source/$", build, re.MULTILINE)
    assert copied is not None
    assert all((EXAMPLES / name).is_file() for name in copied[1].split())
    assert "COPY --from=build /opt/model /opt/model" in image
    assert re.findall(r"--no-install-recommends (\S+)", image) == ["libstdc++6"]
