"""From a bundle to a report, as on a GPU machine, with the virtual GPU for the GPU."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.gpu.bundle import MOST_BYTES, size_table
from benchmarks.gpu.items import ITEMS, Space, key_of, read_items
from benchmarks.gpu.report import ReportError, make_report
from benchmarks.gpu.torch_epilogue import evaluated
from benchmarks.gpu.tuned_log import find_logs
from boltgen.cli import app
from boltgen.ir import reference
from boltgen.ir.dtypes import Layout
from boltgen.ir.epilogue import LoadKind
from boltgen.ir.problem import Gemm
from boltgen.tuning.exchange import read_records
from boltgen.tuning.outcome import Timing
from boltgen.tuning.recorded import RecordedBench
from tests.cases import EPILOGUES
from tests.gpu_suite.conftest import KERNELS, TUNED_KERNELS, TUNED_MODEL, run_suite


def results(out: Path) -> dict[str, dict]:
    found = {}
    for path in sorted(out.glob("slice-*.json")):
        found |= json.loads(path.read_text())["items"]
    return found


def test_a_bundle_is_whole_and_small(bundle: Path):
    manifest = json.loads((bundle / "manifest.json").read_text())
    files = [path for path in bundle.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    there = {str(path.relative_to(bundle)) for path in files}
    assert there == {"manifest.json", *manifest["files"]}
    assert sum((bundle / name).stat().st_size for name in there) < MOST_BYTES


def test_what_takes_how_much_is_a_table():
    table = size_table({"kernels/sm_80": 2_500_000, "sources": 40_000})
    assert [line.split() for line in table.splitlines()] == [
        ["kernels/sm_80", "2.50", "MB"],
        ["sources", "0.04", "MB"],
        ["together", "2.54", "MB"],
    ]


def test_every_item_of_a_bundle_is_measured(bundle: Path, slices: Path):
    """But those that need nvcc (`test_compiling`)."""
    items = read_items(bundle / ITEMS.format(arch="sm_80"))
    found = results(slices)
    measurable = [one for one in items if not (isinstance(one, Space) and one.is_beyond)]
    assert len(measurable) == len(items) - 1
    assert set(found) == {key_of(item) for item in measurable}
    assert {key: item for key, item in found.items() if item["status"] != "done"} == {}


def test_checks_and_suspicions_have_verdicts(slices: Path):
    found = {
        key.partition("/")[2]: item["verdict"].partition(":")[0]
        for key, item in results(slices).items()
        if key.startswith("check/")
    }
    assert found == {
        "split-gemm2": "right",
        "b2b-rf-ragged": "right",
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


def test_outputs_are_compared_bit_by_bit_with_those_in_the_bundle(slices: Path):
    bits = results(slices)["check/split-gemm2"]["bits"]
    assert bits == {"elements": 150 * 136, "different": 0, "most_ulps": 0}


@pytest.mark.parametrize("name", EPILOGUES)
def test_the_fp32_reference_agrees_with_the_oracle(name: str):
    """PyTorch's on the CPU: both round nothing but FP32 sums and what the epilogue casts."""
    rng = np.random.default_rng(7)
    problem, epilogue = Gemm(m=40, n=24, k=16, b_layout=Layout.COLUMN), EPILOGUES[name]
    shapes = {LoadKind.TENSOR: (40, 24), LoadKind.ROW: (24,), LoadKind.COLUMN: (40,)}
    a, b = (rng.uniform(-1.5, 1.5, shape).astype(np.float16) for shape in ((40, 16), (24, 16)))
    operands = [
        rng.uniform(0.5, 1.5, shapes[load.kind]).astype(load.dtype.value) for load in epilogue.loads
    ]
    tensors = [torch.from_numpy(array) for array in operands]
    product = torch.from_numpy(a).float() @ torch.from_numpy(b).float().T
    found = evaluated(torch, epilogue, product, [tensor.float() for tensor in tensors]).numpy()
    expected = reference.run(problem, epilogue, a, b, operands)
    # A cast of the epilogue may round to either side of what lies near the middle of two numbers.
    assert np.linalg.norm(found - expected) <= 2.0**-12 * np.linalg.norm(expected)


def test_a_bundle_needs_no_package_that_it_has_not(bundle: Path):
    """But numpy: PyTorch is imported only for the vendor's columns."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'platformdirs', 'tvm', 'onnx', 'torch',\n"
        "             'cutlass_library', 'matplotlib', 'scipy'):\n"
        "    sys.modules[name] = None\n"
        "import benchmarks.gpu.worker, boltgen, jinja2, markupsafe\n"
        "for module in (benchmarks.gpu.worker, boltgen, jinja2, markupsafe):\n"
        f"    assert module.__file__.startswith({str(bundle)!r}), module.__file__\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={"PYTHONPATH": f"{bundle}:{bundle / 'packages'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_models_output_is_that_of_fp32(slices: Path):
    """PyTorch's, on the CPU here: the suite itself fails an item that is further away."""
    for key, item in results(slices).items():
        if key.startswith("models/") and "errors" in item:
            assert 0.0 < item["errors"]["boltgen"] < item["error_bound"] / 2
            columns = {"boltgen", "boltgen_launched", "tvm", "tvm_metaschedule"}
            assert item["columns"].keys() == columns
            assert item["ratios"]["tvm"]["verdict"] == "faster"


