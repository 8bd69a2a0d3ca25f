"""A machine that has nothing yet: the wheel, and the environment of a new user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "models" / "digits"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build_wheel(source: Path, folder: Path, prebuilt: Path | None = None) -> Path:
    """Build the wheel of the sources in `source`, with the hatchling of this environment."""
    env = {k: v for k, v in os.environ.items() if k != "BOLTGEN_PREBUILT"}
    if prebuilt is not None:
        env["BOLTGEN_PREBUILT"] = str(prebuilt)
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(command, check=True, env=env)
    (wheel,) = folder.glob("boltgen-*.whl")
    return wheel


def empty_machine(home: Path, **changes: str) -> dict[str, str]:
    """The environment of a user who has nothing yet."""
    home.mkdir(exist_ok=True)
    ours = ("PYTHON", "BOLTGEN", "XDG", "VIRTUAL_ENV", "CXX", "CUDA", "LD_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return kept | {"HOME": str(home)} | changes


def output_of(command: list[str], env: Mapping[str, str], folder: Path) -> str:
    """Run the command in `folder`; what it printed."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
