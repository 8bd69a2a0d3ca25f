"""Whole models are predicted from counted kernels: counting, what is kept of it, and the sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import boltgen
from benchmarks.gpu import model_work
from benchmarks.gpu.count_models import count_model
from benchmarks.gpu.machine_code import machine_per_ptx, ptx_instructions
from benchmarks.gpu.model_tasks import kept_tasks
from benchmarks.gpu.model_work import ALONE, OURS, KernelWork, kept_works, total_us, works_of
from benchmarks.gpu.predicted import predicted_items
from benchmarks.gpu.shapes import image_model, models
from boltgen.arch import arch_named
from boltgen.families.constants import model_constants

WORK = KernelWork(
    kernel="k",
    launches=3,
    grid=(7, 2, 1),
    block=(128, 1, 1),
    registers=40,
    shared_bytes=1024,
    instructions=(("integer", 100), ("mma", 4)),
    mma_operations=16384,
    global_bytes=64,
    dram_bytes=32,
    modelled_us=1.5,
    bound_by="issue",
    machine_per_ptx=1.25,
)


def products(works: Iterable[KernelWork]) -> int:
    return sum(work.launches * work.mma_operations for work in works)


def test_a_model_is_counted_kernel_by_kernel():
    """One that the tests of the suite's bundle have compiled, too."""
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("device", "sm_80")
    shape = image_model("repvgg_a0", 1, 32)
    found = count_model(shape, arch_named("sm_80"), vgpu)
    assert found == count_model(shape, arch_named("sm_80"), vgpu)
    ours, alone = found[OURS], found[ALONE]
    assert sum(work.launches for work in ours if work.is_ours) >= 23  # its products
    assert not any(work.is_ours for work in alone)
    # Of the 1.36 GMAC of 224x224 pixels; ours are all on tensor cores.
    assert products(ours) > 2 * 1.3e9 * (32 / 224) ** 2
    # Scalar halves are packed, and multiplications with additions one instruction.
    assert min(work.machine_per_ptx for work in alone) < 0.6
    assert all(0.6 < work.machine_per_ptx < 1.0 for work in ours if work.mma_operations)
    for work in (*ours, *alone):
        assert work.us > 0
        assert work.dram_bytes > 0
        assert dict(work.instructions)["store"] > 0
    vgpu.clear_launches()
    assert vgpu.counters() == []


def test_equal_launches_are_one_row():
    traffic = {"requests": 1, "bytes": 128, "sectors": 4}
    counted = {
        "kernel": "k",
        "grid": [7, 2, 1],
        "block": [128, 1, 1],
        "registers": 40,
        "static_shared_bytes": 1000,
        "dynamic_shared_bytes": 24,
        "instructions": {"integer": 100, "half": 0, "mma": 4},
        "mma_operations": 16384,
        "global_load": traffic,
        "global_store": {**traffic, "sectors": 1},
        "global_atomic": {**traffic, "sectors": 0},
        "modelled": {"us": 1.5, "bound_by": "issue", "waves": 1.0, "dram_bytes": 32},
    }
    slower = {**counted, "modelled": {**counted["modelled"], "us": 2.5}}
    wanted = replace(WORK, launches=2, global_bytes=5 * 32)
    found = works_of([counted, slower, counted], {"k": 1.25})
    assert found == (wanted, replace(wanted, launches=1, modelled_us=2.5))


def test_a_model_takes_its_kernels_and_their_launches():
    works = (WORK, replace(WORK, kernel="boltgen_gemm", launches=1, modelled_us=4.0))
    assert total_us(works, launch_us=0.5) == 3 * (1.5 + 0.5) + (4.0 + 0.5)
    assert [work.is_ours for work in works] == [False, True]


def test_instructions_take_the_time_of_the_machines():
    fewer = replace(WORK, machine_per_ptx=0.4)
    assert (WORK.us, fewer.us) == (1.5, 0.4 * 1.5)
    assert replace(fewer, bound_by="shared memory").us == 1.5


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_work, "FILE", tmp_path / "works.json")
    works = {"sm_90": {"b": {OURS: (WORK,), ALONE: (WORK, WORK)}, "a": {OURS: (), ALONE: ()}}}
    model_work.write(works)
    kept_works.cache_clear()
    try:
        assert kept_works() == works
    finally:
        kept_works.cache_clear()
    rows = (tmp_path / "works.json").read_text().splitlines()
    assert sum(row.lstrip().startswith('{"kernel":"k"') for row in rows) == 3


def test_every_model_is_kept_with_the_work_of_its_products():
    kept = kept_works()["sm_90"]
    assert kept.keys() == models().keys()
    for name, works in kept.items():
        flops = sum(t.occurrences * t.problem.flops for t in kept_tasks()["sm_90"][name])
        # Tiles reach beyond the tensors, and with one row in batch 1 by much.
        assert 1.0 <= products(works[OURS]) / flops < 2.5, name
        launches = {column: sum(work.launches for work in works[column]) for column in works}
        # What is fused is fewer launches.
        assert launches[OURS] <= launches[ALONE], name
    assert model_work.FILE.stat().st_size < 1 << 20


def test_ratios_to_tvm_are_those_of_the_counts():
    item = predicted_items(arch_named("sm_90"))["models/resnet50-b1"]
    works = kept_works()["sm_90"]["resnet50-b1"]
    launch_us = model_constants().launch_us
    tvm_us, ours_us = (total_us(works[column], launch_us) for column in (ALONE, OURS))
    assert item["ratios"]["tvm"] == {"ratio": tvm_us / ours_us, "verdict": "predicted"}
    columns = {name: column["median_us"] for name, column in item["columns"].items()}
    assert columns["boltgen"] == ours_us
    # The roofline is below both ways of predicting ours.
    assert columns["vendor"] < min(ours_us, columns["boltgen_analytical"])


def test_instructions_of_ptx_are_counted_without_what_only_declares():
    text = """.version 9.0
.visible .entry first(.param .u64 p0)
{
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p0]; // a comment
$L__BB0_1:
    { mul.f16 %rs1,%rs2,%rs3;
}
    @%p1 bra $L__BB0_1;
    ret;
}
.entry second()
{
    ret;
}
"""
    library = b"\x01\0" + text.encode() + b"\0rest"
    assert ptx_instructions(library) == {"first": 4, "second": 1}
    assert machine_per_ptx(library) == {}  # there is no machine code
