"""The tests in tests/relay, in the environment with Relay."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-relay" / "bin" / "python"


MODULES = sorted(path.name for path in (ROOT / "tests" / "relay").glob("test_*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_in_the_environment_with_relay(module: str) -> None:
    assert PYTHON.is_file(), f"{PYTHON} is missing: run `make relay-env`"
    done = subprocess.run(
        [str(PYTHON), "-m", "pytest", str(ROOT / "tests" / "relay" / module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
