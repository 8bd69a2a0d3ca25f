"""A record: a trial, its device, its outcome and its time; and its JSON form, one per line.

Only this module defines the form of measurements outside the process.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from boltgen.arch import ARCHES
from boltgen.errors import RecordError
from boltgen.families.json_form import decode, encode
from boltgen.families.trial import Trial
from boltgen.intake.json_text import JsonError, parse_json
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, Outcome, Timing
from boltgen.problems.workload import Workload
from boltgen.tuning.database.record_migration import EARLIER_FORMATS, earlier_trial

# Part of every line, so that files can be concatenated and split.
FORMAT = "boltgen-record-4"
_FORMAT_FIELD = "format"
# Occurs in the toolchain's text of records from before kernels were identified by content.
_WITH_HEADERS = "; headers "
# A record has some two kilobytes; a failure's log adds a few.
MOST_LINE_BYTES = 1 << 20
# The share of the tensor cores' shortest time below which a time must be in another unit. Boost
# clocks beyond the datasheet's, and sparsity, stay within a factor of four.
_SHARE_OF_PEAK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement.

    `kernel` is the content of the compiled kernel: the SHA-256 of its PTX, or NOT_COMPILED.
    `toolchain` names compilers and CUTLASS. `measured_at` is in UTC.
    """

    trial: Trial
    kernel: str
    device: DeviceIdentity
    toolchain: str
    outcome: Outcome
    measured_at: datetime


def spec_key(spec: KernelSpec, toolchain: str) -> str:
    """Return the key of a kernel's newest content: the compiled spec and the toolchain."""
    return digest(spec, toolchain)


def tells_no_content(toolchain: str) -> bool:
    """Return whether records of `toolchain` are from before kernels were identified by content.

    Such records are void: they identify kernels by the texts of boltgen's headers, which newer
    toolchain texts no longer contain.
    """
    return _WITH_HEADERS in toolchain


def task_key(workload: Workload) -> str:
    """Return the identity of a workload."""
    return digest(workload)


def dumps(kind: Any, value: Any) -> str:
    """Return the JSON text of a value, which is equal for equal values."""
    return json.dumps(encode(kind, value), separators=(",", ":"), allow_nan=False)


def loads(kind: Any, text: str) -> Any:
    """Return the value of type `kind` in a text that `dumps` wrote.

    Raises:
        RecordError: the text is not JSON, or not of this type; the message names the field.
    """
    return decode(kind, _parsed(text))


def to_line(record: Record) -> str:
    """Return a record as a line of JSON, without the newline."""
    form = encode(Record, record)
    if not isinstance(form, dict):
        raise AssertionError("a record is an object")
    return json.dumps({_FORMAT_FIELD: FORMAT, **form}, separators=(",", ":"), allow_nan=False)


def from_line(line: str) -> Record:
    """Return the record in a line of JSON.

    Raises:
        RecordError: the line is not JSON or no record; a field is unknown, missing or of another
            type; or a time is impossible in microseconds. The message names the field.
    """
    form = _parsed(line)
    if not isinstance(form, dict):
        raise RecordError("the line is no JSON object")
    written = form.pop(_FORMAT_FIELD, None)
    if written in EARLIER_FORMATS:
        form["trial"] = earlier_trial(form.get("trial"), written)
    elif written != FORMAT:
        raise RecordError(f"{_FORMAT_FIELD}: expected {FORMAT!r}, found {written!r}")
    return checked(decode(Record, form))


def checked(record: Record) -> Record:
    """Return `record` if its device and its times are possible.

    Raises:
        RecordError: a value is impossible; the message names the field.
    """
    if record.device.arch not in ARCHES:
        raise RecordError(f"device.arch: unknown arch {record.device.arch!r}")
    for name in ("sm_count", "clock_mhz"):
        if getattr(record.device, name) < 1:
            raise RecordError(f"device.{name}: {getattr(record.device, name)} is not positive")
    if isinstance(record.outcome, Timing):
        _check_times(record, record.outcome)
    return record


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, MOST_LINE_BYTES)
    except JsonError as error:
        raise RecordError(str(error)) from error


def _check_times(record: Record, timing: Timing) -> None:
    ordered = (
        (timing.low_us, "low_us", timing.median_us, "median_us"),
        (timing.median_us, "median_us", timing.high_us, "high_us"),
        (timing.p20_us, "p20_us", timing.median_us, "median_us"),
        (timing.median_us, "median_us", timing.p80_us, "p80_us"),
    )
    for name in ("median_us", "p20_us", "p80_us", "low_us", "high_us"):
        value = getattr(timing, name)
        if not (math.isfinite(value) and value > 0):
            raise RecordError(f"outcome.{name}: {value} is no time in microseconds")
    for low, low_name, high, high_name in ordered:
        if low > high:
            raise RecordError(f"outcome.{low_name}: {low} exceeds {high_name}, {high}")
    fastest_us = _SHARE_OF_PEAK * record.trial.workload.flops / _flops_per_us(record.device)
    if timing.median_us < fastest_us:
        raise RecordError(
            f"outcome.median_us: {timing.median_us} is {fastest_us / timing.median_us:.3g} times "
            f"faster than the tensor cores of {record.device.name} could be; times are in "
            "microseconds: is this one in milliseconds or seconds?"
        )


def _flops_per_us(device: DeviceIdentity) -> float:
    """Return the peak FLOP per microsecond of the tensor cores at the device's clock."""
    row = ARCHES[device.arch]
    per_sm_and_clock = row.tensor_f32_acc_tflops * 1e6 / row.sm_count / row.boost_mhz
    return per_sm_and_clock * device.sm_count * device.clock_mhz
