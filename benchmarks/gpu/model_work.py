"""What the kernels of whole models do, boltgen's and TVM's alone: counted, for predictions.

`python -m benchmarks.gpu.count_models` writes `model_work.json`: counting compiles models and runs
them on the virtual GPU, predicting takes no time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.gpu.kept_json import kept_json
from boltgen.tuning.json_form import decode, encode

FILE = Path(__file__).with_suffix(".json")
# What a model was compiled by, as the report's columns are called.
OURS, ALONE = "boltgen", "tvm"
_SECTOR_BYTES = 32
# What bounds a kernel that is instructions by number; the rest is data, or tensor cores.
_INSTRUCTIONS = frozenset({"issue", "fp32", "fp16", "fp64", "integer", "conversion", "latency"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """Equal launches of a kernel in one inference, and what one of them does.

    `instructions` are those that warps execute, by the virtual GPU's classes; `mma_operations`
    multiplications and additions of tensor cores; `global_bytes` 32 for each sector that a request
    touches; `dram_bytes` all that is touched, once. `modelled_us` is what that work takes the
    device's busiest unit, `bound_by`, without the launch: the virtual GPU's model of time, which
    takes PTX's instructions for the machine's. Of those ptxas made `machine_per_ptx` for each.
    """

    kernel: str
    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    instructions: tuple[tuple[str, int], ...]
    mma_operations: int
    global_bytes: int
    dram_bytes: int
    modelled_us: float
    bound_by: str
    machine_per_ptx: float

    @property
    def us(self) -> float:
        """The time of the machine's instructions, where it is instructions that take it.

        Never longer than PTX's: where there are more of the machine's, they are mostly those of
        slow paths that nothing takes, or fill a line.
        """
        if self.bound_by not in _INSTRUCTIONS:
            return self.modelled_us
        return self.modelled_us * min(1.0, self.machine_per_ptx)

    @property
    def is_ours(self) -> bool:
        """Whether boltgen made the kernel; it names them all."""
        return "boltgen" in self.kernel


def works_of(
    counted: Iterable[Mapping[str, Any]], machine_per_ptx: Mapping[str, float]
) -> tuple[KernelWork, ...]:
    """Launches as `Vgpu.counters` has them, equal ones as one; the ratios are by kernel."""
    works = Counter(_work(launch, machine_per_ptx[launch["kernel"]]) for launch in counted)
    return tuple(replace(work, launches=launches) for work, launches in works.items())


def _work(counted: Mapping[str, Any], machine_per_ptx: float) -> KernelWork:
    traffic = ("global_load", "global_store", "global_atomic")
    return KernelWork(
        kernel=counted["kernel"],
        launches=1,
        grid=tuple(counted["grid"]),
        block=tuple(counted["block"]),
        registers=counted["registers"],
        shared_bytes=counted["static_shared_bytes"] + counted["dynamic_shared_bytes"],
        instructions=tuple(
            (name, count) for name, count in counted["instructions"].items() if count
        ),
        mma_operations=counted["mma_operations"],
        global_bytes=_SECTOR_BYTES * sum(counted[name]["sectors"] for name in traffic),
        dram_bytes=counted["modelled"]["dram_bytes"],
        modelled_us=counted["modelled"]["us"],
        bound_by=counted["modelled"]["bound_by"],
        machine_per_ptx=round(machine_per_ptx, 3),
    )


def total_us(works: Iterable[KernelWork], launch_us: float) -> float:
    """One kernel after the other, each with its launch."""
    return sum(work.launches * (work.us + launch_us) for work in works)


# By arch, model and column.
Works = dict[str, dict[str, dict[str, tuple[KernelWork, ...]]]]


@cache
def kept_works() -> Works:
    """What was counted when the file was written."""
    form = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        arch: {
            model: {name: decode(tuple[KernelWork, ...], rows) for name, rows in columns.items()}
            for model, columns in models.items()
        }
        for arch, models in form.items()
    }


def write(works: Works) -> None:
    """Replace the file."""
    form = {
        arch: {
            model: {
                name: [encode(KernelWork, work) for work in found]
                for name, found in columns.items()
            }
            for model, columns in models.items()
        }
        for arch, models in works.items()
    }
    FILE.write_text(kept_json(form) + "\n")
