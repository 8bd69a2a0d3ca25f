"""Make a virtual environment with a TVM that has Relay.

No package of TVM on PyPI has Relay any more. The wheel of BitBLAS contains a complete TVM 0.17,
built with CUDA and LLVM; only this part of the wheel is used.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from boltgen.build.progress import Reporter, Silent
from boltgen.errors import ToolchainError
from boltgen.installation import install_arguments

TVM_WHEEL = "bitblas==0.1.0.post1"
_TVM_PYTHON = "bitblas/3rdparty/tvm/python/tvm/"
_TVM_LIBRARIES = "bitblas/3rdparty/tvm/build/"

# This file marks environments made by boltgen; boltgen installs into no other folder.
_MARKER = ".made-by-boltgen"
# TVM 0.17 needs numpy 1, whose last release supports Python 3.12.
_NEWEST_PYTHON = (3, 12)
REQUIREMENTS = (
    "numpy==1.26.4",
    "scipy==1.13.1",
    "ml_dtypes==0.4.1",
    "attrs==26.1.0",
    "decorator==5.3.1",
    "psutil==7.2.2",
    "tornado==6.6.1; python_version >= '3.11'",
    "tornado==6.5.10; python_version < '3.11'",
    "cloudpickle==3.1.2",
    "typing_extensions==4.16.0",
    "packaging==26.3",
    # TVM's library is linked with these; no driver is needed.
    "nvidia-cuda-runtime-cu12==12.4.127",
    "nvidia-cuda-nvrtc-cu12==12.4.127",
    # The last ONNX with `onnx.mapping`, which this TVM's importer reads.
    "onnx==1.16.2",
)


def make_relay_environment(
    folder: Path, *, python: Path | None = None, reporter: Reporter | None = None
) -> Path:
    """Make the virtual environment `folder` with TVM 0.17 and this boltgen; return its Python.

    `python` is the interpreter of the environment, by default the one that runs boltgen.

    Raises:
        ToolchainError: the folder exists and boltgen did not make it, Python is too new, or a step
            fails; the message has the output.
    """
    interpreter = python or Path(sys.executable)
    if folder.is_dir() and not (folder / _MARKER).is_file() and any(folder.iterdir()):
        raise ToolchainError(
            f"{folder} exists, and `boltgen setup-relay` did not make it. Give a new folder"
        )
    _check_python(interpreter)
    told = reporter or Silent()
    told.start("making an environment with Relay", 4)
    try:
        # The marker comes first, so that an interrupted environment is made anew.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARKER).touch()
        _run([str(interpreter), "-m", "venv", str(folder)], "make a virtual environment")
        inside = folder / "bin" / "python"
        told.step("virtual environment")
        _pip(inside, ["install", *REQUIREMENTS], "install what TVM 0.17 needs")
        told.step("requirements")
        _install_tvm(inside)
        told.step(f"TVM 0.17 from {TVM_WHEEL}")
        _pip(inside, ["install", *_boltgen()], "install boltgen")
        told.step("boltgen")
    except (FileExistsError, NotADirectoryError) as error:
        raise ToolchainError(f"{error.filename} is no folder. Give a new folder") from error
    finally:
        told.end()
    return inside


def _check_python(interpreter: Path) -> None:
    said = _run(
        [str(interpreter), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        "ask for its version",
    )
    found = re.match(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) > _NEWEST_PYTHON:
        newest = ".".join(map(str, _NEWEST_PYTHON))
        raise ToolchainError(
            f"{interpreter} is Python {said.strip()}; TVM 0.17 needs numpy 1, which is there for "
            f"Python up to {newest}: give one with --python"
        )


def _boltgen() -> list[str]:
    """Return the arguments of `pip install` for the running boltgen."""
    return list(install_arguments())


def _install_tvm(python: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="boltgen-tvm-") as name:
        wheels = Path(name)
        _pip(python, ["download", "--no-deps", "-d", str(wheels), TVM_WHEEL], "fetch TVM 0.17")
        (wheel,) = wheels.glob("*.whl")
        purelib = _run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            "ask for its packages",
        )
        unpack_tvm(wheel, Path(purelib.strip()))


def unpack_tvm(wheel: Path, packages: Path) -> None:
    """Extract the package `tvm`, with its libraries, from the wheel of BitBLAS.

    Raises:
        ToolchainError: the wheel has no such package.
    """
    target = packages / "tvm"
    with tempfile.TemporaryDirectory(prefix=".tvm-", dir=packages) as name:
        staged = Path(name) / "tvm"
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                place = _place(member)
                if place is None:
                    continue
                path = staged / place
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
        if not (staged / "libtvm.so").is_file() or not (staged / "relay").is_dir():
            raise ToolchainError(f"{wheel.name} has no TVM with Relay in it")
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)


def _place(member: str) -> str | None:
    """Return the place of a wheel's member within the package; None if it is not part of TVM."""
    if member.startswith(_TVM_PYTHON) and not member.endswith("/"):
        return member.removeprefix(_TVM_PYTHON)
    # Beside the package, where TVM's own search for libraries begins.
    is_library = member.startswith(_TVM_LIBRARIES) and member.endswith(".so")
    return member.removeprefix(_TVM_LIBRARIES) if is_library else None


def _pip(python: Path, arguments: Sequence[str], purpose: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*command, *arguments], purpose)


def _run(command: Sequence[str], purpose: str) -> str:
    """Run a command and return its standard output.

    Raises:
        ToolchainError: the command cannot be started, or fails.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise ToolchainError(f"cannot {purpose}: {command[0]}: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise ToolchainError(
            f"cannot {purpose}: `{' '.join(command)}` ends with status {done.returncode}:\n{said}"
        )
    return done.stdout
