"""What results change in the product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import apply
from benchmarks.gpu.apply import (
    BEGIN,
    END,
    NOTHING,
    Pages,
    sentence,
    steps_between,
    table,
    with_verdicts,
)
from benchmarks.record import ROOT
from boltgen.bench.results import FILE, Results, ResultsError, packed

ABOUT: dict[str, Any] = {
    **{"gpu": "NVIDIA H100", "arch": "sm_90a", "driver": "580", "date": "2026-12-01"},
    **{"commit": "c", "toolchain": "t", "vendor": None, "virtual": False, "method": "In turn."},
    "figures": [],
}


def race(ratio: float) -> dict[str, Any]:
    found = {"ratio": ratio, "low": ratio, "high": ratio, "verdict": "slower"}
    return {
        **{"flops": 2 * 1024**3, "bytes": 6 * 1024**2},
        "columns": {"boltgen": {"median_us": 20.0}, "cublas": {"median_us": 18.0}},
        "ratios": {"vendor": found},
    }


def check(values: list[float], verdict: str = "right") -> dict[str, Any]:
    array = np.array(values, np.float16)
    return {"verdict": verdict, "output": packed(array.tobytes()), "dtype": "float16"}


def suspicion(verdict: str) -> dict[str, Any]:
    return {"verdict": verdict, "suspicion": "a fault"}


ITEMS = {
    "gemm/1x1x1": race(0.5),
    "gemm/2x2x2": race(2.0),
    "attention/1": race(1.5),
    "check/one": check([1.0, -0.0, 2.0]),
    "check/two": check([1.0], "wrong: off by 0.1 of its norm"),
    "check/cutlass-wide_warp": suspicion("confirmed: 3 elements are wrong"),
    "check/cutlass-narrow_warp-control": suspicion("control right: its output is right"),
    "check/cutlass-b2b_unasked": suspicion("refuted: its output is right"),
    "check/cutlass-b2b-control": suspicion("control wrong: NaN"),
}


def run(folder: Path, items: dict[str, Any], **about: Any) -> Path:
    folder.mkdir(parents=True)
    kept = Results(folder / FILE, {**ABOUT, **about})
    for key, item in items.items():
        kept.record(key, "done", {**item})
    return folder


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    names = ("benchmarks", "README.md", "front.md", "cutlass.md")
    found, shipped = Pages(*(tmp_path / name for name in names)), Pages()
    found.readme.write_text(shipped.readme.read_text())
    found.front.write_text(shipped.front.read_text())
    found.cutlass.write_text(shipped.cutlass.read_text())
    return found


def test_a_gpus_results_change_the_pages(tmp_path: Path, pages: Pages):
    told = apply.apply([run(tmp_path / "day", ITEMS)], pages=pages)
    assert "check/two: wrong: off by 0.1 of its norm" in told
    assert "check/cutlass-wide_warp: confirmed: 3 elements are wrong" in told
    readme = pages.readme.read_text()
    assert NOTHING not in readme
    assert "| GEMM against cuBLAS and cuBLASLt | 2 | 1.00x | 0.50x |" in readme
    assert "| attention against PyTorch's fastest backend | 1 | 1.50x | 1.50x |" in readme
    assert "(results/nvidia-h100/2026-12-01-c/report.md)" in readme
    front = pages.front.read_text()
    assert "**Measured on NVIDIA H100** ([items, method](benchmarks/README.md#" in front
    assert "GEMM against cuBLAS and cuBLASLt: 1.00x, worst 0.50x. Attention against" in front
    page = pages.cutlass.read_text().splitlines()
    rows = {name: row for name in apply.SUSPICIONS for row in page if f"`{name}`" in row}
    assert rows["wide_warp.cu"].endswith("| confirmed (NVIDIA H100, 2026-12-01) |")
    assert rows["split_k_relu.cu"] in Pages().cutlass.read_text()  # it was not run: as it is
    no_verdict = "no verdict: its control is not right (NVIDIA H100, 2026-12-01) |"
    assert rows["b2b.cu"].endswith(no_verdict)


def test_results_of_the_virtual_gpu_change_no_page(tmp_path: Path, pages: Pages):
    before = pages.readme.read_text(), pages.cutlass.read_text()
    told = apply.apply([run(tmp_path / "day", ITEMS, virtual=True)], pages=pages)
    assert "no page and no constant was changed" in told[-1]
    assert (pages.readme.read_text(), pages.cutlass.read_text()) == before
    assert table(pages.benchmarks / "results") == NOTHING


def test_a_report_of_another_run_is_not_overwritten(tmp_path: Path, pages: Pages):
    apply.apply([run(tmp_path / "one", ITEMS)], pages=pages)
    path = pages.benchmarks / "results" / "nvidia-h100" / "2026-12-01-c" / "results.json"
    before = path.read_text()
    fewer = {key: item for key, item in ITEMS.items() if key != "gemm/1x1x1"}
    with pytest.raises(ResultsError, match=r"has results of another run.*nothing was overwritten"):
        apply.apply([run(tmp_path / "two", fewer)], pages=pages)
    assert path.read_text() == before
    more = run(tmp_path / "four", {"gemm/3x3x3": race(1.0)})
    apply.apply([tmp_path / "one", more], pages=pages)
    assert json.loads(path.read_text())["items"].keys() == {*ITEMS, "gemm/3x3x3"}


def test_the_newest_result_of_an_item_counts(tmp_path: Path, pages: Pages):
    """A day has runs of several commits; each has only a part of the items."""
    early, late = ({"at": f"2026-12-01T{hour:02}:00:00+00:00"} for hour in (9, 15))
    items = {"gemm/1x1x1": race(0.5) | late, "gemm/2x2x2": race(2.0) | early}
    apply.apply([run(tmp_path / "one", items, commit="x")], pages=pages)
    items = {"gemm/1x1x1": race(8.0) | early, "gemm/2x2x2": race(1.0) | late}
    apply.apply([run(tmp_path / "two", items, commit="a")], pages=pages)
    said = table(pages.benchmarks / "results")
    assert "| GEMM against cuBLAS and cuBLASLt | 2 | 0.71x | 0.50x |" in said
    assert "[2026-12-01-a](results/nvidia-h100/2026-12-01-a/report.md), [2026-12-01-x]" in said


def test_outputs_are_compared_bit_by_bit(tmp_path: Path, pages: Pages):
    day = run(tmp_path / "day", ITEMS)
    there = {"check/one": check([1.0, 0.0, 2.0 + 2.0**-9]), "check/two": check([1.0])}
    virtual = run(tmp_path / "virtual", there, virtual=True)
    told = apply.apply([day], [virtual], pages=pages)
    assert (
        "check/one: 1 of 3 elements differ from the virtual GPU's, by at most 1 unit in the last "
        "place"
    ) in told
    assert "outputs of 2 checks were compared with the virtual GPU's: 1 differ" in told


def test_steps_are_numbers_of_the_type():
    one, other = (np.array([x], np.float16) for x in (2.0**-24, -(2.0**-24)))
    assert steps_between(one, other).tolist() == [2]
    assert steps_between(np.array([-0.0], np.float16), np.array([0.0], np.float16)).tolist() == [0]


def test_the_pages_say_what_there_is():
    """Nothing, until somebody had a GPU: and then what was measured."""
    results = ROOT / "benchmarks" / "results"
    for page, said in ((Pages().readme, table(results)), (Pages().front, sentence(results))):
        assert page.read_text().partition(BEGIN)[2].partition(END)[0].strip() == said


def test_a_page_without_its_marks_is_named(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ResultsError, match=r"page\.md has no '<!--"):
        apply.replace_between(page, "table")
    assert with_verdicts("| a | `other.cu` | x | not run yet |", ABOUT, ITEMS).endswith("yet |")


def test_too_few_records_fit_nothing(tmp_path: Path):
    (told,) = apply.refit([])
    assert told.startswith("the analytical model was not refitted: no measurements")
