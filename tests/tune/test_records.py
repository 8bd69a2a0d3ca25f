"""A record's JSON: what goes out comes back, and what is not a record is named by its field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from boltgen.errors import RecordError
from boltgen.ir.elementwise import ElementwiseGraph, Scalar, Unary
from boltgen.ir.functions import UnaryOp
from boltgen.tune.json_form import encode
from boltgen.tune.outcome import Outcome
from boltgen.tune.records import Record, from_line, kernel_key, to_line
from tests.tune.samples import CONFIG, GEMM, NO_LAUNCH, TOOLS, record, records


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
    assert form["trial"]["problem"]["type"] == "Gemm"
    assert form["trial"]["problem"]["b_layout"] == "row"
    assert form["trial"]["config"]["threadblock"] == {"m": 128, "n": 128, "k": 32}
    assert form["outcome"]["type"] == "Timing"
    assert form["measured_at"] == "2026-01-31T12:00:00+00:00"


def test_a_line_of_the_first_format_is_read() -> None:
    form = json.loads(to_line(record(20.0)))
    assert form["trial"]["config"].pop("type") == "Cutlass2Config"
    assert from_line(json.dumps(form | {"format": "boltgen-record-1"})) == record(20.0)
    with pytest.raises(RecordError, match=r"trial\.config: expected an object whose"):
        from_line(json.dumps(form))


def test_infinity_and_negative_zero_are_kept() -> None:
    clip = ElementwiseGraph(
        (
            *ElementwiseGraph().nodes,
            Unary(UnaryOp.CLIP, 0, (-0.0, float("inf"))),
            Scalar(float("-inf")),
        )
    )
    line = to_line(record(epilogue=clip))
    assert "Infinity" not in line
    nodes = from_line(line).trial.epilogue.nodes
    assert str(nodes) == str(clip.nodes)
    with pytest.raises(RecordError, match="NaN"):
        encode(float, float("nan"))


def changed(path: str, value: Any) -> str:
    """A good line with one field set, or taken out where `value` is `...`."""
    form = json.loads(to_line(record(20.0)))
    *parents, last = path.split(".")
    inner = form
    for name in parents:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(form)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"format": NaN}', "NaN is no JSON number"),
        ("{}", "format: expected 'boltgen-record-2', found None"),
        (changed("format", "boltgen-record-9"), "format: .* found 'boltgen-record-9'"),
        (changed("colour", "red"), "colour: Record has no such field$"),
        (changed("trial.config.depth", 3), "trial.config.depth: Cutlass2Config has no such field"),
        (changed("trial.problem.m", ...), "trial.problem.m: this field of Gemm is missing"),
        (changed("trial.problem.m", 1.5), "trial.problem.m: expected an integer, found 1.5"),
        (changed("trial.problem.m", True), "trial.problem.m: expected an integer, found True"),
        (changed("trial.problem.m", 0), "trial.problem: Gemm: m=0 is out of range"),
        (changed("trial.problem.type", "Gemv"), "trial.problem: expected .*'Gemm'.*found"),
        (changed("trial.problem.b_layout", "nhwc"), "b_layout: expected one of 'row', 'column'"),
        (changed("trial.epilogue.nodes", 3), "trial.epilogue.nodes: expected a list, found 3"),
        (changed("trial.epilogue.nodes", [1]), r"trial.epilogue.nodes\[0\]: expected an object"),
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


def test_the_key_of_a_kernel_covers_the_toolchain_and_not_the_launch() -> None:
    trial = record().trial
    same = kernel_key(replace(trial, config=replace(CONFIG, swizzle=2, split_k=4)), "sm_80", TOOLS)
    assert same == record().kernel
    assert kernel_key(replace(trial, problem=replace(GEMM, m=8)), "sm_80", TOOLS) == same
    assert kernel_key(trial, "sm_80", TOOLS.replace("4.2.0", "4.3.0")) != same
    assert kernel_key(trial, "sm_86", TOOLS) != same


def test_a_failure_is_an_outcome() -> None:
    assert encode(Outcome, NO_LAUNCH) == {
        "type": "Failure",
        "fault": "launch",
        "reason": "too many resources requested for launch",
        "log": "",
    }
