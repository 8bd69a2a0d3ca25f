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

# Why a program fails, until boltgen's frontend can do what it asks for.
UNTIL_THEN = {
    "relax/compiled_mode.py": "machine code looks a packed function up in imported modules, where "
    "kernels that are linked into the library itself are not",
}
PROGRAMS = sorted(f"{kind}/{path.name}" for kind in PYTHONS for path in (HERE / kind).glob("*.py"))


def parameters() -> list[object]:
    return [
        pytest.param(
            program,
            marks=[pytest.mark.xfail(strict=True, reason=UNTIL_THEN[program])]
            if program in UNTIL_THEN
            else [],
        )
        for program in PROGRAMS
    ]


@pytest.mark.parametrize("program", parameters())
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


def test_what_is_expected_to_fail_is_there() -> None:
    assert UNTIL_THEN.keys() <= set(PROGRAMS)
