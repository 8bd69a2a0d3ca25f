"""The tests in tests/serving, in the environment with KServe and its client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-serve" / "bin" / "python"


MODULES = sorted(path.name for path in (ROOT / "tests" / "serving").glob("test_*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_in_the_environment_with_kserve(module: str) -> None:
    assert PYTHON.is_file(), f"{PYTHON} is missing: run `make serve-env`"
    done = subprocess.run(
        [str(PYTHON), "-m", "pytest", str(ROOT / "tests" / "serving" / module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
