"""Training examples for cost models: the times of records, and the devices that they are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from boltgen.arch import Arch, arch_named
from boltgen.cost.learned import Example
from boltgen.ir.outcome import DeviceIdentity, Timing
from boltgen.tuning.database.records import Record


def arch_of(device: DeviceIdentity) -> Arch:
    """Return the architecture's row with the number of SMs and the clock of a device."""
    row = arch_named(device.arch)
    if (device.sm_count, device.clock_mhz) == (row.sm_count, row.boost_mhz):
        return row
    scale = device.sm_count * device.clock_mhz / (row.sm_count * row.boost_mhz)
    return replace(
        row,
        device=device.name,
        sm_count=device.sm_count,
        boost_mhz=device.clock_mhz,
        tensor_f32_acc_tflops=row.tensor_f32_acc_tflops * scale,
        tensor_f16_acc_tflops=row.tensor_f16_acc_tflops * scale,
        fp32_tflops=row.fp32_tflops * scale,
    )


def timed(records: Iterable[Record]) -> list[Record]:
    """Return the newest record with a time for each trial, device and toolchain."""
    newest: dict[object, Record] = {}
    for record in records:
        key = (record.trial, record.device, record.toolchain)
        earlier = newest.get(key)
        if isinstance(record.outcome, Timing) and (
            earlier is None or record.measured_at >= earlier.measured_at
        ):
            newest[key] = record
    return list(newest.values())


def measured_us(record: Record) -> float:
    """Return the time of a record that has one, in microseconds."""
    if not isinstance(record.outcome, Timing):
        raise ValueError("a record without a time was not left out")
    return record.outcome.median_us


def examples(records: Iterable[Record]) -> list[Example]:
    """Return training examples for a cost model: the records with a time."""
    return [
        Example(
            workload=record.trial.workload,
            config=record.trial.config,
            arch=arch_of(record.device),
            time_us=measured_us(record),
        )
        for record in timed(records)
    ]
