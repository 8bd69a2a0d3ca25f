"""The command `boltgen serve` where it cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.server import PATIENCE_S, ROOT


def test_a_port_that_is_taken(compiled: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "boltgen", "serve", str(compiled / "half")]
        done = subprocess.run(
            [*command, "--port", str(port), "--grpc-port", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boltgen", "serve", str(tmp_path / "absent")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "absent is no folder" in done.stderr
