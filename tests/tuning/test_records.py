"""A record's JSON: what goes out comes back, and what is not a record is named by its field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from boltgen.errors import RecordError
from boltgen.families.json_form import encode
from boltgen.families.trial import Trial
from boltgen.ir.elementwise import ElementwiseGraph, Scalar, Unary
from boltgen.ir.functions import UnaryOp
from boltgen.ir.outcome import Outcome
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.database.records import Record, from_line, spec_key, tells_no_content, to_line
from tests.tuning.samples import CONFIG, EARLIER_TOOLS, GEMM, NO_LAUNCH, TOOLS, record, records


@given(records)
@settings(max_examples=80, deadline=None)
def test_every_record_comes_back_from_its_line(original: Record) -> None:
    line = to_line(original)
    assert "\n" not in line
    assert from_line(line) == original


def test_a_line_is_readable() -> None:
    form = json.loads(to_line(record(20.0)))
    assert list(form) == [
        "format",
        "trial",
        "kernel",
        "device",
        "toolchain",
        "outcome",
        "measured_at",
    ]
    (layer,) = form["trial"]["workload"]["layers"]
    assert list(layer) == ["problem", "epilogue", "prologue"]
    assert layer["problem"]["type"] == "Gemm"
    assert layer["problem"]["b_layout"] == "row"
    assert form["trial"]["config"]["type"] == "Cutlass2Config"
    assert form["trial"]["config"]["threadblock"] == {"m": 128, "n": 128, "k": 32}
    assert form["outcome"]["type"] == "Timing"
    assert form["measured_at"] == "2026-01-31T12:00:00+00:00"


def test_infinity_and_negative_zero_are_kept() -> None:
    clip = ElementwiseGraph(
        (
            *ElementwiseGraph().nodes,
            Unary(UnaryOp.CLIP, 0, (-0.0, float("inf"))),
            Scalar(float("-inf")),
        )
    )
    line = to_line(record(workload=Workload.of(GEMM.single.problem, clip)))
    assert "Infinity" not in line
    nodes = from_line(line).trial.workload.single.epilogue.nodes
    assert str(nodes) == str(clip.nodes)
    with pytest.raises(RecordError, match="NaN"):
        encode(float, float("nan"))


def changed(path: str, value: Any) -> str:
    """A good line with one field set, or taken out where `value` is `...`."""
    form = json.loads(to_line(record(20.0)))
    *parents, last = path.split(".")
    inner = form
    for name in parents:
        inner = inner[int(name) if name.isdigit() else name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(form)


LAYER, IN_LAYER = "trial.workload.layers.0", r"trial.workload.layers\[0\]"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"format": NaN}', "NaN is no JSON number"),
        ("{}", "format: expected 'boltgen-record-4', found None"),
        (changed("format", ["boltgen-record-2"]), r"format: .* found \['boltgen-record-2'\]"),
        (changed("format", "boltgen-record-9"), "format: .* found 'boltgen-record-9'"),
        (changed("colour", "red"), "colour: Record has no such field$"),
        (changed("trial.config.depth", 3), "trial.config.depth: Cutlass2Config has no such field"),
        (
            changed(f"{LAYER}.problem.m", ...),
            f"{IN_LAYER}.problem.m: this field of Gemm is missing",
        ),
        (changed(f"{LAYER}.problem.m", 1.5), f"{IN_LAYER}.problem.m: expected an integer, found"),
        (changed(f"{LAYER}.problem.m", True), f"{IN_LAYER}.problem.m: expected an integer, found"),
        (changed(f"{LAYER}.problem.m", 0), f"{IN_LAYER}.problem: Gemm: m=0 is out of range"),
        (changed(f"{LAYER}.problem.type", "Gemv"), f"{IN_LAYER}.problem: expected .*'Gemm'.*found"),
        (changed(f"{LAYER}.problem.b_layout", "nhwc"), "b_layout: expected one of 'row', 'column'"),
        (changed(f"{LAYER}.epilogue.nodes", 3), f"{IN_LAYER}.epilogue.nodes: expected a list"),
        (changed(f"{LAYER}.epilogue.nodes", [1]), r"epilogue.nodes\[0\]: expected an object"),
        (changed("trial.workload.layers", []), "trial.workload: Workload: 0 layers; it has 1 to 8"),
        (changed("trial.config.type", "Cutlass9Config"), "trial.config: expected .*'B2bConfig'"),
        (changed("device", []), r"device: expected an object \(DeviceIdentity\)"),
        (changed("device.arch", "sm_12"), "device.arch: unknown arch 'sm_12'"),
        (changed("device.clock_mhz", 0), "device.clock_mhz: 0 is not positive"),
        (changed("device.kind", 7), "device.kind: expected one of 'cuda', 'vgpu', 'recorded'"),
        (changed("toolchain", None), "toolchain: expected a text, found None"),
        (changed("measured_at", "2026-01-31T12:00:00"), "measured_at: expected a time with its"),
        (changed("measured_at", 12), "measured_at: expected a time with its zone"),
        (changed("outcome.median_us", "20"), "outcome.median_us: expected a number, found '20'"),
        (changed("outcome.median_us", "inf"), "outcome.median_us: inf is no time in micro"),
        (changed("outcome.median_us", -1), "outcome.median_us: -1.0 is no time in micro"),
        (changed("outcome.low_us", 90), "outcome.low_us: 90.0 exceeds median_us, 20.0"),
    ],
)
def test_what_is_no_record_is_named(line: str, complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint):
        from_line(line)


def test_a_field_in_another_unit_is_named_with_the_right_one() -> None:
    form = json.loads(to_line(record(20.0)))
    form["outcome"]["median_ms"] = form["outcome"].pop("median_us") / 1000
    with pytest.raises(RecordError, match=r"outcome.median_ms: .*convert it to 'median_us'"):
        from_line(json.dumps(form))


def test_a_time_that_no_tensor_core_could_reach_has_another_unit() -> None:
    fastest = record(20.0)  # 0.27 GFLOP: 0.9 us at an A100's 312 TFLOP/s
    assert from_line(to_line(fastest)) == fastest
    form = json.loads(to_line(fastest))
    for name in ("median_us", "p20_us", "p80_us", "low_us", "high_us"):
        form["outcome"][name] /= 1000
    with pytest.raises(RecordError, match=r"median_us: 0.02 is .* times faster than the tensor"):
        from_line(json.dumps(form))


def test_the_key_of_a_spec_covers_the_toolchain_and_not_the_launch() -> None:
    def key(trial: Trial, arch: str = "sm_80", tools: str = TOOLS) -> str:
        return spec_key(trial.spec(arch), tools)

    trial = record().trial
    same = key(trial)
    assert key(replace(trial, config=replace(CONFIG, swizzle=2, split_k=4))) == same
    assert key(replace(trial, workload=Workload.of(Gemm(m=8, n=512, k=512)))) == same
    assert key(trial, tools=TOOLS.replace("4.2.0", "4.3.0")) != same
    assert key(trial, arch="sm_86") != same


def test_a_line_of_the_third_format_is_read_as_void() -> None:
    written = record(20.0, toolchain=EARLIER_TOOLS)
    form = json.loads(to_line(written)) | {"format": "boltgen-record-3"}
    assert from_line(json.dumps(form)) == written
    assert tells_no_content(written.toolchain)
    assert not tells_no_content(TOOLS)


def test_a_failure_is_an_outcome() -> None:
    assert encode(Outcome, NO_LAUNCH) == {
        "type": "Failure",
        "fault": "launch",
        "reason": "too many resources requested for launch",
        "log": "",
    }
