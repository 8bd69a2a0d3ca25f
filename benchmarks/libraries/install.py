"""Installs the libraries once, in the user's cache folder, and lets this process import them.

They are pinned with their checksums in `requirements.txt`, and come without what they require
otherwise: the project's environment stays as it is.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def folder() -> Path:
    """Return the folder of the installed libraries: another for other requirements, or another
    Python.
    """
    key = hashlib.sha256(_REQUIREMENTS.read_bytes() + sys.implementation.cache_tag.encode())
    return Path(platformdirs.user_cache_path("boltgen-library-models")) / key.hexdigest()[:16]


def install() -> Path:
    """The folder, filled where it is missing: all of it, or nothing.

    Raises:
        subprocess.CalledProcessError: pip cannot install them, or a checksum is another.
    """
    kept = folder()
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        made = Path(name) / "libraries"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--no-deps", "--only-binary=:all:", "--require-hashes"),
                *("--target", str(made), "--requirement", str(_REQUIREMENTS)),
            ],
            check=True,
        )
        made.rename(kept)
    return kept


def make_importable() -> None:
    """Let this process import them; what the project's environment has comes first."""
    import torch  # noqa: PLC0415

    sys.path.append(str(install()))
    # torchvision's own library is for CUDA's PyTorch and is not loaded beside another. timm imports
    # torchvision, but uses no operator of that library.
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            form = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", form)
