"""The wheel is all that a user needs: built, installed without the checkout, and used.

The tests whose names begin with `test_user` do what a user does on an empty machine: they install
the wheel and its requirements from the index, and have empty home, cache and data folders. They
take minutes. The others borrow the packages of this environment, and take seconds.
"""

from __future__ import annotations

import email
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import boltgen as checkout
from benchmarks.harness.empty_machine import (
    DIGITS,
    PIP,
    ROOT,
    build_wheel,
    empty_machine,
    output_of,
)
from boltgen.bench.results import FILE, Results
from boltgen.build import vgpu
from boltgen.settings import settings_from


def install_beside(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment that borrows the packages of this one; its `bin`.

    A path entry lends the packages without lending the checkout: `.pth` files of a borrowed folder
    are not read, and an editable install is nothing but such a file.
    """
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    to = ("--python", str(folder / "bin" / "python"))
    subprocess.run([*PIP, *to, "install", "--no-deps", str(wheel)], check=True)
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_beside(wheel, tmp_path_factory.mktemp("installed"))


def test_its_name_and_metadata(wheel: Path) -> None:
    assert wheel.name == f"boltgen-{checkout.__version__}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = email.message_from_bytes(archive.read(place))
    assert "boltgen/py.typed" in names
    assert not [name for name in names if "prebuilt" in name or name.startswith("tests")]
    assert about["Version"] == checkout.__version__
    assert about["Requires-Python"] == ">=3.10"
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(
        about.get_all("Classifier", [])
    )
    assert {"relax", "onnx", "torch", "serve"} <= set(about.get_all("Provides-Extra", []))


def test_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (sources,) = tmp_path.glob("boltgen-*.tar.gz")
    again = build_wheel(sources, tmp_path / "again")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_resources_come_from_the_package(installed: Path, tmp_path: Path) -> None:
    script = (
        "import json, boltgen; from boltgen.paths import resource_dir;"
        "print(json.dumps([boltgen.__file__, boltgen.__version__]"
        " + [str(resource_dir(n)) for n in ('templates', 'vgpu', 'profiler')]))"
    )
    env = empty_machine(tmp_path / "home")
    printed = output_of([str(installed / "python"), "-c", script], env, tmp_path)
    package, version, *folders = json.loads(printed)
    assert version == checkout.__version__
    templates, vgpu_sources, profiler = map(Path, folders)
    assert Path(package).is_relative_to(installed.parent)
    assert (templates / "gemm.cu.j2").is_file()
    assert (templates / "include" / "boltgen" / "abi.h").is_file()
    assert (vgpu_sources / "Makefile").is_file()
    assert profiler.is_relative_to(Path(package).parent)


def test_the_program_starts(installed: Path, tmp_path: Path) -> None:
    env = empty_machine(tmp_path / "home")
    assert "compile" in output_of([str(installed / "boltgen"), "--help"], env, tmp_path)


def test_make_can_plan_the_virtual_gpu(installed: Path, tmp_path: Path) -> None:
    """As boltgen calls it, with the table that it wrote, and as its message says: by hand."""
    env = empty_machine(tmp_path / "home")
    python = str(installed / "python")
    script = "from boltgen.paths import resource_dir; print(resource_dir('vgpu'))"
    sources = output_of([python, "-c", script], env, tmp_path).strip()
    table = tmp_path / "devices.inc"
    table.write_text(output_of([python, "-m", "boltgen.build.vgpu"], env, tmp_path))
    assert table.read_text() == vgpu.device_table()
    make = ["make", "-C", sources, f"OUT={tmp_path / 'out'}", "ISAS=avx2"]
    planned = output_of([*make, "-n", f"DEVICES={table}"], env, tmp_path).count(" -c ")
    by_hand = output_of([*make, "-n", f"PYTHON={python}"], env, tmp_path)
    assert planned == by_hand.count(" -c ") > 20
    output_of([*make, f"PYTHON={python}", str(tmp_path / "out" / "devices.inc")], env, tmp_path)
    assert (tmp_path / "out" / "devices.inc").read_text() == vgpu.device_table()


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the virtual GPU of this machine in it."""
    folder = tmp_path_factory.mktemp("prebuilt")
    libraries = vgpu.vgpu_libraries(settings_from())
    vgpu.pack_prebuilt(libraries, folder / "vgpu", "the compiler of this machine")
    return build_wheel(ROOT, folder, folder / "vgpu")


def test_a_wheel_with_the_virtual_gpu_needs_no_compiler_for_it(
    prebuilt: Path, tmp_path: Path
) -> None:
    assert "-any" not in prebuilt.name
    binaries = install_beside(prebuilt, tmp_path / "env")
    env = empty_machine(
        tmp_path / "home", PATH=str(tmp_path), BOLTGEN_CACHE_DIR=str(tmp_path / "c")
    )
    script = "import boltgen; device = boltgen.activate('vgpu'); print(device.vgpu is not None)"
    python = str(binaries / "python")
    assert output_of([python, "-c", script], env, tmp_path) == "True\n"
    assert not (tmp_path / "c" / "vgpu").exists()
    # Where its sources were changed, they are built: here nothing builds them.
    source = next(
        binaries.parent.glob("lib/*/site-packages/boltgen/_resources/vgpu/core/error.cpp")
    )
    source.write_text(source.read_text() + "\n// changed\n")
    done = subprocess.run(
        [python, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "no host compiler: 'g++' is not on PATH" in done.stderr


@pytest.mark.parametrize("kind", ["sources", "prebuilt"])
def test_user_installs_and_runs_the_first_model(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The README's commands, on a machine that has a compiler and make, and nothing of ours."""
    wheel: Path = request.getfixturevalue("wheel" if kind == "sources" else "prebuilt")
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    python, boltgen = str(binaries / "python"), str(binaries / "boltgen")
    # pip has its user's home, which may say where the index is.
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, f"{wheel}[relax,onnx]"], check=True, cwd=tmp_path)

    env = empty_machine(tmp_path / "home")
    where = output_of([python, "-c", "import boltgen; print(boltgen.__file__)"], env, tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    shutil.copy(DIGITS / "heldout.npz", tmp_path)
    script = "import numpy; numpy.savez('x', input=numpy.load('heldout.npz')['images'][:40])"
    output_of([python, "-c", script], env, tmp_path)
    command = [boltgen, "compile", "digits.onnx", "--arch", "sm_80", "-o", "digits.boltgen"]
    output_of(command, env, tmp_path)
    built = (tmp_path / "home" / ".cache" / "boltgen" / "vgpu").exists()
    assert built == (kind == "sources")
    if kind == "prebuilt":  # from here on no compiler is there
        env["PATH"] = str(tmp_path / "home")
    assert "digits for sm_80" in output_of([boltgen, "inspect", "digits.boltgen"], env, tmp_path)
    output_of([boltgen, "check", "digits.boltgen"], env, tmp_path)
    run = [boltgen, "run", "digits.boltgen", "--inputs", "x.npz", "--device", "vgpu", "-o", "y.npz"]
    output_of(run, env, tmp_path)
    script = (
        "import numpy; y = numpy.load('y.npz')['logits'].argmax(1);"
        "print((y == numpy.load('heldout.npz')['labels'][:40]).mean())"
    )
    assert float(output_of([python, "-c", script], env, tmp_path)) >= 0.9


def test_user_makes_a_platform_wheel(tmp_path: Path) -> None:
    """`make wheel`: auditwheel says which systems can load the libraries in it."""
    pytest.importorskip("auditwheel")
    subprocess.run([sys.executable, ROOT / "make_wheel.py", tmp_path], check=True, cwd=tmp_path)
    (made,) = tmp_path.glob("boltgen-*.whl")
    assert re.fullmatch(r"boltgen-[\d.]+-py3-none-manylinux_2_\d+_x86_64\.whl", made.name)
    with zipfile.ZipFile(made) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]
    held = {Path(name).name for name in files if "vgpu_prebuilt" in name}
    assert held == {*vgpu.LIBRARIES, "key"}


def test_it_reports_on_a_gpus_results(installed: Path, tmp_path: Path) -> None:
    """Away from the checkout, whose benchmarks are not installed."""
    boltgen = str(installed / "boltgen")
    about = {"gpu": "NVIDIA A100", "arch": "sm_80", "driver": "580", "date": "2026-01-02"}
    about |= {"commit": "c", "toolchain": "t", "vendor": None, "virtual": False, "method": "m"}
    kept = Results(tmp_path / FILE, {**about, "figures": []})
    column = {"boltgen": {"median_us": 20.0}}
    kept.record("gemm/1", "done", {"flops": 2**31, "bytes": 2**22, "columns": column})
    for command in (["bench", "--help"], ["bench", "report", str(tmp_path), "-o", "out"]):
        done = subprocess.run(
            [boltgen, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "results" / "nvidia-a100" / f"2026-01-02-{about['commit']}"
    assert {path.name for path in folder.iterdir()} == {
        *("report.md", "results.json", "roofline.png")
    }
