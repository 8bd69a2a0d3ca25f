"""A database of each test's own, and room for the words of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from boltgen.cli.terminal import console


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(console.out, "width", 400)
    monkeypatch.setattr(console.err, "width", 400)
    return tmp_path / "data" / "records.sqlite"