def test_a_model_is_measured_with_a_logs_schedules(slices: Path, recorded: Path):
    item = results(slices)[f"models/{TUNED_MODEL}"]
    (log,) = find_logs(recorded, "sm_80", virtual=True).values()
    covered = {"covered": TUNED_KERNELS, "wanted": KERNELS}
    assert item["metaschedule"] == {**asdict(log.about), **covered}
    assert item["vendor_errors"] == {}
    assert item["ratios"]["tvm_metaschedule"]["verdict"] == "faster"  # than what chance found
    # TVM sums in FP16, each of K summands to half an ulp of 2^-11: like sqrt(K) in the mean, and as
    # the root of 23 layers. K is at most 9 * 192.
    assert 0.0 < item["errors"]["tvm_metaschedule"] < 2.0**-11 * (9 * 192 * 23) ** 0.5


def test_the_tuner_runs_with_the_bundles_kernels_alone(slices: Path):
    (item,) = [item for key, item in results(slices).items() if key.startswith("models/tune-")]
    assert item["timed"] == item["tasks"] == item["agreeing"] == 1
    assert item["measured"][0] == item["measured"][1] > 0
    assert item["missing"] > 0  # nothing is compiled: kernels that are not there are passed over


def test_a_slice_goes_on_where_it_was(bundle: Path, slices: Path, tmp_path: Path):
    shutil.copytree(slices, tmp_path / "out")
    path = tmp_path / "out" / "slice-1-of-2.json"
    form = json.loads(path.read_text())
    missing = next(iter(form["items"]))
    kept = {key: item for key, item in form["items"].items() if key != missing}
    path.write_text(json.dumps({**form, "items": kept}))
    done = run_suite(bundle, tmp_path / "out", "--slice", "1/2")
    assert done.returncode == 0, done.stderr
    assert f"{missing}: done" in done.stdout
    found = json.loads(path.read_text())["items"]
    assert {key: found[key] for key in kept} == kept
    assert found[missing]["status"] == "done"


def test_a_slice_without_time_says_how_to_go_on(bundle: Path, tmp_path: Path):
    done = run_suite(bundle, tmp_path, "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    assert "time is up: give the same command again to go on" in done.stdout
    assert results(tmp_path) == {}


def test_a_report_of_slices_has_tables_plots_and_records(slices: Path, tmp_path: Path):
    report = make_report([slices], tmp_path)
    assert report.folder.parent == tmp_path / "results" / "vgpu-sm-80-a100"
    assert report.failed == 0
    assert report.measured == len(results(slices))
    page = (report.folder / "report.md").read_text()
    assert "times are the virtual GPU's, modelled, not measured" in page
    assert "| b2b/conv-56-64-64-s1 | unfused | 2.02x |" in page
    assert "| padding/32x20x26-46-32-3x3 | move | 18 % |" in page
    assert f"tuning, random: {TUNED_KERNELS} candidates on vgpu sm_80 (A100), " in page
    assert f"; {TUNED_KERNELS} of {KERNELS} kernels have its schedules |" in page
    assert "1 configurations were tried in 1 parts: 0 failed; 0 more did not compile." in page
    row = "| gemm/1280x768x768 | ansor | 1.90x to 9.50x | - | not measured | figure 8a, all |"
    assert row in page
    for name in ("roofline.png", "ratios.png"):
        assert (report.folder / name).read_bytes().startswith(b"\x89PNG")
        assert f"![{name}]({name})" in page
    assert report.records is not None
    records = list(read_records(report.records))
    assert records
    assert all(isinstance(record.outcome, Timing) for record in records)
    replayed = RecordedBench(report.records, "sm_80")
    assert {outcome for _, outcome in replayed.run([records[0].trial])} == {records[0].outcome}


def test_what_is_only_predicted_is_marked(tmp_path: Path):
    report = make_report([], tmp_path, "sm_90")
    page = (report.folder / "report.md").read_text()
    assert "**Nothing here was measured.**" in page
    assert report.measured == 0
    rows = [line for line in page.splitlines() if line.startswith("| GEMM against cuBLAS")]
    assert rows
    assert all(row.endswith("| predicted, against the roofline |") for row in rows)
    for what in ("fused against unfused, GEMM", "models against TVM alone"):
        assert re.search(rf"\| {what} \| [\d.]+x \| [\d.]+x \| [1-9]\d* \| predicted \|", page)
    tuning = "tuning ResNet-50, batch 32, with kernels that are there"
    assert re.search(rf"\| {tuning} \| 60 s \| \d+ to \d+ s \| 25 \| predicted, of the", page)
    assert "| two sessions agree | 95 % | - | 0 | not measured |" in page


def test_the_command_line_reports(slices: Path, tmp_path: Path):
    runner = CliRunner()
    done = runner.invoke(app, ["bench", "report", str(slices), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "results" / "vgpu-sm-80-a100").is_dir()
    refused = runner.invoke(app, ["bench", "report", str(tmp_path), "-o", str(tmp_path)])
    assert refused.exit_code == 1
    assert "no slices in" in refused.output


@pytest.mark.parametrize("what", ["gpu", "commit", "vendor"])
def test_slices_that_differ_do_not_go_together(slices: Path, tmp_path: Path, what: str):
    shutil.copytree(slices, tmp_path / "other")
    path = tmp_path / "other" / "slice-2-of-2.json"
    form = json.loads(path.read_text())
    form["about"][what] = "another"
    path.write_text(json.dumps(form))
    message = rf"they differ in {what} \(.* in slice-1-of-2.json, another in slice-2-of-2.json\)"
    with pytest.raises(ReportError, match=message):
        make_report([tmp_path / "other"], tmp_path)


def test_a_folder_without_slices_is_named(tmp_path: Path):
    with pytest.raises(ReportError, match=f"no slices in {tmp_path}"):
        make_report([tmp_path], tmp_path)
    (tmp_path / "slice-1-of-1.json").write_text("{")
    with pytest.raises(ReportError, match=r"slice-1-of-1\.json is no file of results"):
        make_report([tmp_path], tmp_path)
