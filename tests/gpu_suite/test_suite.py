"""From a bundle to a report, as on a GPU machine, with the virtual GPU for the GPU."""

from __future__ import annotations

import json
import shutil
import venv
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from benchmarks.gpu.apply import bits
from benchmarks.gpu.bundle import MOST_BYTES, size_table
from benchmarks.gpu.items import ITEMS, key_of, read_items
from boltgen.bench.results import FILE, unpacked
from boltgen.cli import app
from boltgen.ir.outcome import Timing
from boltgen.tuning.database.exchange import read_records
from boltgen.tuning.device.replay import RecordedBench
from tests.gpu_suite.conftest import TUNED_MODEL, run_suite


def items_of(out: Path) -> dict[str, dict]:
    return json.loads((out / FILE).read_text())["items"]


def test_a_bundle_is_whole_and_small(bundle: Path):
    manifest = json.loads((bundle / "manifest.json").read_text())
    files = [path for path in bundle.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    there = {str(path.relative_to(bundle)) for path in files}
    there = {name for name in there if not name.startswith("work/")}  # a run made it
    assert there == {"manifest.json", *manifest["files"]}
    assert sum((bundle / name).stat().st_size for name in there) < MOST_BYTES


def test_what_takes_how_much_is_a_table():
    table = size_table({"kernels/sm_80": 2_500_000, "sources": 40_000})
    assert [line.split() for line in table.splitlines()] == [
        ["kernels/sm_80", "2.50", "MB"],
        ["sources", "0.04", "MB"],
        ["together", "2.54", "MB"],
    ]


def test_every_item_of_a_bundle_is_measured(bundle: Path, results: Path):
    items = read_items(bundle / ITEMS.format(arch="sm_80"))
    found = items_of(results)
    assert set(found) == {key_of(item) for item in items}
    assert {key: item for key, item in found.items() if item["status"] != "done"} == {}


def test_checks_and_suspicions_have_verdicts(results: Path):
    found = {
        key.partition("/")[2]: item["verdict"].partition(":")[0]
        for key, item in items_of(results).items()
        if key.startswith("check/")
    }
    assert found == {
        "split-gemm2": "right",
        "b2b-rf-ragged": "right",
        "norm-norm": "right",
        "skinny-skinny": "right",
        "grouped-grouped": "right",
        "prologue-prologue": "right",
        "attention-attention": "right",
        "recurrent-recurrent": "right",
        "depthwise-depthwise": "right",
        "separable-separable": "right",
        "cutlass-wide_warp": "confirmed",
        "cutlass-narrow_warp-control": "control right",
        "cutlass-split_k_relu": "confirmed",
        "cutlass-split_k_relu-control": "control right",
        "cutlass-b2b": "refuted",
        "cutlass-b2b_unasked": "confirmed",
        "cutlass-b2b-control": "control right",
        "memcheck": "not there",
        "racecheck": "not there",
    }


def test_outputs_are_kept_to_be_compared_bit_by_bit(results: Path):
    items = items_of(results)
    first = items["check/split-gemm2"]
    assert (first["dtype"], len(unpacked(first["output"]))) == ("float16", 2 * 4096)
    assert list(bits(items, items)) == [
        "outputs of 10 checks were compared with the virtual GPU's: 0 differ"
    ]


def bare_python(folder: Path) -> Path:
    """A Python that has, beside the standard library, what the suite asks for."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    asked = ("numpy", "numpy.libs", "jinja2", "markupsafe", "filelock", "rich", "pygments")
    for name in (*asked, "markdown_it", "mdurl"):
        if (package := Path(np.__file__).parents[1] / name).exists():
            (site / name).symlink_to(package)
    return folder / "bin" / "python"


def test_a_bare_python_measures_what_a_bundle_has(bundle: Path, results: Path, tmp_path: Path):
    """It needs no package but NumPy, Jinja, filelock and rich; PyTorch is for models alone."""
    del results  # which unpacked the bundle's packages
    python = bare_python(tmp_path / "python")
    names = ("check/split-gemm2", "check/b2b-rf-ragged")
    done = run_suite(bundle, tmp_path / "out", "--only", ",".join(names), python=python)
    assert done.returncode == 0, done.stderr
    found = items_of(tmp_path / "out")
    assert {name: found[name]["verdict"] for name in names} == dict.fromkeys(names, "right")
    assert found.keys() == set(names)


def test_a_models_output_is_that_of_fp32(results: Path):
    """PyTorch's, on the CPU here: the suite itself fails an item that is further away."""
    for key, item in items_of(results).items():
        if key.startswith("models/") and "errors" in item:
            assert 0.0 < item["errors"]["boltgen"] < item["error_bound"] / 2
            columns = {"boltgen", "boltgen_launched", "tvm", "tvm_metaschedule"}
            assert item["columns"].keys() == columns
            assert item["ratios"]["tvm"]["verdict"] == "faster"


def test_a_model_is_measured_with_a_logs_schedules(results: Path, about_log: dict):
    item = items_of(results)[f"models/{TUNED_MODEL}"]
    log = item["metaschedule"]
    assert {key: log[key] for key in about_log} == about_log
    assert (log["virtual"], log["trials"], log["tuned"]) == (True, 1, 1)
    assert (log["covered"], log["wanted"]) == (1, 12)
    assert item["vendor_errors"] == {}
    # TVM sums in FP16, each of K summands to half an ulp of 2^-11: like sqrt(K) in the mean, and as
    # the root of 23 layers. K is at most 9 * 192.
    assert 0.0 < item["errors"]["tvm_metaschedule"] < 2.0**-11 * (9 * 192 * 23) ** 0.5


def test_the_tuner_runs_with_the_bundles_kernels_alone(results: Path):
    (item,) = [item for key, item in items_of(results).items() if key.startswith("models/tune-")]
    assert item["timed"] == item["tasks"] == item["agreeing"] == 1
    assert item["measured"][0] == item["measured"][1] > 0
    assert item["missing"] > 0  # nothing is compiled: kernels that are not there are passed over


def test_a_run_goes_on_where_it_was(bundle: Path, results: Path, tmp_path: Path):
    shutil.copytree(results, tmp_path / "out")
    path = tmp_path / "out" / FILE
    form = json.loads(path.read_text())
    missing = next(iter(form["items"]))
    kept = {key: item for key, item in form["items"].items() if key != missing}
    path.write_text(json.dumps({**form, "items": kept}))
    done = run_suite(bundle, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"{missing}: done" in done.stdout
    found = items_of(tmp_path / "out")
    assert {key: found[key] for key in kept} == kept
    assert found[missing]["status"] == "done"
    # On another machine, with the results that were brought back.
    path.write_text(json.dumps({**form, "items": kept}))
    done = run_suite(bundle, tmp_path / "next", "--before", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert items_of(tmp_path / "next").keys() == {missing}
    assert "not reached" not in done.stdout


def test_results_of_another_run_are_not_overwritten(bundle: Path, results: Path, tmp_path: Path):
    shutil.copytree(results, tmp_path / "out")
    path = tmp_path / "out" / FILE
    form = json.loads(path.read_text())
    path.write_text(text := json.dumps({**form, "about": {**form["about"], "gpu": "another"}}))
    done = run_suite(bundle, tmp_path / "out")
    assert done.returncode == 2
    assert "has results of another run: gpu was another, and is vgpu sm_80" in done.stderr
    assert path.read_text() == text


def test_a_run_without_time_says_what_was_not_reached(bundle: Path, tmp_path: Path):
    done = run_suite(bundle, tmp_path, "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    assert "time is up: give the same command again to go on" in done.stdout
    assert "GEMM against cuBLAS: 0 of 1 are fine; not reached: gemm/128x128x64" in done.stdout
    # A fast machine may open the results, or judge the first item, before the supervisor looks.
    path = tmp_path / FILE
    reached = json.loads(path.read_text())["items"] if path.exists() else {}
    assert "gemm/128x128x64" not in reached


def test_a_report_has_tables_plots_and_records(results: Path, tmp_path: Path):
    runner = CliRunner()
    done = runner.invoke(app, ["bench", "report", str(results), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "results" / "vgpu-sm-80-a100").iterdir()
    found = json.loads((folder / "results.json").read_text())["items"]
    assert found.keys() == items_of(results).keys()
    page = (folder / "report.md").read_text()
    assert "times are the virtual GPU's, modelled, not measured" in page
    assert "| b2b/conv-56-64-64-s1 | unfused | 2.02x |" in page
    assert "| padding/32x20x26-46-32-3x3 | move | 18% |" in page
    assert "tvm_metaschedule: 1 candidates on vgpu sm_80 (A100), " in page
    assert "; 1 of 12 kernels have its schedules |" in page
    assert "3 configurations were tried in 1 parts: 0 failed." in page
    row = "| gemm/1280x768x768 | ansor | 1.90x to 9.50x | not measured | figure 8a, all |"
    assert row in page
    # There is no vendor on the virtual GPU, and so no plot of the ratios to it.
    assert (folder / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert "![roofline.png](roofline.png)" in page
    (path,) = (tmp_path / "recorded" / "vgpu-sm-80-a100").iterdir()
    records = list(read_records(path))
    assert records
    assert all(isinstance(record.outcome, Timing) for record in records)
    replayed = RecordedBench(path, "sm_80")
    assert {outcome for _, outcome in replayed.run([records[0].trial])} == {records[0].outcome}
