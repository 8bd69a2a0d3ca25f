"""The command `boltgen report`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import boltgen
from boltgen.cli.program import app
from models.digits import MODEL_PATH

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("digits") / "digits.boltgen"
    boltgen.compile(MODEL_PATH, arch="sm_80").save(made)
    return made


def test_it_writes_a_page_and_says_where(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = RUNNER.invoke(app, ["report", str(folder), "-o", str(page), "--against", str(folder)])
    assert done.exit_code == 0, done.output
    assert "page.html" in done.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "Beside digits for sm_80" in text


def test_what_is_no_model_is_named_and_no_page_is_lost(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    for arguments, named in (
        ([str(tmp_path / "none")], "none"),
        ([str(folder), "--against", str(tmp_path / "other")], "other"),
        ([str(folder), "-o", str(tmp_path / "nowhere" / "page.html")], "nowhere"),
    ):
        done = RUNNER.invoke(app, ["report", "-o", str(page), *arguments])
        assert done.exit_code != 0
        assert named in done.output
        assert page.read_text() == "before"
