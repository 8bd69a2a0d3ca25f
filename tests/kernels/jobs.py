"""Launches of kernels by the judge of shipped ones, which draws inputs and asks the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.families.registry import launch
from boltgen.families.source import kernel_symbol
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.workload import Workload


def judged_jobs(
    checking: Cuda,
    library: KernelLibrary,
    spec: KernelSpec,
    config: Any,
    workloads: Iterable[Workload],
) -> list[float]:
    """The kernel computes the workloads, and no check finds anything.

    Returns the largest error of each, relative to its bound.
    """
    loaded = ctypes.CDLL(str(library.path))
    device = Device(ctypes.CDLL("libcudart.so.13"), checking.vgpu.last_error)
    checking.become(spec.arch)
    errors = []
    for workload in workloads:
        job = Job(symbol=kernel_symbol(spec), workload=workload, launch=launch(workload, config))
        errors.append(run_job(device, loaded, job))
        device.free_all()
    assert [finding.message for finding in checking.vgpu.findings()] == []
    return errors
