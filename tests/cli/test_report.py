"""The command `boltgen report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import boltgen
from boltgen.cli.program import app
from boltgen.tuning.database.database import Database
from models.digits import MODEL_PATH
from tests.tuning.samples import record

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


def test_the_curves_of_tuning_are_those_of_the_records(folder: Path, tmp_path: Path) -> None:
    page, path = tmp_path / "page.html", tmp_path / "records.sqlite"
    arguments = ["report", str(folder), "-o", str(page), "--database", str(path)]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code != 0
    assert "records.sqlite" in done.output
    kernel = boltgen.load(folder).metadata.kernels[0]
    tried = record(7.25)
    with Database(path) as database:
        database.add([replace(tried, trial=kernel.trials[0])])
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.count('<svg class="curve"') == 1
    assert "7.25" in text


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


def test_a_trace_adds_what_each_pass_changed(folder: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace" / "0"
    trace.mkdir(parents=True)
    texts = {
        "00-imported": "    v0: float32[4] = input()\n    v1: float32[4] = nn.relu(v0)\n",
        "12-set_precision": "    v0: float32[4] = input()\n    v1: float16[4] = nn.relu(v0)\n",
    }
    symbols = [each.region for each in boltgen.load(folder).metadata.placements if each.region]
    regions = "".join(f"    v{i}: _ = region(symbol='{s}')\n" for i, s in enumerate(symbols, 2))
    for name, text in texts.items():
        lines = f"# function 'a<b>'\ndef main():\n{text}{regions}"
        (trace / f"{name}.graph.txt").write_text(lines)
    arguments = ["report", str(folder), "-o", str(page), "--trace", str(trace.parent)]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    shown = page.read_text(encoding="utf-8")
    assert "<h3>Function <code>a&lt;b&gt;</code></h3>" in shown
    assert "<code>set_precision</code>" in shown
    assert '<span class="gone">-     v1: float32[4] = nn.relu(v0)</span>' in shown
    assert '<span class="come">+     v1: float16[4] = nn.relu(v0)</span>' in shown
    assert "Set precision and layout" in shown


def test_a_model_that_is_in_the_cache_is_traced(folder: Path, tmp_path: Path) -> None:
    assert folder.exists()  # the cache has the model
    trace, page = tmp_path / "trace", tmp_path / "page.html"
    boltgen.compile(MODEL_PATH, arch="sm_80", trace=trace, check="none")
    arguments = ["report", str(folder), "-o", str(page), "--trace", str(trace)]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    names = [path.name for path in (trace / "0").iterdir()]
    assert "00-imported.graph.txt" in names
    assert any(name.endswith("-outline_regions.graph.txt") for name in names)


@pytest.mark.parametrize(("output", "trace"), [("m", "m"), ("m", "m/trace"), ("t/0", "t")])
def test_a_trace_in_the_place_of_the_model_is_refused(
    output: str, trace: str, tmp_path: Path
) -> None:
    arguments = ["-o", str(tmp_path / output), "--trace", str(tmp_path / trace)]
    done = RUNNER.invoke(app, ["compile", str(MODEL_PATH), *arguments])
    assert done.exit_code == 1
    assert "are in each other: give --trace another folder" in done.output
    assert not any(tmp_path.iterdir())


def test_a_trace_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace" / "0"
    trace.mkdir(parents=True)
    text = "# function 'main'\ndef main():\n    v0: _ = region(symbol='boltgen_0_other')\n"
    (trace / "00-imported.graph.txt").write_text(text)
    arguments = ["report", str(folder), "--trace", str(trace.parent), "-o", str(tmp_path / "p")]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 1
    assert "has other regions than the model: give the folder of" in done.output
    assert not (tmp_path / "p").exists()


def test_a_folder_without_a_trace_is_refused(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["report", str(folder), "-o", str(page), "--trace", str(tmp_path)]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 1
    assert "has no trace" in done.output
