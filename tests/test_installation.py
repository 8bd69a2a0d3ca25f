"""Where boltgen came from, and where it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import boltgen
from boltgen import installation
from boltgen.build import relay_env
from boltgen.errors import BoltgenError

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'boltgen[relax,serve]'"),
        ("file://{here}", "pip install '{here}[relax,serve]'"),
        ("file://{here}/a%20b.whl", "pip install '{here}/a b.whl[relax,serve]'"),
        ("file:///is/gone", "pip install '.[relax,serve]' in a checkout of boltgen"),
        ("git+ssh://h/b.git", "pip install 'boltgen[relax,serve] @ git+ssh://h/b.git'"),
        ("https://h/b.whl", "pip install 'boltgen[relax,serve] @ https://h/b.whl'"),
    ],
)
def test_the_command_that_adds_an_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, command: str
) -> None:
    (tmp_path / "a b.whl").touch()
    monkeypatch.setattr(installation, "_CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(installation, "_origin", lambda: origin and origin.format(here=tmp_path))
    assert installation.install_command("relax", "serve") == command.format(here=tmp_path)


def test_in_a_checkout_it_is_the_checkout() -> None:
    assert installation.install_command("onnx") == f"pip install -e '{ROOT}[onnx]'"
    assert installation.install_command() == f"pip install -e {ROOT}"
    assert relay_env._boltgen() == ["-e", str(ROOT)]


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_other_platforms_are_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    wanted = f"runs on Linux on x86-64 only, and this is {system} on {machine}; use it on such"
    with pytest.raises(BoltgenError, match=wanted):
        boltgen.compile  # noqa: B018
    script = (
        "import platform, sys; import boltgen.__main__ as program;"
        f"sys.platform = {system!r}; platform.machine = lambda: {machine!r};"
        "program.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: boltgen runs on Linux on x86-64 only")
    assert done.stderr.count("\n") == 1
