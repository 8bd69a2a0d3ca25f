"""The wheel, installed into an empty environment, has everything that boltgen needs."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from boltgen.bench.slices import Slice

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel, and borrows its dependencies.

    A path entry lends the dependencies without lending the checkout: `.pth` files of a borrowed
    folder are not read, and an editable install is nothing but such a file.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run(
        [*build, "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)], check=True
    )
    (wheel,) = folder.glob("boltgen-*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"),
            *("--python", str(environment / "bin" / "python")),
            *("install", "--no-deps", str(wheel)),
        ],
        check=True,
    )
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return environment / "bin"


def test_resources_come_from_the_package(installed: Path, tmp_path: Path) -> None:
    script = (
        "import json, boltgen; from boltgen.paths import resource_dir;"
        "print(json.dumps([boltgen.__file__]"
        " + [str(resource_dir(n)) for n in ('templates', 'vgpu', 'profiler')]))"
    )
    printed = subprocess.run(
        [str(installed / "python"), "-c", script],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    package, templates, vgpu, profiler = (Path(path) for path in json.loads(printed))
    assert package.is_relative_to(installed.parent)
    assert (templates / "gemm.cu.j2").is_file()
    assert (templates / "include" / "boltgen" / "abi.h").is_file()
    assert (vgpu / "Makefile").is_file()
    assert profiler.is_relative_to(package.parent)


def test_it_compiles_and_runs_the_demo_model(installed: Path, tmp_path: Path) -> None:
    model = ROOT / "models" / "digits" / "digits.onnx"
    boltgen = str(installed / "boltgen")
    subprocess.run(
        [boltgen, "compile", str(model), "--arch", "sm_80", "-o", "digits"],
        check=True,
        cwd=tmp_path,
    )
    inputs = tmp_path / "x.npz"
    script = (
        "import numpy, sys;"
        f"h = numpy.load({str(ROOT / 'models' / 'digits' / 'heldout.npz')!r});"
        "numpy.savez(sys.argv[1], input=h['images'][:40])"
    )
    subprocess.run([str(installed / "python"), "-c", script, str(inputs)], check=True)
    subprocess.run(
        [boltgen, "run", "digits", "--inputs", str(inputs), "--device", "vgpu", "-o", "y.npz"],
        check=True,
        cwd=tmp_path,
    )
    assert (tmp_path / "y.npz").is_file()


def test_it_reports_on_a_gpus_slices(installed: Path, tmp_path: Path) -> None:
    """Away from the checkout, whose benchmarks are not installed."""
    boltgen = str(installed / "boltgen")
    about = {"gpu": "NVIDIA A100", "arch": "sm_80", "driver": "580", "date": "2026-01-02"}
    about |= {"commit": "c", "toolchain": "t", "vendor": None, "virtual": False, "method": "m"}
    kept = Slice(tmp_path / "slice-1-of-1.json", 1, 1, {**about, "figures": []})
    column = {"boltgen": {"median_us": 20.0}}
    kept.record("gemm/1", "done", {"flops": 2**31, "bytes": 2**22, "columns": column})
    for command in (["bench", "--help"], ["bench", "report", str(tmp_path), "-o", "out"]):
        done = subprocess.run(
            [boltgen, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "results" / "nvidia-a100" / "2026-01-02"
    assert {path.name for path in folder.iterdir()} == {
        *("report.md", "results.json", "roofline.png")
    }
