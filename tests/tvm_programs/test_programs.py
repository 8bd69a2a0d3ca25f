"""Programs as users of TVM write them, each in a process of its own, on the virtual GPU.

There is no nvcc on their PATH, and no CUDA toolkit: what TVM compiles, boltgen's nvcc compiles.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHONS = {"relax": Path(sys.executable), "relay": ROOT / ".venv-relay" / "bin" / "python"}

PROGRAMS = sorted(f"{kind}/{path.name}" for kind in PYTHONS for path in (HERE / kind).glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program: str, tmp_path: Path) -> None:
    python = PYTHONS[program.partition("/")[0]]
    assert python.is_file(), f"{python} is missing: run `make relay-env`"
    environment = {
        **os.environ,
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "TOPHUB_LOCATION": "NONE",
    }
    environment.pop("CUDA_HOME", None)
    done = subprocess.run(
        [str(python), str(HERE / program), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
