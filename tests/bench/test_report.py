"""Reports of results, which need no suite: what does not go together, targets, the paper's rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boltgen.bench.page import TUNING, geometric_mean, page, paper_rows
from boltgen.bench.report import make_report
from boltgen.bench.results import (
    FILE,
    VERSION,
    Results,
    ResultsError,
    merged,
    open_results,
    packed,
    unpacked,
)

ABOUT: dict[str, Any] = {
    **{"gpu": "NVIDIA A100", "arch": "sm_80", "driver": "580", "date": "2026-01-02"},
    **{"commit": "c", "toolchain": "t", "vendor": None, "virtual": False, "method": "In turn."},
    "figures": [
        {
            "item": "models/vgg16-b32",
            "names": ["tvm_metaschedule", "tvm"],
            "values": [4.2],
            "is_share": False,
            "source": "figure 10a",
        }
    ],
}
RATIO = {"ratio": 0.9, "low": 0.8, "high": 1.0, "verdict": "tie"}
GEMM = {
    "status": "done",
    "flops": 2 * 1024**3,
    "bytes": 6 * 1024**2,
    "columns": {"boltgen": {"median_us": 20.0}, "cublas": {"median_us": 18.0}},
    "ratios": {"vendor": RATIO},
}


def runs(folder: Path, *abouts: dict[str, Any]) -> list[Path]:
    """Folders of as many runs, each with one item."""
    folders = []
    for number, about in enumerate(abouts, 1):
        folders.append(folder / f"run-{number}")
        folders[-1].mkdir()
        Results(folders[-1] / FILE, about).record(f"gemm/{number}", "done", {**GEMM})
    return folders


def test_a_report_has_its_page_and_plots(tmp_path: Path):
    report = make_report(runs(tmp_path, ABOUT, ABOUT), tmp_path / "out")
    assert (
        report.folder
        == tmp_path / "out" / "results" / "nvidia-a100" / f"2026-01-02-{ABOUT['commit']}"
    )
    assert (report.measured, report.failed, report.records) == (2, 0, None)
    assert {path.name for path in report.folder.iterdir()} == {
        *("report.md", "results.json", "roofline.png", "ratios.png")
    }
    text = (report.folder / "report.md").read_text()
    assert "| GEMM against cuBLAS, compute-bound | 0.60x | 0.90x | 2 |" in text
    assert "| 1 | 20.00 | cublas 18.00 | vendor 0.900x | 0.800 to 1.000 | tie |" in text


@pytest.mark.parametrize("what", ["gpu", "commit", "vendor"])
def test_runs_that_differ_do_not_go_together(tmp_path: Path, what: str):
    folders = runs(tmp_path, ABOUT, {**ABOUT, what: "another"})
    message = rf"{what} \(.* in .*run-1, another in .*run-2\)"
    with pytest.raises(ResultsError, match=message):
        make_report(folders, tmp_path)


def test_what_a_run_finished_counts_whatever_another_says(tmp_path: Path):
    one, other = runs(tmp_path, ABOUT, ABOUT)
    again = open_results(other)
    again.record("gemm/1", "failed", {"error": "no time"})
    again.record("gemm/3", "failed", {"error": "no time"})
    open_results(one).record("gemm/3", "done", {})
    for folders in ([one, other], [other, one]):
        statuses = {key: item["status"] for key, item in merged(folders)[1].items()}
        assert statuses == dict.fromkeys(("gemm/1", "gemm/2", "gemm/3"), "done")


def test_a_folder_without_results_is_named(tmp_path: Path):
    with pytest.raises(ResultsError, match=str(tmp_path)):
        make_report([tmp_path], tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ResultsError, match=FILE):
        make_report([tmp_path], tmp_path)
    (tmp_path / FILE).write_text(json.dumps({"version": 99}))
    with pytest.raises(ResultsError, match=f"99.*{VERSION}"):
        open_results(tmp_path)


def test_a_disk_that_fills_up_keeps_what_was_measured(tmp_path: Path):
    kept = Results(tmp_path / FILE, {"gpu": "x"})
    kept.record("gemm/1", "done", {})
    gone = Results(tmp_path / "gone" / FILE)
    with pytest.raises(ResultsError, match="gone"):
        gone.record("gemm/1", "done", {})
    assert open_results(tmp_path).items == {"gemm/1": {"status": "done"}}


@pytest.mark.parametrize("what", ["gpu", "driver", "commit", "toolchain", "vendor"])
def test_results_of_another_run_are_not_gone_on_with(tmp_path: Path, what: str):
    (folder,) = runs(tmp_path, ABOUT)
    before = (folder / FILE).read_text()
    kept = open_results(folder)
    kept.belong_to({**ABOUT, "date": "2026-01-03"})
    with pytest.raises(ResultsError, match=f"another run: {what} was .*, and is another.*--out"):
        kept.belong_to({**ABOUT, what: "another"})
    assert (folder / FILE).read_text() == before


def test_what_is_packed_is_unpacked():
    assert unpacked(packed(b"records")) == b"records"
    with pytest.raises(ResultsError, match="records"):
        unpacked("records")


def test_ansors_ratio_stands_beside_metaschedules_where_there_is_one():
    ratios = {"tvm": {"ratio": 5.0}, "tvm_metaschedule": {"ratio": 3.0}}

    def shown(found: dict[str, dict[str, float]]) -> list[str]:
        (row,) = paper_rows(ABOUT, {"models/vgg16-b32": {"status": "done", "ratios": found}})
        return list(row[1:4])

    assert shown(ratios) == ["tvm_metaschedule", "4.20x", "3.00x"]
    assert shown({"tvm": ratios["tvm"]}) == ["tvm", "4.20x", "5.00x"]
    assert shown({}) == ["tvm_metaschedule", "4.20x", "not measured"]


def test_the_tuners_time_and_agreement_stand_among_the_targets():
    item = {"status": "done", "tuning_s": [41.6, 39.0], "timed": 25, "agreeing": 24, "verdict": ""}
    rows = page(ABOUT, {TUNING: item}, ()).splitlines()
    assert "| two sessions agree | 95% | 96% | 25 |" in rows
    assert any(row.endswith("| 60 s | 42 s | 25 |") for row in rows)


def test_what_failed_says_why():
    rows = page(ABOUT, {"gemm/1": {"status": "failed", "error": "no time"}}, ()).splitlines()
    assert "| 1 | - |  |  |  | failed: no time |" in rows


def test_a_geometric_mean_is_of_ratios():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
